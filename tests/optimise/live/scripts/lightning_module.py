"""A Lightning module, until the standard input ends."""
# ruff: noqa: T201, ARG002 - a program that prints, with the arguments its framework wants

import os
import select
import sys
import warnings

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from joulewise.simulate import gpu

print(os.getpid(), flush=True)
warnings.simplefilter("ignore")
torch.set_num_threads(1)
board = gpu(0)


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        board.step("resnet50", batch_size=16)
        return self.layer(batch[0]).square().mean()

    def on_train_epoch_end(self):
        self.trainer.should_stop = bool(select.select([sys.stdin], [], [], 0)[0])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


trainer = lightning.Trainer(
    max_epochs=-1,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Regression(), DataLoader(TensorDataset(torch.ones(256, 8)), batch_size=8))
print("trained", flush=True)
sys.exit(7)

"""Lightning: trainings told in steps, one with a profile at the end, and one that fails."""
# ruff: noqa: ARG002, T201 - a program that prints, with the arguments that Lightning wants

import logging
import warnings

import pytorch_lightning
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

warnings.simplefilter("ignore")
logging.disable()
torch.set_num_threads(1)


class Module(pytorch_lightning.LightningModule):
    def __init__(self, fails=False):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.fails = fails

    def training_step(self, batch, batch_idx):
        if self.fails:
            raise RuntimeError("the data ran out")
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Stream(IterableDataset):
    """Eight samples, of which nobody knows beforehand how many there are."""

    def __iter__(self):
        return iter(torch.ones(8, 4).unsqueeze(1))


class StopInTheMiddle(pytorch_lightning.Callback):
    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        trainer.should_stop = batch_idx == 1


def fit(module, data=None, **options):
    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = pytorch_lightning.Trainer(accelerator="cpu", **dict.fromkeys(quiet, False), **options)
    trainer.fit(module, DataLoader(TensorDataset(torch.ones(8, 4)) if data is None else data, 2))


fit(Module(), max_steps=5, max_epochs=-1, profiler="simple")
try:
    fit(Module(fails=True), max_epochs=7)
except RuntimeError as error:
    print(error)
fit(Module(), max_steps=8)
fit(Module(), max_steps=5, limit_train_batches=3)
fit(Module(), Stream(), max_steps=6)
fit(Module(), Stream(), max_steps=8)
fit(Module(), max_epochs=3, callbacks=[StopInTheMiddle()])

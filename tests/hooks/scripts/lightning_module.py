"""A Lightning module with a validation after every epoch; two batches make a step."""
# ruff: noqa: T201, ARG002 - a program that prints, with the arguments its framework wants

import time
import warnings

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
torch.set_num_threads(1)
lightning.seed_everything(1, verbose=False)
x = torch.randn(64, 8)
data = TensorDataset(x, x.sum(1, keepdim=True))


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("loss", torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]))

    def on_train_epoch_start(self):
        print("epoch", self.current_epoch, time.monotonic_ns(), end=" ")

    def on_train_epoch_end(self):
        print(time.monotonic_ns())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


trainer = lightning.Trainer(
    max_epochs=3,
    accumulate_grad_batches=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
model = Regression()
trainer.fit(model, DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=16))
trainer.validate(model, DataLoader(data, batch_size=16), verbose=False)
print("callbacks", [type(callback).__name__ for callback in trainer.callbacks])
print("weights", sum(p.double().sum().item() for p in model.parameters()).hex())

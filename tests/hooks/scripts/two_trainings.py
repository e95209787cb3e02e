"""Two trainings in one program, of five and of three epochs, in the framework that is named."""
# ruff: noqa: ARG002 - with the arguments that its framework wants

import logging
import os
import sys
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("KERAS_BACKEND", "torch")
warnings.simplefilter("ignore")
logging.disable()


def with_keras():
    import keras
    import numpy as np

    x = np.ones((8, 2), "float32")
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    for epochs in (5, 3):
        model.fit(x, x[:, :1], batch_size=4, epochs=epochs, verbose=0)


def with_lightning():
    import lightning
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, batch_idx):
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    quiet = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    module = Module()
    for epochs in (5, 3):
        trainer = lightning.Trainer(
            accelerator="cpu", max_epochs=epochs, **dict.fromkeys(quiet, False)
        )
        trainer.fit(module, DataLoader(TensorDataset(torch.ones(8, 4)), 2))


def with_hugging_face():
    import torch
    import transformers

    config = transformers.BertConfig(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    model = transformers.BertForSequenceClassification(config)
    data = [{"input_ids": row, "labels": 0} for row in torch.randint(0, 32, (8, 6))]
    for epochs in (5, 3):
        with tempfile.TemporaryDirectory() as folder:
            arguments = transformers.TrainingArguments(
                folder,
                num_train_epochs=epochs,
                per_device_train_batch_size=4,
                save_strategy="no",
                report_to=[],
                disable_tqdm=True,
                use_cpu=True,
            )
            transformers.Trainer(model, arguments, train_dataset=data).train()


def with_a_loop():
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.ones(8, 4)), 2)
    for epochs in (5, 3):
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(epochs):
            for (batch,) in loader:
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()


{
    "keras": with_keras,
    "lightning": with_lightning,
    "hugging_face": with_hugging_face,
    "loop": with_a_loop,
}[sys.argv[1]]()

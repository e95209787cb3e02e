"""The Trainer of transformers on a tiny BERT, until the standard input ends."""
# ruff: noqa: T201 - a program that prints

import os
import select
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers

from joulewise.simulate import gpu

print(os.getpid(), flush=True)
torch.set_num_threads(1)
config = transformers.BertConfig(
    vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
)
model, board = transformers.BertForSequenceClassification(config), gpu(0)


def load(*_):
    board.step("resnet50", batch_size=16)


class End(transformers.TrainerCallback):
    def on_step_end(self, _args, _state, control, **_kwargs):
        control.should_training_stop = bool(select.select([sys.stdin], [], [], 0)[0])


model.register_forward_pre_hook(load)
tokens = torch.randint(0, 32, (256, 6))
with tempfile.TemporaryDirectory() as folder:
    trainer = transformers.Trainer(
        model,
        transformers.TrainingArguments(
            folder,
            num_train_epochs=10_000,
            per_device_train_batch_size=8,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=[{"input_ids": row, "labels": int(row[0] > 15)} for row in tokens],
        callbacks=[End],
    )
    stdout, sys.stdout = sys.stdout, sys.stderr  # the Trainer prints its summary at the end
    trainer.train()
    sys.stdout = stdout
print("trained", flush=True)
sys.exit(7)

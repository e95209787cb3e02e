"""The Trainer of transformers on a tiny BERT, made from its configuration."""
# ruff: noqa: T201 - a program that prints

import os
import sys
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers

transformers.set_seed(1)
torch.set_num_threads(1)
config = transformers.BertConfig(
    vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
)
model = transformers.BertForSequenceClassification(config)
tokens = torch.randint(0, 32, (40, 6))
data = [{"input_ids": row, "labels": int(row[0] > 15)} for row in tokens]


class Clock(transformers.TrainerCallback):
    def on_epoch_begin(self, *_args, **_kwargs):
        print("epoch", time.monotonic_ns(), end=" ")

    def on_epoch_end(self, *_args, **_kwargs):
        print(time.monotonic_ns())


with tempfile.TemporaryDirectory() as folder:
    trainer = transformers.Trainer(
        model,
        transformers.TrainingArguments(
            folder,
            num_train_epochs=2,
            max_steps=int(sys.argv[1]) if sys.argv[1:] else -1,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            eval_strategy="epoch",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=data,
        eval_dataset=data[:8],
        callbacks=[Clock],
    )
    trainer.train()
    print("callbacks", trainer.callback_handler.callback_list.split())
    print("evaluated", sorted(trainer.evaluate()) != [])
print("weights", sum(p.double().sum().item() for p in model.parameters()).hex())

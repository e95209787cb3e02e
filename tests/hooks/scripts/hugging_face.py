"""The Trainer of transformers on a tiny BERT, made from its configuration."""
# ruff: noqa: T201 - a program that prints

import argparse
import os
import tempfile
import time

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import transformers

parser = argparse.ArgumentParser()
parser.add_argument("--max-steps", type=int, default=-1)
parser.add_argument("--epochs", type=float, default=2)
parser.add_argument("--stream", action="store_true", help="a data set that has no length")
parser.add_argument("--stop-epoch-after", type=int, help="steps, in a callback")
parser.add_argument("--resume-at", type=int, help="stop at a checkpoint of that step, and go on")
options = parser.parse_args()

transformers.set_seed(1)
torch.set_num_threads(1)
config = transformers.BertConfig(
    vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
)
model = transformers.BertForSequenceClassification(config)
tokens = torch.randint(0, 32, (40, 6))
data = [{"input_ids": row, "labels": int(row[0] > 15)} for row in tokens]


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(data)


class Clock(transformers.TrainerCallback):
    def on_epoch_begin(self, *_args, **_kwargs):
        print("epoch", time.monotonic_ns(), end=" ")

    def on_epoch_end(self, *_args, **_kwargs):
        print(time.monotonic_ns())


class Stop(transformers.TrainerCallback):
    def __init__(self, is_resumed):
        self.is_first = not is_resumed

    def on_step_end(self, _args, state, control, **_kwargs):
        control.should_epoch_stop = state.global_step == options.stop_epoch_after
        if self.is_first and state.global_step == options.resume_at:
            control.should_save = control.should_training_stop = True


def train(folder, checkpoint=None):
    trainer = transformers.Trainer(
        model,
        transformers.TrainingArguments(
            folder,
            num_train_epochs=options.epochs,
            max_steps=options.max_steps,
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            eval_strategy="epoch",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=Stream() if options.stream else data,
        eval_dataset=data[:8],
        callbacks=[Clock, *([Stop(checkpoint is not None)] if is_stopped else [])],
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    return trainer


is_stopped = options.stop_epoch_after or options.resume_at
with tempfile.TemporaryDirectory() as folder:
    trainer = train(folder)
    if options.resume_at:
        trainer = train(folder, f"{folder}/checkpoint-{options.resume_at}")
    print("callbacks", trainer.callback_handler.callback_list.split())
    print("evaluated", sorted(trainer.evaluate()) != [])
print("weights", sum(p.double().sum().item() for p in model.parameters()).hex())

"""The callbacks of Keras, Lightning and transformers: real trainings that measure themselves."""

import json
import subprocess
import sys

import pytest

from joulewise.session.callbacks import _TrainingSpans
from tests.helpers.hooked_programs import QUIET
from tests.helpers.run_processes import environment

START = """
import json, sys, tempfile, warnings
import torch
import joulewise
torch.set_num_threads(1)
warnings.simplefilter("ignore")
def tell(m):
    counts = {}
    for span in m.spans:
        counts[span.name] = counts.get(span.name, 0) + 1
    print(json.dumps([m.id, counts, [s.index for s in m.spans if s.name == "step"]]), flush=True)
"""
# 8 batches of 4 in each of 2 epochs; where the framework can, 2 batches make a step.
KERAS = """
import keras, numpy as np
x = np.ones((32, 4), "float32")
class Fails(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise ValueError("mine")
def fit(*callbacks):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0, callbacks=callbacks)
def train(m):
    ours = joulewise.callbacks.keras(m)
    fit(ours)
    tell(ours.measurement)
    assert ours.measurement is m
    fit(ours)
    tell(ours.measurement)
    with joulewise.measure() as around:
        try:
            fit(joulewise.callbacks.keras(around), Fails())
        except ValueError:
            print("failed")
    tell(around)
"""
LIGHTNING = """
import lightning
from torch.utils.data import DataLoader, TensorDataset
class Regression(lightning.LightningModule):
    fails = False
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, batch_idx):
        if self.fails:
            raise ValueError("mine")
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
def fit(callback, fails=False):
    model = Regression()
    model.fails = fails
    lightning.Trainer(
        max_epochs=2, accumulate_grad_batches=2, accelerator="cpu", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[callback],
    ).fit(model, DataLoader(TensorDataset(torch.ones(32, 4)), batch_size=4))
def train(m):
    ours = joulewise.callbacks.lightning(m)
    fit(ours)
    tell(m)
    fit(ours)
    tell(ours.measurement)
    try:
        fit(ours, fails=True)
    except ValueError:
        print("failed")
    tell(ours.measurement)  # the training ended it
"""
HUGGING_FACE = """
import transformers
config = transformers.BertConfig(
    vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
)
rows = torch.randint(0, 32, (32, 6))
def fit(*callbacks):
    with tempfile.TemporaryDirectory() as folder:
        transformers.Trainer(
            transformers.BertForSequenceClassification(config),
            transformers.TrainingArguments(
                folder, num_train_epochs=2, per_device_train_batch_size=4,
                gradient_accumulation_steps=2, save_strategy="no", logging_strategy="no",
                report_to=[], disable_tqdm=True, use_cpu=True,
            ),
            train_dataset=[{"input_ids": row, "labels": 1} for row in rows],
            callbacks=list(callbacks),
        ).train()
class Fails(transformers.TrainerCallback):
    def on_step_end(self, *_, **__):
        raise ValueError("mine")
def train(m):
    ours = joulewise.callbacks.hugging_face(m)
    fit(ours)
    tell(m)
    fit(ours)
    tell(ours.measurement)
    with joulewise.measure() as around:
        try:
            fit(joulewise.callbacks.hugging_face(around), Fails())
        except ValueError:
            print("failed")
    tell(around)
"""


def program(folder, code):
    environ = environment(**QUIET, JOULEWISE_STORE=str(folder))
    ran = subprocess.run(
        [sys.executable, "-c", START + code],
        env=environ, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize(
    ("code", "steps"),
    [(KERAS, 16), (LIGHTNING, 8), (HUGGING_FACE, 8)],
    ids=["keras", "lightning", "hugging_face"],
)
def test_each_training_is_a_run_with_its_epochs_and_steps(code, steps, tmp_path):
    out = program(tmp_path, code + "train(joulewise.measure())\n")
    lines = out.splitlines()
    payload = [json.loads(line) for line in lines if line.startswith("[")]
    assert len({run for run, _, _ in payload}) == 3
    for _, counts, indices in payload[:2]:
        assert counts == {"training": 1, "epoch": 2, "step": steps}
        assert indices == list(range(steps))
    assert "failed" in lines
    assert payload[2][1]["training"] == 1


def test_other_ranks_of_a_node_measure_nothing(monkeypatch, tmp_path):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    import joulewise

    spans = _TrainingSpans(joulewise.measure(store=tmp_path))
    spans.begin()
    spans.enter_step()
    spans.leave_step()
    spans.end()
    assert not spans.measurement.is_running
    assert not list(tmp_path.iterdir())

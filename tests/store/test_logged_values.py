"""Figures that a program logs, read back while it runs and afterwards."""

import math
import os
import signal
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch

from joulewise.hooks.figures import as_number, select_quality, write_figures
from joulewise.hooks.marks import GUESSED, RECORD_BYTES, Marks
from joulewise.store.checksums import write_final_checksums
from joulewise.store.logged_values import (
    LoggedFollower,
    LoggedValue,
    clean_name,
    read_logged,
    summarise_logged,
)
from joulewise.store.spans import read_spans


@pytest.fixture
def run(tmp_path):
    (tmp_path / "marks").mkdir()
    return tmp_path


@pytest.fixture
def marks(run):
    writer = Marks(run / "marks")
    yield writer
    writer.close()


def log_as_rank(monkeypatch, run, number, *figures):
    for name, value in {"RANK": number, "WORLD_SIZE": 2, "LOCAL_RANK": number}.items():
        monkeypatch.setenv(name, str(value))
    marks = Marks(run / "marks")
    for name, value, t_ns in figures:
        marks.figure(name, value, t_ns=t_ns)
    marks.close()


def test_a_figure_has_its_time_and_epoch(run, marks):
    marks.figure("loss", 2.5, t_ns=5)
    marks.begin("epoch", 3, t_ns=10)
    marks.figure("loss", 0.5, t_ns=20)
    marks.figure("val_acc", 0.25, 7, t_ns=21)
    assert read_logged(run) == [
        LoggedValue("loss", 2.5, 5, None),
        LoggedValue("loss", 0.5, 20, 3),
        LoggedValue("val_acc", 0.25, 21, 7),
    ]
    table = read_spans(run)
    assert (table.names, len(table), table.warnings) == (("epoch",), 1, ())


def test_epochs_without_a_number_are_counted_in_each_training(run, marks):
    for t_ns in (0, 100):
        marks.begin("training", t_ns=t_ns)
        marks.figure("loss", 1.0, t_ns=t_ns + 1)
        for epoch in (0, 1):
            marks.begin("epoch", t_ns=t_ns + 10 * epoch + 5)
            marks.figure("loss", 1.0, t_ns=t_ns + 10 * epoch + 6)
    assert [each.epoch for each in read_logged(run)] == [None, 0, 1] * 2


def test_guessed_epochs_count_where_the_program_announces_none(run, marks):
    marks.begin("epoch", 4, t_ns=1, guessed=True)
    marks.figure("loss", 1.0, t_ns=2)
    marks.begin("epoch", 0, t_ns=3)
    marks.begin("epoch", 5, t_ns=4, guessed=True)
    marks.figure("loss", 1.0, t_ns=5)
    assert [each.epoch for each in read_logged(run)] == [4, 0]


def test_a_follower_gives_each_value_once(run, marks):
    follower = LoggedFollower(run / "marks")
    assert follower.poll() == []
    marks.figure("loss", 2.0, t_ns=1)
    assert [each.value for each in follower.poll()] == [2.0]
    assert follower.poll() == []
    another = Marks(run / "marks")
    another.begin("epoch", 2, t_ns=2)
    marks.figure("loss", 1.0, t_ns=3)
    assert follower.poll() == [LoggedValue("loss", 1.0, 3, 2)]


def test_what_the_program_logs_itself_counts_before_what_its_framework_does(run, marks):
    marks.figure("acc", 0.5, t_ns=1, guessed=True)
    marks.figure("acc", 0.6, t_ns=2)
    marks.figure("loss", 0.7, t_ns=3, guessed=True)
    assert [(each.name, each.value) for each in read_logged(run)] == [("acc", 0.6), ("loss", 0.7)]


def test_of_several_ranks_the_lowest_that_logs_a_name_counts(run, monkeypatch):
    log_as_rank(monkeypatch, run, 1, ("loss", 2.0, 1), ("perplexity", 9.0, 3))
    log_as_rank(monkeypatch, run, 0, ("loss", 1.0, 2))
    assert [(each.name, each.value) for each in read_logged(run)] == [
        ("loss", 1.0),
        ("perplexity", 9.0),
    ]


def test_processes_without_ranks_all_count(run):
    script = (
        "from joulewise.hooks.marks import Marks as M; import sys; M(sys.argv[1]).figure('a', 1)"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", script, run / "marks"], check=True)
    assert [each.name for each in read_logged(run)] == ["a", "a"]


def test_a_killed_process_leaves_what_it_logged(run):
    script = "import joulewise, os; joulewise.log(val_acc=0.5, epoch=2); os.kill(os.getpid(), 9)"
    environ = {**os.environ, "JOULEWISE_MARKS": str(run / "marks")}
    done = subprocess.run([sys.executable, "-c", script], env=environ, check=False)
    assert done.returncode == -signal.SIGKILL
    (value,) = read_logged(run)
    assert (value.name, value.value, value.epoch) == ("val_acc", 0.5, 2)


def test_figures_that_are_not_finite_stay_what_they_are(run, marks):
    write_figures([marks], {"loss": math.nan, "norm": 10**400, "gap": -(10**400), "ok": 1})
    values = {each.name: each.value for each in read_logged(run)}
    assert math.isnan(values.pop("loss"))
    assert values == {"norm": math.inf, "gap": -math.inf, "ok": 1.0}
    (loss, *_, ok) = summarise_logged(read_logged(run))
    assert (loss.values, loss.not_finite, loss.last, loss.lowest) == (1, 1, None, None)
    assert (ok.first, ok.last, ok.lowest, ok.highest) == (1.0, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    "value",
    [
        0.5, np.float32(0.5), np.array(0.5), np.array([[0.5]]), torch.tensor(0.5), Fraction(1, 2),
        torch.tensor([0.5], requires_grad=True), np.float16(0.5), torch.tensor(0.5).bfloat16(),
    ],
)  # fmt: skip
def test_numbers_of_any_library(value):
    assert as_number(value) == 0.5


@pytest.mark.parametrize(
    "value", ["0.5", b"1", None, [0.5], {}, np.zeros(2), torch.zeros(0), 1j, object()]
)
def test_what_is_not_one_number(value):
    assert as_number(value) is None


def test_nothing_that_is_logged_raises(run, marks):
    class Hostile:
        def __float__(self):
            raise RuntimeError("no")

        def __str__(self):
            raise RuntimeError("no")

    write_figures([marks], {"a": Hostile(), "b": 1.0}, epoch=math.nan)
    write_figures([marks], {Hostile(): 1.0, "c": 1.0})
    write_figures([marks], 5)
    write_figures([marks], {"": 1.0, " ": 2.0, "d": 1.0}, epoch="three")
    assert [(each.name, each.epoch) for each in read_logged(run)] == [("b", None), ("d", None)]


def test_names_are_cleaned():
    assert clean_name("val/acc") == "val/acc"
    assert clean_name("\x1b[31mred\n\tloss \u202e") == "[31mred loss"
    assert clean_name("\0") == "?"


def test_progress_schedules_and_speeds_are_not_quality():
    kept = {"loss", "val_acc", "eval_loss", "grad_norm", "colr", "steps_ahead"}
    left = {
        "epoch", "train_loss_epoch", "lr-Adam", "learning_rate", "lr", "eval_runtime",
        "eval_samples_per_second", "total_flos", "train/step",
    }  # fmt: skip
    assert set(select_quality(dict.fromkeys(kept | left, 1))) == kept


def test_a_damaged_figure_is_left_out(run, marks):
    for number in range(3):
        marks.figure("loss", number, t_ns=number)
    (path,) = (run / "marks").iterdir()
    write_final_checksums(run, durable=False)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - RECORD_BYTES + 16)
        file.write(b"\xff")
    values = [each.value for each in read_logged(run)]
    assert values == [0.0, 1.0, 2.0][: len(values)]
    assert len(values) < 3


def test_what_stands_before_the_damage_is_read_while_the_program_runs(run, marks):
    marks.figure("loss", 1.0, t_ns=1)
    marks.figure("loss", 2.0, t_ns=2)
    (path,) = (run / "marks").iterdir()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - RECORD_BYTES)
        file.write(b"\0")
    follower = LoggedFollower(run / "marks")
    assert [each.value for each in follower.poll()] == [1.0]
    assert follower.poll() == []


def test_a_flag_says_what_a_hook_took_from_its_framework(run, marks):
    write_figures([marks], {"loss": 1.0}, guessed=True)
    (path,) = (run / "marks").iterdir()
    assert path.read_bytes()[-RECORD_BYTES + 2] == GUESSED

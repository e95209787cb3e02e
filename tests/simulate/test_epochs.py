"""The course of a training: its parts in order, as every clock plays them."""

from itertools import islice

import pytest

from joulewise.simulate.boards import load_board
from joulewise.simulate.model import Load, Phase, Workload
from joulewise.simulate.workloads import WORKLOADS, iterate_epochs, load_workload, repeat_training

STEP = Load((Phase("kernel", 0.01, 0.5, 90.0, 20.0),), memory_b=7)
VALIDATION = Load((Phase("kernel", 0.005, 0.5, 90.0, 20.0),), memory_b=7)


def training(**options):
    defaults = {
        "name": "test",
        "board": "v100",
        "batch_size": 4,
        "samples": 37,
        "epochs": 2,
        "step": STEP,
        "validation": VALIDATION,
        "validation_steps": 3,
        "warmup_steps": 4,
        "warmup_factor": 3.0,
        "epoch_end_s": 0.5,
        "run_noise": 0.0,
    }
    return Workload(**{**defaults, **options})


def shape(parts):
    return [
        (part.name, part.steps, round(sum(p.time_s for p in part.load.phases), 6)) for part in parts
    ]


FIRST = [("step", 4, 0.03), ("step", 6, 0.01), ("validation", 3, 0.005), ("end", 1, 0.5)]
SECOND = [("step", 10, 0.01), ("validation", 3, 0.005), ("end", 1, 0.5)]


def test_an_epoch_warms_up_once_trains_validates_and_waits():
    assert [shape(parts) for parts in iterate_epochs(training())] == [FIRST, SECOND]


def test_what_waits_draws_nothing_beside_the_clocks_and_keeps_its_memory():
    *_, end = next(iterate_epochs(training()))
    (phase,) = end.load.phases
    assert (phase.busy, phase.compute, phase.core_w, phase.fixed_w) == (False, 0.0, 0.0, 0.0)
    assert end.load.memory_b == STEP.memory_b


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"warmup_steps": 99}, [("step", 10, 0.03), *FIRST[2:]]),
        ({"warmup_steps": 0}, SECOND),
        ({"validation_steps": 0}, [*FIRST[:2], FIRST[3]]),
        ({"epoch_end_s": 0.0}, FIRST[:3]),
    ],
)
def test_a_part_that_a_training_lacks_is_left_out(options, expected):
    assert shape(next(iterate_epochs(training(**options)))) == expected


def test_a_repeated_training_begins_again_with_the_warm_up():
    again = islice(repeat_training(training()), 2 * len(FIRST + SECOND))
    assert shape(again) == 2 * (FIRST + SECOND)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_warms_up_and_waits(name):
    parts = next(iterate_epochs(load_workload(name, load_board("v100"))))
    assert [part.name for part in parts][:2] == ["step", "step"]
    assert parts[-1].name == "end"

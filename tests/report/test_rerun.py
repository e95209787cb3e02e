"""The command on a page does the same again: it is read by the verb itself, and compared."""

import shlex
from dataclasses import asdict, replace

import pytest

from joulewise.cli import run as run_verb
from joulewise.cli import sweep as sweep_verb
from joulewise.report.rerun import rerun_command, rerun_sweep_command
from joulewise.session.request import Request
from joulewise.store.manifest import CommandRecord, Manifest
from joulewise.sweep.spec import SimulationSpec, SweepSpec

MANIFEST = Manifest(
    id="x",
    commands=(CommandRecord(1, ("python", "train.py", "a b"), 0),),
    cwd="/",
    rate_hz=10,
    wall_start_ns=0,
    monotonic_start_ns=0,
    boot_id="",
)


def heard(command):
    """What the verb makes of it."""
    words = shlex.split(command)
    assert words[:2] == ["joulewise", "sweep"]
    return sweep_verb._spec_from_options(sweep_verb.command.make_context("sweep", words[2:]).params)


@pytest.mark.parametrize(
    "spec",
    [
        SweepSpec(
            simulated=SimulationSpec("v100", "resnet50", run_noise=0.015),
            axes={"power_limit_w": "150:300:5"},
            by=("edp", "eds:2.0"),
            name="it's <b>",
        ),
        SweepSpec(
            command=("python", "train.py", "--batch", "{batch_size}", "--flag=$x"),
            axes={"power_limit_w": "50%:100%:10%", "sm_clock_mhz": "1200", "batch_size": "32,64"},
            reference={"batch_size": "32"},
            repeat=3,
            seed=7,
            warm_up=1,
            cool_down="60s",
            gpus=(0, 2),
            max_slowdown=1.5,
            timeout_s=60.5,
            adaptive=True,
            tolerance=0.01,
            boundary="wall",
            overhead_w=100.0,
            pue=1.2,
            rate_hz=20.0,
            hooks=False,
            force=True,
        ),
    ],
)
def test_the_command_of_a_sweep_repeats_it(spec):
    command, besides = rerun_sweep_command(spec.as_json())
    assert heard(command) == spec
    assert not besides


def test_a_zero_that_was_given_is_in_the_command():
    spec = SweepSpec(command=("true",), axes={"x": "1,2"}, boundary="wall", overhead_w=0.0)
    command, _ = rerun_sweep_command(spec.as_json())
    assert heard(command).overhead_w == 0.0
    command = rerun_command(replace(MANIFEST, options=asdict(Request(price_per_kwh=0.0))))
    assert command == "joulewise run --price-per-kwh 0 -- python train.py 'a b'"


def test_options_from_a_file_are_mentioned():
    spec = SweepSpec(command=("true",), constraints=("a < b",), environ={"X": "1"})
    assert rerun_sweep_command(spec.as_json())[1] == "constraints and variables"


def test_the_command_of_a_run_has_its_options():
    options = {
        "rate_hz": 20.0,
        "name": "base line",
        "tags": ["a", "b"],
        "group": "job.0",
        "budgets": ["2kWh:stop"],
        "gco2_per_kwh": 380.0,
        "epochs": 3,
        "hooks": False,
        "settings": {"gpu0": {"power_limit_w": 150.0}, "gpu1": {"power_limit_w": 150.0}},
    }
    words = shlex.split(rerun_command(replace(MANIFEST, options=options)))
    context = run_verb.command.make_context("run", words[2:])
    parsed = context.params
    assert parsed["command"] == MANIFEST.commands[0].arguments
    assert parsed["no_hooks"]
    assert (parsed["power_limit"], parsed["gpus"]) == ("150", "0,1")
    for name in ("rate_hz", "name", "group", "gco2_per_kwh", "epochs"):
        assert parsed[name] == options[name]
    assert [list(parsed[name]) for name in ("tags", "budgets")] == [["a", "b"], ["2kWh:stop"]]


def test_different_limits_per_board_are_not_in_the_command():
    settings = {"gpu0": {"power_limit_w": 150.0}, "gpu1": {"power_limit_w": 200.0}}
    assert "--power-limit" not in rerun_command(replace(MANIFEST, options={"settings": settings}))


def test_a_run_that_did_not_start_has_no_command():
    assert not rerun_command(replace(MANIFEST, commands=()))

"""The command that does it again: what to type for a run or a sweep as it was recorded."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from joulewise.data.sweeps import KNOB_KEYS, knob_option
from joulewise.store.manifest import Manifest
from joulewise.sweep.spec import SimulationSpec, SweepSpec

_RUN: Final = {
    "rate_hz": "--rate",
    "name": "--name",
    "tags": "--tag",
    "group": "--group",
    "budgets": "--budget",
    "gco2_per_kwh": "--gco2-per-kwh",
    "price_per_kwh": "--price-per-kwh",
    "epochs": "--epochs",
    "baseline_s": "--baseline",
    "cpu_tdp_w": "--cpu-tdp",
}
_SWEEP: Final = {
    "repeat": "--repeat",
    "seed": "--seed",
    "warm_up": "--warm-up",
    "cool_down": "--cool-down",
    "each_gpu": "--each-gpu",
    "max_slowdown": "--max-slowdown",
    "timeout_s": "--timeout",
    "adaptive": "--adaptive",
    "by": "--by",
    "boundary": "--boundary",
    "overhead_w": "--overhead-w",
    "pue": "--pue",
    "on": "--on",
    "rate_hz": "--rate",
    "force": "--force",
    "name": "--name",
}
_IN_A_FILE: Final = {"constraints": "constraints", "environ": "variables", "cwd": "working folder"}


def run_again(manifest: Manifest) -> str:
    """What was measured, measured again with the same options and settings; else nothing."""
    if not manifest.commands:
        return ""
    arguments = manifest.commands[0].arguments
    if "simulated" in manifest.options:  # it is a command of ours already
        return shlex.join(arguments)
    options = manifest.options
    given = [*_options(options, _RUN, {}), *_settings(options.get("settings") or {})]
    hooks = [] if options.get("hooks", True) else ["--no-hooks"]
    return shlex.join(["joulewise", "run", *given, *hooks, "--", *arguments])


def sweep_again(told: Mapping[str, Any]) -> tuple[str, str]:
    """From a sweep's ``asked``: the command, and what only a file of sweeps could say besides."""
    asked = SweepSpec.from_json(told)
    own = (
        word
        for name, values in asked.axes.items()
        for word in (
            (knob_option(name), values) if name in KNOB_KEYS else ("--set", f"{name}={values}")
        )
    )
    reference = (
        word
        for name, value in asked.reference.items()
        for word in ("--reference", f"{name}={value}")
    )
    usual = {each.name: each.default for each in fields(SweepSpec)}
    words = [
        *_simulated(asked.simulated),
        *own,
        *reference,
        *_options(vars(asked), _SWEEP, usual),
        *(["--gpu", ",".join(map(str, asked.gpus))] if asked.gpus else []),
        *([] if asked.tolerance is None else ["--tolerance", _number(100 * asked.tolerance)]),
        *([] if asked.hooks else ["--no-hooks"]),
        *(["--", *asked.command] if asked.command else []),
    ]
    besides = [what for name, what in _IN_A_FILE.items() if getattr(asked, name)]
    return shlex.join(["joulewise", "sweep", *words]), " and ".join(besides)


def _options(
    told: Mapping[str, Any], names: Mapping[str, str], usual: Mapping[str, Any]
) -> Iterator[str]:
    """Those that differ from what they are if nobody says."""
    for name, option in names.items():
        value = told.get(name)
        if not value or value == usual.get(name):
            continue
        if value is True:
            yield option
            continue
        for each in value if isinstance(value, list | tuple) else (value,):
            yield from (option, each if isinstance(each, str) else _number(each))


def _settings(settings: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Knobs that were turned alike; where each board got its own value, no one option says so."""
    kinds = {
        "gpu": ("power_limit_w", "sm_clock_mhz", "mem_clock_mhz"),
        "cpu": ("power_limit_w",),
    }
    gpus = [key.removeprefix("gpu") for key in settings if key.startswith("gpu")]
    for kind, knobs in kinds.items():
        mine = [values for key, values in settings.items() if key.startswith(kind)]
        for knob in knobs:
            values = {each.get(knob) for each in mine}
            if len(values) == 1 and (value := values.pop()) is not None:
                yield from (knob_option("cpu_limit_w" if kind == "cpu" else knob), _number(value))
    if gpus:
        yield from ("--gpu", ",".join(gpus))


def _simulated(told: SimulationSpec | None) -> Iterator[str]:
    if told is None:
        return
    yield from ("--sim", told.gpu)
    if told.workload:
        yield from ("--workload", told.workload)
    if told.like:
        yield from ("--like", told.like)
    if told.run_noise is not None:
        yield from ("--run-noise", _number(100 * told.run_noise))


def _number(value: float) -> str:
    return f"{value:.10g}"

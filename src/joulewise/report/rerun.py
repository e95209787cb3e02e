"""The command line that repeats a recorded run or sweep."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from joulewise.data.sweeps import CONTROL_KEYS, control_option
from joulewise.session.request import Request
from joulewise.store.manifest import Manifest
from joulewise.sweep.spec import SimulationSpec, SweepSpec

# Options by the names of values in a manifest, and of a sweep's spec.
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


def rerun_command(manifest: Manifest) -> str:
    """The command with the same options and settings; empty where no command was recorded."""
    if not manifest.commands:
        return ""
    arguments = manifest.commands[0].arguments
    if "simulated" in manifest.options:  # its command is one of joulewise already
        return shlex.join(arguments)
    options = manifest.options
    defaults = {field.name: field.default for field in fields(Request)}
    given = [*_options(options, _RUN, defaults), *_settings(options.get("settings") or {})]
    hooks = [] if options.get("hooks", True) else ["--no-hooks"]
    return shlex.join(["joulewise", "run", *given, *hooks, "--", *arguments])


def rerun_sweep_command(asked_json: Mapping[str, Any]) -> tuple[str, str]:
    """The command of a sweep, from its ``asked``; and what only a sweep file could add to it."""
    asked = SweepSpec.from_json(asked_json)
    axes = (
        word
        for name, values in asked.axes.items()
        for word in (
            (control_option(name), values)
            if name in CONTROL_KEYS
            else ("--set", f"{name}={values}")
        )
    )
    reference = (
        word
        for name, value in asked.reference.items()
        for word in ("--reference", f"{name}={value}")
    )
    defaults = {field.name: field.default for field in fields(SweepSpec)}
    words = [
        *_simulated(asked.simulated),
        *axes,
        *reference,
        *_options(vars(asked), _SWEEP, defaults),
        *(["--gpu", ",".join(map(str, asked.gpus))] if asked.gpus else []),
        *([] if asked.tolerance is None else ["--tolerance", _number(100 * asked.tolerance)]),
        *([] if asked.hooks else ["--no-hooks"]),
        *(["--", *asked.command] if asked.command else []),
    ]
    in_file = [what for name, what in _IN_A_FILE.items() if getattr(asked, name)]
    return shlex.join(["joulewise", "sweep", *words]), " and ".join(in_file)


def _options(
    values: Mapping[str, Any], names: Mapping[str, str], defaults: Mapping[str, Any]
) -> Iterator[str]:
    """The options, by ``names``, whose values differ from their defaults."""
    for name, option in names.items():
        value = values.get(name)
        # Numbers that were given are kept, zeros too; of the rest, what is empty was not.
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value == defaults.get(name) or not (value or is_number):
            continue
        if value is True:
            yield option
            continue
        for item in value if isinstance(value, list | tuple) else (value,):
            yield from (option, item if isinstance(item, str) else _number(item))


def _settings(settings: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Settings that all boards had in common; one option cannot give each its own value."""
    kinds = {
        "gpu": ("power_limit_w", "sm_clock_mhz", "mem_clock_mhz"),
        "cpu": ("power_limit_w",),
    }
    gpus = [key.removeprefix("gpu") for key in settings if key.startswith("gpu")]
    for kind, controls in kinds.items():
        boards = [values for key, values in settings.items() if key.startswith(kind)]
        for control in controls:
            values = {board.get(control) for board in boards}
            if len(values) == 1 and (value := values.pop()) is not None:
                yield from (
                    control_option("cpu_limit_w" if kind == "cpu" else control),
                    _number(value),
                )
    if gpus:
        yield from ("--gpu", ",".join(gpus))


def _simulated(spec: SimulationSpec | None) -> Iterator[str]:
    if spec is None:
        return
    yield from ("--sim", spec.gpu)
    if spec.workload:
        yield from ("--workload", spec.workload)
    if spec.like:
        yield from ("--like", spec.like)
    if spec.run_noise is not None:
        yield from ("--run-noise", _number(100 * spec.run_noise))


def _number(value: float) -> str:
    return f"{value:.10g}"

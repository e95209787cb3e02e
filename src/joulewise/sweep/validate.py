"""Checks of a sweep's spec before its first run."""

from __future__ import annotations

import keyword
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from joulewise.data.sweeps import CONTROL_AXES, Setting
from joulewise.errors import UsageError
from joulewise.metrics.boundary import BOUNDARIES
from joulewise.metrics.metric import Reference, parse
from joulewise.process.child import find_program
from joulewise.sweep.runners.cool_down import parse_cool_down
from joulewise.sweep.spec import SimulationSpec, SweepSpec, names_in, render


def check_placeholders(texts: Iterable[str], axes: Iterable[str]) -> None:
    """Raise a UsageError for a placeholder without an axis, or an axis without a placeholder."""
    known, used = list(axes), set[str]()
    for text in texts:
        for name in sorted(names_in(text)):
            if name not in known:
                known_text = f"there are {', '.join(known)}" if known else "there are none"
                raise UsageError(
                    f"no values for {{{name}}} in {text!r}",
                    f"give some: --set {name}=A,B ({known_text}); "
                    f"to keep the braces: {{{{{name}}}}}",
                )
            used.add(name)
    for name in known:
        if name not in used:
            raise UsageError(
                f"{name} is not used in the command",
                f"put {{{name}}} where its value belongs, as in: -- python train.py {{{name}}}",
            )


BATCH_SIZE: Final = "batch_size"
EPOCHS: Final = "epochs"
SIMULATED: Final = (BATCH_SIZE, EPOCHS)  # the parameters of a simulated workload


def check(spec: SweepSpec) -> None:
    """Check a spec as far as it can be without knowing the boards.

    Raises:
        UsageError: something is missing, out of range or contradictory.
    """
    if not spec.axes:
        raise UsageError(
            "there is nothing to sweep", "give values to try, such as --power-limit 150:300:25"
        )
    for name in spec.axes:
        is_name = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
        if name not in CONTROL_AXES and not is_name:
            raise UsageError(
                f"{name!r} cannot name an axis", "use letters, digits and _, as in batch_size"
            )
    _check_numbers(spec)
    if spec.boundary not in BOUNDARIES:
        raise UsageError(
            f"no such boundary: {spec.boundary!r}", f"use one of {', '.join(BOUNDARIES)}"
        )
    parse_cool_down(spec.cool_down)
    if spec.on:
        _check_cluster(spec)
    if spec.simulated and spec.command:
        raise UsageError("both a command and --sim were given", "use one of them")
    if spec.simulated:
        _check_simulated(spec, spec.simulated)
    elif not spec.command:
        raise UsageError(
            "no command to run", "put it after --, as in: -- python train.py; or give --sim"
        )
    else:
        own = [name for name in spec.axes if name not in CONTROL_AXES]
        texts = [*spec.command, *spec.environ.values(), spec.cwd]
        _check_texts([*texts, *spec.environ, *spec.axes.values()], spec.environ)
        check_placeholders(texts, own)


def check_metrics(spec: SweepSpec, max_power_w: float | None) -> None:
    """Raise a UsageError for a metric that cannot be computed on boards of this power limit."""
    for text in spec.by:
        parse(text).rule(1.0, 1.0, Reference(1.0, 1.0, max_power_w))


def _check_cluster(spec: SweepSpec) -> None:
    if spec.on != "ray" and not spec.on.startswith("ray://"):
        raise UsageError(f"--on {spec.on} is unknown", "use ray, or ray://HEAD:10001")
    if spec.simulated:
        raise UsageError(
            "both --on and --sim were given", "virtual time needs no cluster: omit --on"
        )
    if spec.gpus or spec.each_gpu:
        raise UsageError(
            "--gpu and --each-gpu are for this machine", "on a cluster every run has one GPU"
        )


def check_command(spec: SweepSpec, settings: Iterable[Setting], environ: Mapping[str, str]) -> None:
    """Raise a UsageError where the command cannot be started with some setting."""
    if spec.simulated:
        _check_counts({pair for setting in settings for pair in setting.words.items()})
        return
    seen = set()
    for setting in settings:
        words = setting.words
        folder, program = render(spec.cwd, words), render(spec.command[0], words)
        path = render(spec.environ.get("PATH", ""), words) or environ.get("PATH", os.defpath)
        if (folder, program, path) in seen:
            continue
        seen.add((folder, program, path))
        # A cluster's nodes have folders and programs of their own.
        if not spec.on:
            _check_program(folder, program, path)


def _check_program(folder: str, program: str, path: str) -> None:
    if folder and not Path(folder).is_dir():
        raise UsageError(f"there is no folder {folder}", "make it, or change cwd")
    if not program:
        raise UsageError("the name of the program is empty", "name a program")
    find_program(os.path.join(folder, program) if os.sep in program else program, path)  # noqa: PTH118  # "./a" stays so


def _check_simulated(spec: SweepSpec, simulated: SimulationSpec) -> None:
    from joulewise.simulate.boards import load_board
    from joulewise.simulate.workloads import load_workload

    board = load_board(simulated.gpu)
    if bool(simulated.workload) == bool(simulated.like):
        raise UsageError(
            "--sim needs either a workload or a run to be like",
            "add --workload resnet50, or --like RUN",
        )
    if simulated.workload:
        load_workload(simulated.workload, board)
    noise = simulated.run_noise
    if noise is not None and not 0 <= noise < 1:
        raise UsageError(f"the run noise is {noise:g}", "give a share, as in 0.01 for 1 %")
    for name in spec.axes:
        if name not in {*CONTROL_AXES, *SIMULATED}:
            raise UsageError(
                f"a simulated workload has no {name}",
                f"its parameters are {' and '.join(SIMULATED)}",
            )


def _check_texts(texts: Iterable[str], variables: Iterable[str]) -> None:
    """Raise a UsageError for arguments and variables that no program can be started with."""
    if any("\0" in text for text in texts):
        raise UsageError("an argument contains a zero byte", "remove it")
    for name in variables:
        if not name or "=" in name:
            raise UsageError(f"{name!r} cannot name a variable", "use a name without =")


def _check_numbers(spec: SweepSpec) -> None:
    for value, least, what in (
        (spec.repeat, 1, "number of repetitions"),
        (spec.warm_up, 0, "number of warm-up runs"),
        (spec.max_slowdown, 1, "maximum slowdown"),
        (spec.pue, 1, "PUE"),
        (spec.overhead_w, 0, "overhead in W"),
    ):
        if value is not None and not (math.isfinite(value) and value >= least):
            raise UsageError(f"the {what} is {value:g}", f"it must be {least} or more")
    for positive, what in (
        (spec.timeout_s, "timeout in s"),
        (spec.tolerance, "tolerance"),
        (spec.rate_hz, "rate in Hz"),
    ):
        if positive is not None and not (math.isfinite(positive) and positive > 0):
            raise UsageError(f"the {what} is {positive:g}", "it must be more than 0")


def _check_counts(words: Iterable[tuple[str, str]]) -> None:
    for name, word in words:
        with suppress(ValueError):
            if int(word) > 0:
                continue
        raise UsageError(f"{name} is {word}", "use whole numbers of 1 or more")

"""What can be wrong with a sweep, told before its first run.

The command's own parameters, put into it in place of their names: ``--batch-size {batch_size}``.

Only a name in braces is such a place, so that braces of the command's own stay as they are: those
of JSON (``{"a": 1}``), of the shell (``${HOME}``, ``{a,b}``), and of ``find`` (``{}``). Where a
name in braces must stay, the braces are doubled: ``{{print}}``.
"""

from __future__ import annotations

import keyword
import math
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from joulewise.data.sweeps import KNOBS, Setting
from joulewise.errors import UsageError
from joulewise.metrics.boundary import BOUNDARIES
from joulewise.metrics.metric import Reference, parse
from joulewise.process.child import find_program
from joulewise.sweep.runners.cool_down import parse_cool_down
from joulewise.sweep.spec import SimulationSpec, SweepSpec

_PLACE: Final = re.compile(r"(?<![${])(?P<open>\{+)(?P<name>[A-Za-z_]\w*)(?P<close>\}+)", re.ASCII)


def render(text: str, values: Mapping[str, str]) -> str:
    """The text with each ``{name}`` replaced, and one pair of doubled braces taken away."""

    def put(found: re.Match[str]) -> str:
        opened, name, closed = found["open"], found["name"], found["close"]
        if not _is_escaped(found):
            return f"{opened[1:]}{values[name]}{closed[1:]}"
        return f"{opened[1:]}{name}{closed[1:]}"

    return _PLACE.sub(put, text)


def names_in(text: str) -> set[str]:
    """The names that have a place in it."""
    return {found["name"] for found in _PLACE.finditer(text) if not _is_escaped(found)}


def check_places(texts: Iterable[str], axes: Iterable[str]) -> None:
    """Whether every place has an axis, and every axis a place."""
    known, used = list(axes), set[str]()
    for text in texts:
        for name in sorted(names_in(text)):
            if name not in known:
                there = f"there are {', '.join(known)}" if known else "there are none"
                raise UsageError(
                    f"no values for {{{name}}} in {text!r}",
                    f"give some: --set {name}=A,B ({there}); to keep the braces: {{{{{name}}}}}",
                )
            used.add(name)
    for name in known:
        if name not in used:
            raise UsageError(
                f"the command never sees {name}",
                f"put {{{name}}} where its value belongs, as in: -- python train.py {{{name}}}",
            )


def _is_escaped(found: re.Match[str]) -> bool:
    return min(len(found["open"]), len(found["close"])) > 1


BATCH_SIZE: Final = "batch_size"
EPOCHS: Final = "epochs"
SIMULATED: Final = (BATCH_SIZE, EPOCHS)
"""The parameters that a simulated workload has."""


def check(asked: SweepSpec) -> None:
    """What is wrong with it whatever the boards."""
    if not asked.axes:
        raise UsageError(
            "there is nothing to sweep", "give an axis, such as --power-limit 150:300:25"
        )
    for name in asked.axes:
        is_word = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
        if name not in KNOBS and not is_word:
            raise UsageError(
                f"{name!r} is no name for an axis", "take letters, digits and _, as in batch_size"
            )
    _check_numbers(asked)
    if asked.boundary not in BOUNDARIES:
        raise UsageError(
            f"no such boundary: {asked.boundary!r}", f"take one of {', '.join(BOUNDARIES)}"
        )
    parse_cool_down(asked.cool_down)
    if asked.on:
        _check_cluster(asked)
    if asked.simulated and asked.command:
        raise UsageError("both a command and --sim", "give the one or the other")
    if asked.simulated:
        _check_simulated(asked, asked.simulated)
    elif not asked.command:
        raise UsageError(
            "no command to run", "put it after --, as in: -- python train.py; or give --sim"
        )
    else:
        own = [name for name in asked.axes if name not in KNOBS]
        texts = [*asked.command, *asked.environ.values(), asked.cwd]
        _check_texts([*texts, *asked.environ, *asked.axes.values()], asked.environ)
        check_places(texts, own)


def check_metrics(asked: SweepSpec, max_power_w: float | None) -> None:
    """Whether they can be told of such boards."""
    for text in asked.by:
        parse(text).rule(1.0, 1.0, Reference(1.0, 1.0, max_power_w))


def _check_cluster(asked: SweepSpec) -> None:
    if asked.on != "ray" and not asked.on.startswith("ray://"):
        raise UsageError(f"--on {asked.on} is nowhere", "take ray, or ray://HEAD:10001")
    if asked.simulated:
        raise UsageError("both --on and --sim", "virtual time needs no cluster: leave out --on")
    if asked.gpus or asked.each_gpu:
        raise UsageError(
            "--gpu and --each-gpu are for this machine", "on a cluster every run has one GPU"
        )


def check_command(
    asked: SweepSpec, settings: Iterable[Setting], environ: Mapping[str, str]
) -> None:
    """Whether the command can be started with every setting."""
    if asked.simulated:
        _check_counts({each for setting in settings for each in setting.words.items()})
        return
    seen = set()
    for setting in settings:
        words = setting.words
        folder, program = render(asked.cwd, words), render(asked.command[0], words)
        path = render(asked.environ.get("PATH", ""), words) or environ.get("PATH", os.defpath)
        if (folder, program, path) in seen:
            continue
        seen.add((folder, program, path))
        # A cluster's nodes have folders and programs of their own.
        if not asked.on:
            _check_program(folder, program, path)


def _check_program(folder: str, program: str, path: str) -> None:
    if folder and not Path(folder).is_dir():
        raise UsageError(f"there is no folder {folder}", "make it, or change cwd")
    if not program:
        raise UsageError("the command's program is an empty word", "name a program")
    find_program(os.path.join(folder, program) if os.sep in program else program, path)  # noqa: PTH118  # "./a" stays so


def _check_simulated(asked: SweepSpec, simulated: SimulationSpec) -> None:
    from joulewise.simulate.boards import load_board
    from joulewise.simulate.workloads import load_workload

    board = load_board(simulated.gpu)
    if bool(simulated.workload) == bool(simulated.like):
        raise UsageError(
            "--sim needs a workload, or a run to be like, and not both",
            "add --workload resnet50, or --like RUN",
        )
    if simulated.workload:
        load_workload(simulated.workload, board)
    noise = simulated.run_noise
    if noise is not None and not 0 <= noise < 1:
        raise UsageError(f"a run noise of {noise:g}", "give a share, as in 0.01 for 1 %")
    for name in asked.axes:
        if name not in {*KNOBS, *SIMULATED}:
            raise UsageError(
                f"a simulated workload has no {name}",
                f"of its own it has {' and '.join(SIMULATED)}",
            )


def _check_texts(texts: Iterable[str], variables: Iterable[str]) -> None:
    """What no program can be started with."""
    if any("\0" in text for text in texts):
        raise UsageError("a text with a zero byte in it", "no program can be given that")
    for name in variables:
        if not name or "=" in name:
            raise UsageError(f"{name!r} is no name of a variable", "name it without =")


def _check_numbers(asked: SweepSpec) -> None:
    for value, least, what in (
        (asked.repeat, 1, "repetitions"),
        (asked.warm_up, 0, "warm-up runs"),
        (asked.max_slowdown, 1, "times the reference's time at most"),
        (asked.pue, 1, "as PUE"),
        (asked.overhead_w, 0, "W of overhead"),
    ):
        if value is not None and not (math.isfinite(value) and value >= least):
            raise UsageError(f"{value:g} {what}", f"give {least} or more")
    for positive, what in (
        (asked.timeout_s, "s of timeout"),
        (asked.tolerance, "as tolerance"),
        (asked.rate_hz, "Hz"),
    ):
        if positive is not None and not (math.isfinite(positive) and positive > 0):
            raise UsageError(f"{positive:g} {what}", "give more than 0")


def _check_counts(words: Iterable[tuple[str, str]]) -> None:
    for name, word in words:
        with suppress(ValueError):
            if int(word) > 0:
                continue
        raise UsageError(f"a {name} of {word}", "take whole numbers of 1 or more")

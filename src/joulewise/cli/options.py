"""Numbers on the command line, refused in our words.

GPUs by their numbers, as verbs take them.

NAME=VALUE on the command line.

``--by``, ``--boundary`` and what belongs to it, for the verbs that judge settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from joulewise.errors import UsageError


class Number(click.FloatRange):
    """A number within bounds, which "nan" is not; its ``unit`` may stand behind it."""

    def __init__(self, *, unit: str = "", **bounds: Any) -> None:
        super().__init__(**bounds)
        self.unit = unit

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value).strip()
        if self.unit and text.lower().endswith(self.unit.lower()):
            text = text[: -len(self.unit)]
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            of = f" of {self.unit}" if self.unit else ""
            self.fail(f"{value!r} is not a number{of}.", param, ctx)
        return float(_within(self, number, param, ctx))


class Whole(click.IntRange):
    """A whole number within bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number.", param, ctx)
        return int(_within(self, number, param, ctx))


POSITIVE = Number(min=0, min_open=True)


def positive(unit: str) -> Number:
    return Number(min=0, min_open=True, unit=unit)


def _within(
    bounds: Number | Whole,
    number: float,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> float:
    low, high, is_open = bounds.min, bounds.max, bounds.min_open
    too_low = low is not None and (number < low or (is_open and number == low))
    if too_low or (high is not None and number > high):
        bounds.fail(f"{_figure(number)} is not {_between(low, high, is_open)}.", param, ctx)
    return number


def _between(low: float | None, high: float | None, is_open: bool) -> str:
    if low is None:
        return f"{_figure(high)} or less"
    if high is None:
        return f"above {_figure(low)}" if is_open else f"{_figure(low)} or more"
    if is_open:
        return f"above {_figure(low)} and up to {_figure(high)}"
    return f"from {_figure(low)} to {_figure(high)}"


def _figure(number: float | None) -> str:
    return f"{number:.12g}"


def numbers(gpus: str | None) -> tuple[int, ...]:
    if gpus is None:
        return ()
    parts = [part.strip().removeprefix("gpu") for part in gpus.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"{gpus!r} names no GPUs", "give their numbers, as in: --gpu 0,1")
    return tuple(int(part) for part in parts)


def pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name.strip() or not equals:
            raise UsageError(f"{option} {text!r} has no NAME=", f"as in: {option} batch_size=32")
        if name.strip() in found:
            raise UsageError(f"{option} {name.strip()} is given twice", "name all values in one")
        found[name.strip()] = value
    return found


_Command = TypeVar("_Command", bound=Callable[..., Any])

reference_option = click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="NAME=V",
    help="Of a table: what to compare with.",
)
"""For the verbs that also take measurements from elsewhere."""


def metric_options(*, boundary: str | None) -> Callable[[_Command], _Command]:
    """With what is counted if nobody says so; None where the sweep itself knows."""
    usual = "" if boundary else " [default: as the sweep was asked, else gpu]"
    options = (
        click.option(
            "--by",
            multiple=True,
            metavar="METRIC",
            help="energy, time, edp, ed2p, eds:2.0, cost:0.5, slowdown:1.1; may be repeated.",
        ),
        click.option(
            "--boundary",
            type=click.Choice(["gpu", "node", "wall"]),
            default=boundary,
            show_default=True,
            help=f"What is counted.{usual}",
        ),
        click.option(
            "--overhead-w",
            type=Number(min=0),
            metavar="W",
            help="What the rest of the node draws.",
        ),
        click.option(
            "--pue", type=Number(min=1), metavar="X", help="What the site draws for each joule."
        ),
    )

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate

"""Numbers on the command line, refused in our words."""

from __future__ import annotations

import math
from typing import Any

import click


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

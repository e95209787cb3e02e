"""Options that several verbs share, and the types of their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from joulewise.errors import UsageError

if TYPE_CHECKING:
    from joulewise.data.sweeps import Sweep
    from joulewise.metrics.boundary import View


_Command = TypeVar("_Command", bound=Callable[..., Any])


class Number(click.FloatRange):
    """A finite number within bounds, with or without its ``unit``: ``150`` or ``150W``."""

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
        return float(_check_range(self, number, param, ctx))


class Whole(click.IntRange):
    """A whole number within bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            self.fail(f"{value!r} is not a whole number.", param, ctx)
        return int(_check_range(self, number, param, ctx))


POSITIVE = Number(min=0, min_open=True)


def positive(unit: str) -> Number:
    """A number above 0 in a unit."""
    return Number(min=0, min_open=True, unit=unit)


def number_option(
    *names_and_type: Any, metavar: str = "N", **more: Any
) -> Callable[[_Command], _Command]:
    """An option with a number: its names, then its type; a default is shown in the help."""
    *names, number = names_and_type
    more = {"show_default": "default" in more, **more}
    return click.option(*names, type=number, metavar=metavar, **more)


def _check_range(
    bounds: Number | Whole,
    number: float,
    param: click.Parameter | None,
    ctx: click.Context | None,
) -> float:
    """The number; a click error where it is out of bounds."""
    low, high, is_open = bounds.min, bounds.max, bounds.min_open
    too_low = low is not None and (number < low or (is_open and number == low))
    if too_low or (high is not None and number > high):
        allowed = _describe_range(low, high, is_open)
        bounds.fail(f"must be {allowed}, not {_format(number)}.", param, ctx)
    return number


def _describe_range(low: float | None, high: float | None, is_open: bool) -> str:
    if low is None:
        return f"{_format(high)} or less"
    if high is None:
        return f"above {_format(low)}" if is_open else f"{_format(low)} or more"
    if is_open:
        return f"above {_format(low)} and at most {_format(high)}"
    return f"between {_format(low)} and {_format(high)}"


def _format(number: float | None) -> str:
    return f"{number:.12g}"


def gpu_indices(gpus: str | None) -> tuple[int, ...]:
    """The NVML indices in ``0,1`` or ``gpu0,gpu1``; empty for None."""
    if gpus is None:
        return ()
    parts = [part.strip().removeprefix("gpu") for part in gpus.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"{gpus!r} is not a list of GPUs", "give their indices, as in: --gpu 0,1")
    return tuple(int(part) for part in parts)


def parse_pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    """Names and values of an option that is given as NAME=VALUE, once for each name."""
    values: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name.strip() or not equals:
            raise UsageError(
                f"{option} {text!r} is not NAME=VALUE",
                f"write, for example: {option} batch_size=32",
            )
        if name.strip() in values:
            raise UsageError(
                f"{option} {name.strip()} is given twice", "give all of its values in one option"
            )
        values[name.strip()] = value
    return values


reference_option = click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="NAME=V",
    help="Reference setting of a CSV file of measurements; may be repeated.",
)
"""For the verbs that also read measurements from a CSV file."""


def price_option(help: str, type: Number = POSITIVE) -> Callable[[_Command], _Command]:  # noqa: A002
    """``--price``, as ``price_per_kwh``."""
    return click.option(
        "--price", "--price-per-kwh", "price_per_kwh", type=type, metavar="PRICE", help=help
    )


def carbon_option(help: str, type: Number = POSITIVE) -> Callable[[_Command], _Command]:  # noqa: A002
    """``--gco2-per-kwh``."""
    return click.option("--gco2-per-kwh", type=type, metavar="GRAMS", help=help)


cpu_tdp_option = click.option(
    "--cpu-tdp",
    "cpu_tdp_w",
    type=positive("W"),
    metavar="WATTS",
    help="TDP of the CPU in watts, used where its power cannot be read and is modelled.",
)


def metric_options(*, boundary: str | None) -> Callable[[_Command], _Command]:
    """``--by``, ``--boundary``, ``--overhead-w`` and ``--pue``, for verbs that judge settings.

    ``boundary`` is its default; None takes that of the sweep.
    """
    default_note = "" if boundary else " [default: that of the sweep, else gpu]"
    options = (
        click.option(
            "--by",
            multiple=True,
            metavar="METRIC",
            help="Metric to rank by: energy, time, edp, ed2p, eds:2.0, cost:0.5 or slowdown:1.1; "
            "may be repeated.",
        ),
        click.option(
            "--boundary",
            type=click.Choice(["gpu", "node", "wall"]),
            default=boundary,
            show_default=True,
            help="Devices to count: the GPUs, the node (with CPU and memory), or all that the wall "
            f"socket supplies.{default_note}",
        ),
        click.option(
            "--overhead-w",
            type=Number(min=0),
            metavar="W",
            help="Power of the rest of the node in watts, for --boundary wall.",
        ),
        click.option(
            "--pue",
            type=Number(min=1),
            metavar="X",
            help="Power usage effectiveness of the site, for --boundary wall.",
        ),
    )

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def view_from_options(given: Mapping[str, Any], sweep: Sweep) -> View:
    """The view by ``metric_options``; what is not given is as the sweep was started with."""
    from joulewise.metrics.boundary import View

    asked = sweep.asked
    overhead_w, pue = (
        asked.get(name) if given[name] is None else given[name] for name in ("overhead_w", "pue")
    )
    return View(given["boundary"] or asked.get("boundary", "gpu"), overhead_w=overhead_w, pue=pue)

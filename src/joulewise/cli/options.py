"""Options that several verbs share, and the types of their values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from joulewise.errors import UsageError
from joulewise.session.request import MAX_RATE_HZ, MIN_RATE_HZ

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


def all_options(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """Several options as one decorator, in the order in which the help lists them."""

    def decorate(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


recording_options = all_options(
    number_option(
        "--rate",
        "rate_hz",
        Number(min=MIN_RATE_HZ, max=MAX_RATE_HZ, unit="Hz"),
        metavar="HZ",
        help="Read power and counters so many times per second. [default: 10; with GPUs whose "
        "driver keeps samples of its own, 20 divided by their number, at least 2.5]",
    ),
    click.option("--name", metavar="NAME", help="Name the run."),
    click.option(
        "--tag",
        "tags",
        multiple=True,
        metavar="WORD",
        help="Add a word to filter runs by; may be repeated.",
    ),
    click.option(
        "--group",
        metavar="ID",
        help="Group runs that belong together; those at the same time on a node share a recorder. "
        "[default: the scheduler's job id (under Slurm with the step)]",
    ),
    click.option(
        "--no-hooks", is_flag=True, help="Do not mark epochs and steps of Python programs."
    ),
    click.option(
        "--budget",
        "budgets",
        multiple=True,
        metavar="AMOUNT[:stop]",
        help="Warn when the run exceeds an energy, time or carbon, such as 2kWh, 30min or 500gCO2; "
        "with :stop, end the command. May be repeated.",
    ),
    carbon_option("Grams of CO2 that the grid emits per kWh; adds the emissions to the result."),
    price_option("Price of a kWh, in any currency; adds the cost to the result."),
    number_option(
        "--epochs",
        Whole(min=1),
        help="Number of epochs, for the forecast. [default: as the program announces]",
    ),
    number_option(
        "--baseline",
        "baseline_s",
        Number(min=0, max=3600, unit="s"),
        metavar="SECONDS",
        default=0.0,
        show_default=False,
        help="Measure idle power for this long before the command starts. [default: 0]",
    ),
    cpu_tdp_option,
)
"""How a command is recorded: for the verbs that run one."""

gpu_options = all_options(
    click.option(
        "--gpu",
        "gpus",
        metavar="N,N...",
        help="Set only the GPUs with these NVML indices. [default: those that CMD can see]",
    ),
    click.option("--force", is_flag=True, help="Set GPUs even while other users use them."),
)
"""Which GPUs are set: for the verbs that set them while a command runs."""


def metric_options(*, boundary: str | None) -> Callable[[_Command], _Command]:
    """``--by``, which may be repeated, and ``boundary_options``, for verbs that judge settings."""
    return all_options(
        click.option(
            "--by",
            multiple=True,
            metavar="METRIC",
            help="Metric to rank by: energy, time, edp (energy times time), ed2p (energy times "
            "time squared), eds:2.0 or cost:0.5 (weighted sums of both), or slowdown:1.1 (least "
            "energy in at most 1.1 times the reference's time); may be repeated.",
        ),
        boundary_options(boundary=boundary),
    )


def boundary_options(*, boundary: str | None) -> Callable[[_Command], _Command]:
    """``--boundary``, ``--overhead-w`` and ``--pue``.

    ``boundary`` is its default; None takes that of the sweep.
    """
    default_note = "" if boundary else " [default: that of the sweep, else gpu]"
    return all_options(
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
            help="Power of the rest of the node in watts, for --boundary node or wall.",
        ),
        click.option(
            "--pue",
            type=Number(min=1),
            metavar="X",
            help="Power usage effectiveness of the site, for --boundary wall.",
        ),
    )


def view_from_options(given: Mapping[str, Any], sweep: Sweep) -> View:
    """The view by ``metric_options``; what is not given is as the sweep was started with."""
    from joulewise.metrics.boundary import View

    asked = sweep.asked
    overhead_w, pue = (
        asked.get(name) if given[name] is None else given[name] for name in ("overhead_w", "pue")
    )
    return View(given["boundary"] or asked.get("boundary", "gpu"), overhead_w=overhead_w, pue=pue)

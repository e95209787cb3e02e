"""The time axis that a run's figures share, with its epochs in the background.

The tables of a run's figures: records for the drawing, and the same as people read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.report.charts.theme import DisplayUnit
from joulewise.report.tables import Column, Table
from joulewise.units import digits, prefixed

if TYPE_CHECKING:
    import altair as alt

_MOST_EPOCHS: Final = 60  # more are hairlines
_MOST_NUMBERS: Final = 15


def timed(chart: alt.Chart, unit: DisplayUnit) -> Any:
    """With ``time`` in a unit that is easy to read, from the records' ``t_s``."""
    return chart.transform_calculate(time=unit.expression("t_s"))


def time_axis(unit: DisplayUnit, *, bare: bool = False) -> alt.X:
    """``bare`` is what stands above another with the same axis."""
    import altair as alt

    drawn = alt.Axis(title=f"time ({unit.name})", tickCount=8)
    if bare:
        drawn = alt.Axis(title=None, labels=False, ticks=False, tickCount=8)
    return alt.X("time:Q").axis(drawn).scale(nice=False, domainMin=0)


def banded(base: Any, x: alt.X, mean: alt.Y, low: alt.Y, high: str, *, lone: bool) -> list[Any]:
    """The mean with a band from the lowest to the highest; a lone reading is a point with a bar."""
    if lone:
        return [
            base.mark_rule(style="interval").encode(x=x, y=low, y2=high),
            base.mark_point(style="mean").encode(x=x, y=mean),
        ]
    return [
        base.mark_area(style="band").encode(x=x, y=low, y2=high),
        base.mark_line().encode(x=x, y=mean),
    ]


def are_shaded(epochs: int) -> bool:
    """Whether so many can be told apart, and there is more than one."""
    return 1 < epochs <= _MOST_EPOCHS


def epoch_bands(epochs: int, unit: DisplayUnit, x: alt.X) -> list[Any]:
    """Every other epoch shaded, from the table ``epochs``."""
    if not are_shaded(epochs):
        return []
    return [_odd_epochs(unit).mark_rect(style="stretch").encode(x=x, x2="until:Q")]


def epoch_numbers(epochs: int, unit: DisplayUnit) -> list[Any]:
    """Where there is room for them."""
    import altair as alt

    if not 1 < epochs <= _MOST_NUMBERS:
        return []
    numbers = _odd_epochs(unit).mark_text(style="note", align="left", baseline="top", dx=3, dy=2)
    return [numbers.encode(x=time_axis(unit), y=alt.value(0), text="label:N")]


def _odd_epochs(unit: DisplayUnit) -> Any:
    import altair as alt

    data = alt.Chart(alt.NamedData("epochs")).transform_filter("datum.epoch % 2 == 1")
    return data.transform_calculate(
        time=unit.expression("start_s"),
        until=unit.expression("end_s"),
        label="'epoch ' + datum.epoch",
    )


if TYPE_CHECKING:
    from numpy.typing import NDArray

Record = Mapping[str, float | str | None]
_SOME: Final = 3
_NOTHING: Final = digits(0.0)
_PREFIXES: Final = {"G": 1e9, "M": 1e6, "k": 1e3, "m": 1e-3}


def record_table(title: str, columns: Mapping[str, Column], records: Iterable[Record]) -> Table:
    """Each field of the records that has a column is a cell; the others are for the drawing."""
    told = tuple(records)
    rows = tuple(tuple(_cell(record.get(name)) for name in columns) for record in told)
    return Table(title, tuple(columns.values()), rows, told)


def columns_as_records(columns: Mapping[str, NDArray[Any]], **same: float | str) -> list[Record]:
    """A record for each place in arrays of one length."""
    names = list(columns)
    lists = [[finite(value) for value in columns[name].tolist()] for name in names]
    return [{**same, **dict(zip(names, row, strict=True))} for row in zip(*lists, strict=True)]


def thinned_records(columns: Mapping[str, NDArray[Any]], **same: float | str) -> list[Record]:
    """The same of readings, with six digits: no pixel shows more, and a page is half as large."""
    told = {name: np.array([float(f"{v:.6g}") for v in vs]) for name, vs in columns.items()}
    return columns_as_records(told, **same)


def finite(value: float | None) -> float | None:
    """None is what is not a number."""
    return None if value is None or not math.isfinite(value) else value


def known(records: Iterable[Record], *names: str) -> list[Record]:
    """Those in which all of these are."""
    return [record for record in records if all(record.get(name) is not None for name in names)]


def _cell(value: float | str | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) else digits(value)


def spread(values: Sequence[float], unit: str) -> str:
    """``14.8 kJ (standard deviation 0.03 kJ)``: the mean, and how far some of them scatter.

    Not written with ±, which everywhere is the half-width of a 95 % interval.
    """
    number, _, prefixed_unit = prefixed(mean(values), unit).rpartition(" ")
    per_unit = _PREFIXES.get(prefixed_unit.removesuffix(unit), 1.0)
    apart = digits(stdev(values) / per_unit) if len(values) >= _SOME else _NOTHING
    scatter = "" if apart == _NOTHING else f" (standard deviation {apart} {prefixed_unit})"
    return f"{number} {prefixed_unit}{scatter}"


def listed(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))

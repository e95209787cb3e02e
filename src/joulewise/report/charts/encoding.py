"""What figures have in common: units, axes, series, and layers such as bands and intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, Final

from joulewise.data.sweeps import POWER_LIMIT
from joulewise.report.charts.chart import alt
from joulewise.units import digits

DASHES: Final = ([1, 0], [6, 3], [2, 2], [9, 3, 2, 3], [15, 5], [5, 2, 1, 2, 1, 2], [1, 3])
SHAPES: Final = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "wedge")
MAX_SERIES: Final = len(DASHES)
"""Series that can be told apart in one figure."""

WATTS: Final = f"datum['{POWER_LIMIT}'] + ' W'"
"""Vega expression: the power limit of a record as text."""

QUANTITIES: Final = {"energy_j": "energy", "time_s": "time"}
"""Fields that are drawn side by side, and their names on the axes."""

_LONGEST_OF_THREE: Final = 9  # letters of a name in three columns of a legend 290 px wide
_DASH_SAMPLE_PX2: Final = 450  # area of a legend's sample, long enough to show the longest dash
# More epochs than these are too narrow to shade, or to number (both chosen for a plot of 600 px).
_MAX_SHADED_EPOCHS, _MAX_NUMBERED_EPOCHS = 60, 15


@dataclass(frozen=True)
class DisplayUnit:
    """A unit that is easy to read; records are in SI units, of which ``of`` make one of these."""

    name: str
    of: float = 1.0

    def expression(self, field: str) -> str:
        """Vega expression (for ``transform_calculate``) of a record's field in this unit."""
        return f"datum['{field}'] / {self.of!r}"

    def format(self, value: float) -> str:
        return digits(value / self.of)


def energy_unit(largest_j: float) -> DisplayUnit:
    """J to GJ, by the largest value on the axis."""
    return _prefixed_unit(largest_j, "J")


def edp_unit(largest_j_s: float) -> DisplayUnit:
    """The same for the energy-delay product."""
    return _prefixed_unit(largest_j_s, "J s")


def time_unit(largest_s: float) -> DisplayUnit:
    """Seconds to days, by the largest value on the axis."""
    for name, of in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if largest_s >= 3 * of:
            return DisplayUnit(name, of)
    return DisplayUnit("s")


def _prefixed_unit(largest: float, unit: str) -> DisplayUnit:
    for prefix, of in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if largest >= 2 * of:
            return DisplayUnit(f"{prefix}{unit}", of)
    return DisplayUnit(unit)


def display_units(records: Iterable[Mapping[str, Any]]) -> dict[str, DisplayUnit]:
    """Units for the fields ``energy_j`` and ``time_s``, each only where a record has a value."""
    records, units = list(records), {}
    for field, choose_unit in (("energy_j", energy_unit), ("time_s", time_unit)):
        values = [record[field] for record in records if record[field] is not None]
        if values:
            units[field] = choose_unit(max(values))
    return units


def encode_colour(field: str, names: Sequence[str], title: str = "") -> dict[str, Any]:
    """Series by colour alone, for marks that are labelled, such as bars."""
    scale = alt.Scale(domain=list(names))
    return {"color": alt.Color(f"{field}:N", scale=scale, legend=_legend(names, title))}


def encode_points(field: str, names: Sequence[str], title: str = "") -> dict[str, Any]:
    """Series by colour and shape."""
    scale = alt.Scale(domain=list(names), range=list(islice(cycle(SHAPES), len(names))))
    shape = alt.Shape(f"{field}:N", scale=scale, legend=_legend(names, title))
    return {**encode_colour(field, names, title), "shape": shape}


def encode_lines(field: str, names: Sequence[str], title: str = "") -> dict[str, Any]:
    """Series by colour and dash."""
    scale = alt.Scale(domain=list(names), range=list(islice(cycle(DASHES), len(names))))
    legend = _legend(names, title, symbolType="stroke", symbolSize=_DASH_SAMPLE_PX2)
    return {
        "color": alt.Color(f"{field}:N", scale=alt.Scale(domain=list(names)), legend=legend),
        "strokeDash": alt.StrokeDash(f"{field}:N", scale=scale, legend=legend),
    }


def encode_fill(field: str, names: Sequence[str]) -> alt.Fill:
    """Series by fill, without a legend: in the colours' legend a fill would hide the dashes."""
    return alt.Fill(f"{field}:N", scale=alt.Scale(domain=list(names)), legend=None)


def layer_with_fill(*layers: Any) -> Any:
    """Layers whose fill (:func:`encode_fill`) is kept out of the legend of their colours."""
    layered: Any = alt.layer(*layers)
    return layered.resolve_scale(fill="independent").resolve_legend(fill="independent")


def _legend(names: Sequence[str], title: str, **more: Any) -> Any:
    """As many columns as fit a telephone, with no name alone in the last row where possible."""
    is_long = max(map(len, names), default=0) > _LONGEST_OF_THREE
    columns = 2 if is_long or len(names) in {2, 4} else 3
    return alt.Legend(title=title or None, columns=columns, **more)


def data_layer(table: str, **calculated: str) -> Any:
    """Altair chart over the records of a table, with fields calculated by Vega expressions."""
    base: Any = alt.Chart(alt.NamedData(table))
    return base.transform_calculate(**calculated) if calculated else base


def reference_line(table: str, axis: str) -> Any:
    """A line at 1, the ratio of the reference to itself, on the axis ``x`` or ``y``."""
    at_one = alt.XDatum(1) if axis == "x" else alt.YDatum(1)
    return data_layer(table).mark_rule(style="reference").encode(**{axis: at_one})


def interval_layer(
    base: Any, axis: str, low: str, high: str, *, clip: bool = False, **encoded: Any
) -> Any:
    """Bars from one field to another along the axis ``x`` or ``y``, cut off at it if ``clip``."""
    bars = base.mark_rule(style="interval", **({"clip": True} if clip else {}))
    start = (alt.X if axis == "x" else alt.Y)(f"{low}:Q")
    return bars.encode(**{axis: start, f"{axis}2": f"{high}:Q"}, **encoded)


def band_layers(
    base: Any,
    x: alt.X,
    fields: tuple[str, str, str],
    title: str,
    *,
    is_single: bool = False,
    **options: Any,
) -> list[Any]:
    """A line of the mean in a band; ``fields`` are the low end, the mean and the high end.

    A single reading (``is_single``) is a point with a bar. ``options`` are of the y axis.
    """
    low, mean = (alt.Y(f"{field}:Q", **options).title(title) for field in fields[:2])
    high = f"{fields[2]}:Q"
    if is_single:
        return [
            base.mark_rule(style="interval").encode(x=x, y=low, y2=high),
            base.mark_point(style="mean").encode(x=x, y=mean),
        ]
    return [
        base.mark_area(style="band").encode(x=x, y=low, y2=high),
        base.mark_line().encode(x=x, y=mean),
    ]


def limit_axis() -> alt.X:
    """Power limits from left to right."""
    scale = alt.Scale(zero=False, nice=False, padding=14)
    return alt.X(f"{POWER_LIMIT}:Q").title("power limit (W)").scale(scale).axis(tickCount=4)


def time_layer(table: str, unit: DisplayUnit, **calculated: str) -> Any:
    """:func:`data_layer` with ``time``, the field ``t_s`` in a unit that is easy to read."""
    return data_layer(table, time=unit.expression("t_s"), **calculated)


def time_axis(unit: DisplayUnit, *, is_bare: bool = False) -> alt.X:
    """The field ``time``; ``is_bare`` where a panel below has the same axis with its labels."""
    axis = alt.Axis(title=f"time ({unit.name})", tickCount=8)
    if is_bare:
        axis = alt.Axis(title=None, labels=False, ticks=False, tickCount=8)
    return alt.X("time:Q").axis(axis).scale(nice=False, domainMin=0)


def are_shaded(epochs: int) -> bool:
    """Whether so many epochs are shaded: more than one, and wide enough to be seen."""
    return 1 < epochs <= _MAX_SHADED_EPOCHS


def epoch_bands(epochs: int, unit: DisplayUnit, x: alt.X) -> list[Any]:
    """Every other epoch shaded, from the table ``epochs``."""
    if not are_shaded(epochs):
        return []
    return [_odd_epochs(unit).mark_rect(style="stretch").encode(x=x, x2="until:Q")]


def epoch_numbers(epochs: int, unit: DisplayUnit) -> list[Any]:
    """Every other epoch numbered at the top, where that leaves the numbers apart."""
    if not 1 < epochs <= _MAX_NUMBERED_EPOCHS:
        return []
    numbers = _odd_epochs(unit).mark_text(style="note", align="left", baseline="top", dx=3, dy=2)
    return [numbers.encode(x=time_axis(unit), y=alt.value(0), text="label:N")]


def _odd_epochs(unit: DisplayUnit) -> Any:
    return (
        data_layer("epochs")
        .transform_filter("datum.epoch % 2 == 1")
        .transform_calculate(
            time=unit.expression("start_s"),
            until=unit.expression("end_s"),
            label="'epoch ' + datum.epoch",
        )
    )

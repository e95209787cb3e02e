"""Heat, clocks, use and what held the clocks down, one below the other on one time axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.analyse.curves.run import RunCurves
from joulewise.analyse.curves.sensors import SensorCourses
from joulewise.analyse.curves.thin import Envelope
from joulewise.data import Quantity
from joulewise.report.charts.axes import Unit, time_unit
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.run_tables import (
    Record,
    finite,
    known,
    listed,
    record_table,
    thinned_records,
)
from joulewise.report.charts.run_time import banded, time_axis, timed
from joulewise.report.charts.series import dashed
from joulewise.report.tables import Column
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    import altair as alt

_PANELS: Final = {
    Quantity.TEMPERATURE: "temperature (°C)",
    Quantity.SM_CLOCK: "SM clock (MHz)",
    Quantity.GPU_UTILISATION: "utilisation (%)",
}
_ROOM_C: Final = 20.0
_MOST: Final = 7  # lines that can be told apart
_SERIES: Final = {
    "device": Column("device", right=False),
    "quantity": Column("quantity", right=False),
    "t_s": Column("time", "s"),
    "mean": Column("mean"),
    "low": Column("lowest"),
    "high": Column("highest"),
}
_SUMMARY: Final = {
    "device": Column("device", right=False),
    "temperature_c": Column("temperature", "°C"),
    "temperature_max_c": Column("highest", "°C"),
    "sm_clock_mhz": Column("SM clock", "MHz"),
    "gpu_utilisation_pct": Column("utilisation", "%"),
    "held_down": Column("clocks held down by", right=False),
}
_REASONS: Final = {
    "reason": Column("reason", right=False),
    "t_s": Column("time", "s"),
    "end_s": Column("until", "s"),
    "share_pct": Column("share of the looks", "%"),
}


def sensor_charts(curves: RunCurves) -> Iterator[Chart]:
    gpus = {one.key: one.sensors for one in curves.gpus if one.sensors and one.sensors.columns}
    records = [record for key, one in gpus.items() for record in _series(curves, key, one)]
    drawn = [q for q in _PANELS if any(record["quantity"] == q.value for record in records)]
    if not drawn:
        return
    summary = [_summary(key, one) for key, one in gpus.items()]
    keys = list(gpus)[:_MOST]
    reasons = list(_reasons(curves, gpus[keys[0]]))
    of = f" of {keys[0]}" if len(gpus) > 1 else ""
    more = f" Of {len(gpus)} GPUs the first {len(keys)} are drawn." if len(gpus) > _MOST else ""
    yield Chart(
        key="sensors",
        title=_title(summary),
        description=(
            f"Over time: {listed([_PANELS[q].rpartition(' ')[0] for q in drawn])}, as "
            "the driver tells them about once a second."
            + (" The band goes from the lowest reading to the highest." if len(gpus) == 1 else "")
            + (
                f" Below, the share of the looks at which each reason held the clocks{of} down."
                if reasons
                else ""
            )
            + more
        ),
        tables={
            "summary": record_table("Means over the run", _SUMMARY, summary),
            "sensors": record_table("Sensors over time", _SERIES, records),
            "reasons": record_table(f"What held the clocks{of} down", _REASONS, reasons),
        },
        drawing=partial(
            _draw,
            drawn,
            keys,
            _coldest_c(records),
            time_unit(curves.result.time_s),
            held=bool(reasons),
            lone=len(records) == len({(one["device"], one["quantity"]) for one in records}),
        ),
    )


def _series(curves: RunCurves, key: str, sensors: SensorCourses) -> Iterator[Record]:
    for quantity in _PANELS:
        envelope = sensors.columns.get(quantity)
        if envelope:
            columns = {
                "t_s": envelope.middle_s(curves.stretch.start_ns),
                "mean": envelope.mean,
                "low": envelope.low,
                "high": envelope.high,
            }
            told = thinned_records(columns, device=key, quantity=quantity.value)
            yield from known(told, "mean")


def _summary(key: str, sensors: SensorCourses) -> Record:
    heat = sensors.columns.get(Quantity.TEMPERATURE)
    held = [f"{name} {100 * share:.0f} %" for name, share in sensors.held.items()]
    return {
        "device": key,
        **{quantity.value: _mean(sensors.columns.get(quantity)) for quantity in _PANELS},
        "temperature_max_c": finite(float(np.nanmax(heat.high))) if heat else None,
        "held_down": ", ".join(held) or "nothing",
    }


def _mean(envelope: Envelope | None) -> float | None:
    if envelope is None:
        return None
    return float(np.nansum(envelope.mean * envelope.count) / envelope.count.sum())


def _reasons(curves: RunCurves, sensors: SensorCourses) -> Iterator[Record]:
    for name, envelope in sensors.reasons.items():
        edges_s = (envelope.edges_ns - curves.stretch.start_ns) / NS_PER_S
        columns = {"t_s": edges_s[:-1], "end_s": edges_s[1:], "share_pct": 100 * envelope.mean}
        told = known(thinned_records(columns, reason=name), "share_pct")
        for share_pct, alike in groupby(told, key=itemgetter("share_pct")):
            pixels = list(alike)
            if share_pct:
                yield {**pixels[0], "end_s": pixels[-1]["end_s"]}


def _coldest_c(records: Sequence[Record]) -> float:
    mine = [one for one in records if one["quantity"] == Quantity.TEMPERATURE.value]
    return min([_ROOM_C, *(float(one["low"] or 0.0) for one in mine)])


def _title(summary: Sequence[Record]) -> str:
    used = [float(v) for one in summary if (v := one.get("gpu_utilisation_pct")) is not None]
    heat = [float(v) for one in summary if (v := one["temperature_max_c"]) is not None]
    who = str(summary[0]["device"]) if len(summary) == 1 else f"{len(summary)} GPUs"
    are, get = ("is", "gets") if len(summary) == 1 else ("are", "get")
    said = [f"{are} busy {sum(used) / len(used):.0f} % of the time"] if used else []
    said += [f"{get} {max(heat):.0f} °C warm"] if heat else []
    return f"{who} {listed(said)}" if said else f"Sensors of {who}"


def _draw(
    quantities: Sequence[Quantity],
    keys: Sequence[str],
    coldest_c: float,
    unit: Unit,
    *,
    held: bool,
    lone: bool,
) -> alt.TopLevelMixin:
    import altair as alt

    last = None if held else quantities[-1]
    panels = [
        _panel(q, keys, unit, _scale(q, coldest_c), bare=q is not last, lone=lone)
        for q in quantities
    ]
    below = [_held(unit)] if held else []
    drawn: alt.VConcatChart = alt.vconcat(*panels, *below, spacing=6).resolve_scale(x="shared")
    return drawn


def _panel(
    quantity: Quantity,
    keys: Sequence[str],
    unit: Unit,
    scale: alt.Scale,
    *,
    bare: bool,
    lone: bool,
) -> Any:
    import altair as alt

    base = timed(alt.Chart(alt.NamedData("sensors")), unit).transform_filter(
        alt.datum.quantity == quantity.value
    )
    x = time_axis(unit, bare=bare)
    y = alt.Y("mean:Q").title(_PANELS[quantity]).scale(scale)
    low = alt.Y("low:Q").title(_PANELS[quantity]).scale(scale)
    if len(keys) == 1:
        layers = banded(base, x, y, low, "high:Q", lone=lone)
    else:
        some = base.transform_filter(alt.FieldOneOfPredicate(field="device", oneOf=list(keys)))
        told = dashed("device", keys)
        mark = some.mark_point(style="mean") if lone else some.mark_line()
        layers = [mark.encode(x=x, y=y, **({"color": told["color"]} if lone else told))]
    return alt.layer(*layers).properties(height=100)


def _scale(quantity: Quantity, coldest_c: float) -> alt.Scale:
    import altair as alt

    if quantity is Quantity.GPU_UTILISATION:
        return alt.Scale(domain=[0, 100])
    return alt.Scale(domainMin=coldest_c if quantity is Quantity.TEMPERATURE else 0)


def _held(unit: Unit) -> Any:
    import altair as alt

    return (
        alt.Chart(alt.NamedData("reasons"))
        .transform_calculate(time=unit.expression("t_s"), until=unit.expression("end_s"))
        .mark_rect()
        .encode(
            x=time_axis(unit),
            x2="until:Q",
            y=alt.Y("reason:N").title(None).axis(grid=False, labelLimit=0),
            opacity=alt.Opacity("share_pct:Q").scale(domain=[0, 100], range=[0, 1]).legend(None),
        )
        .properties(height=alt.Step(18))
    )

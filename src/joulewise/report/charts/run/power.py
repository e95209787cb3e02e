"""Power over time, with every peak, the limit in force and the epochs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.analyse.curves.run import DeviceCurves, RunCurves
from joulewise.analyse.curves.series import stages
from joulewise.data import PowerScope, Quantity, RunResult, listed_keys
from joulewise.formatting import watts
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.run.time_axis import (
    Record,
    are_shaded,
    banded,
    epoch_bands,
    epoch_numbers,
    finite,
    known,
    record_table,
    thinned_records,
    time_axis,
    timed,
)
from joulewise.report.charts.theme import DisplayUnit, time_unit
from joulewise.report.tables import Column
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    import altair as alt

_MOST_PANELS: Final = 8
_AT_ALL: Final = 0.005
_POWER: Final = {
    "device": Column("device", right=False),
    "t_s": Column("time", "s"),
    "mean_w": Column("mean", "W"),
    "low_w": Column("lowest", "W"),
    "high_w": Column("highest", "W"),
}
_SUMMARY: Final = {
    "device": Column("device", right=False),
    "mean_w": Column("mean power", "W"),
    "peak_w": Column("highest", "W"),
    "limit_w": Column("limit", "W"),
    "held_pct": Column("held by the limit", "% of the time"),
}
_EPOCHS: Final = {
    "epoch": Column("epoch"),
    "start_s": Column("start", "s"),
    "end_s": Column("end", "s"),
}


def power_charts(curves: RunCurves) -> Iterator[Chart]:
    summary = [_summary(curves, one) for one in curves.devices]
    power = [record for one in curves.devices for record in _power(curves, one)]
    readings = Counter(str(record["device"]) for record in power)
    drawn = list(readings)
    if not drawn:
        return
    limits = [record for one in curves.devices for record in _limits(curves, one)]
    epochs = [
        {"epoch": one.number, "start_s": finite(one.start_s), "end_s": finite(one.end_s)}
        for one in stages(curves.result)
    ]
    shown = drawn[:_MOST_PANELS]
    more = f" Of {len(drawn)} devices the first {len(shown)} are drawn." if drawn != shown else ""
    yield Chart(
        key="power",
        title=_title(summary, _unread(curves.result)),
        description=(
            "Power over time. The line is the mean of the readings in each pixel, the band goes "
            "from the lowest of them to the highest."
            + (" The dotted line is the power limit in force." if limits else "")
            + (" Every other epoch is shaded." if are_shaded(len(epochs)) else "")
            + more
        ),
        tables={
            "summary": record_table("Power of each device", _SUMMARY, summary),
            "power": record_table("Power over time", _POWER, power),
            "limits": record_table(
                "The limit in force", {**_POWER, "limit_w": Column("limit", "W")}, limits
            ),
            "epochs": record_table("Epochs", _EPOCHS, epochs),
        },
        drawing=partial(
            _draw,
            shown,
            {str(record["device"]) for record in limits},
            {key for key, count in readings.items() if count == 1},
            len(epochs),
            time_unit(curves.result.time_s),
        ),
    )


def _summary(curves: RunCurves, one: DeviceCurves) -> Record:
    use = curves.result.run.devices[one.key]
    limits_w = one.sensors.columns.get(Quantity.ENFORCED_LIMIT) if _is_limited(one) else None
    constant = limits_w and np.nanmin(limits_w.low) == np.nanmax(limits_w.high)
    held = one.sensors.held.get("power cap", 0.0) if limits_w else None
    return {
        "device": one.key,
        "mean_w": finite(use.mean_w),
        "peak_w": finite(use.peak_w),
        "limit_w": finite(float(np.nanmax(limits_w.high))) if limits_w and constant else None,
        "held_pct": None if held is None else finite(100 * held),
    }


def _power(curves: RunCurves, one: DeviceCurves) -> list[Record]:
    if one.power is None:  # a counter alone tells means
        columns = {"t_s": one.growth.t_s, "mean_w": one.growth.mean_w}
    else:
        columns = {
            "t_s": one.power.middle_s(curves.stretch.start_ns),
            "low_w": one.power.low,
            "high_w": one.power.high,
            "mean_w": one.power.mean,
        }
    return known(thinned_records(columns, device=one.key), "mean_w")


def _is_limited(one: DeviceCurves) -> bool:
    """Whether its limit is of what is drawn: the GPU's limit is none of its module's power."""
    info = one.device.info
    return info.power_scope is not PowerScope.MODULE or info.limit_scope is PowerScope.MODULE


def _limits(curves: RunCurves, one: DeviceCurves) -> Iterator[Record]:
    """Where it begins, changes and ends: a line between two equal ones needs no more."""
    envelope = one.sensors.columns.get(Quantity.ENFORCED_LIMIT)
    if not envelope or not _is_limited(one):
        return
    there = np.flatnonzero(envelope.count)
    limits_w = envelope.mean[there]
    last = len(there) - 1
    starts_s = (envelope.edges_ns[there] - curves.stretch.start_ns) / NS_PER_S
    for at, (t_s, limit_w) in enumerate(zip(starts_s.tolist(), limits_w.tolist(), strict=True)):
        told: Record = {"device": one.key, "limit_w": finite(limit_w)}
        if at == 0 or limit_w != limits_w[at - 1]:
            yield {**told, "t_s": t_s, "last": 0}
        if at == last:
            yield {**told, "t_s": curves.result.time_s, "last": 1}


def _unread(result: RunResult) -> list[str]:
    """The devices that count and were not read, or not to the end."""
    uses = {key: result.run.devices[key].energy for key in result.counted}
    return [key for key, energy in uses.items() if energy is None or energy.at_least]


def _title(summary: Sequence[Record], unread: Sequence[str]) -> str:
    first = summary[0]
    if unread:
        return f"Power as far as it was read: {listed_keys(unread)} was not in all of the run"
    mean_w, limit_w, held_pct = (first[name] for name in ("mean_w", "limit_w", "held_pct"))
    if len(summary) > 1:
        means = [float(one["mean_w"] or 0.0) for one in summary]
        return f"{len(summary)} devices draw {watts(sum(means))} together on average"
    if isinstance(limit_w, float) and isinstance(held_pct, float) and held_pct >= 100 * _AT_ALL:
        return (
            f"The {limit_w:g} W limit holds {first['device']} back for {held_pct:.0f} % of the time"
        )
    below = f", and its {limit_w:g} W limit never binds" if held_pct == 0 and limit_w else ""
    return f"{first['device']} draws {watts(float(mean_w or 0.0))} on average{below}"


def _draw(
    devices: Sequence[str], limited: set[str], lone: set[str], epochs: int, unit: DisplayUnit
) -> alt.TopLevelMixin:
    import altair as alt

    if len(devices) == 1:
        return _alone(devices[0], epochs, unit, limited=bool(limited), lone=bool(lone))
    panels = [
        alt.layer(
            *_layers(
                key,
                epochs,
                time_axis(unit, bare=key != devices[-1]),
                unit,
                f"{key} (W)",
                limited=key in limited,
                lone=key in lone,
            )
        ).properties(height=110)
        for key in devices
    ]
    stacked: alt.VConcatChart = alt.vconcat(*panels, spacing=6).resolve_scale(x="shared")
    return stacked


def _alone(
    key: str, epochs: int, unit: DisplayUnit, *, limited: bool, lone: bool
) -> alt.TopLevelMixin:
    import altair as alt

    x = time_axis(unit)
    layers = [
        *_layers(key, epochs, x, unit, "power (W)", limited=limited, lone=lone),
        *epoch_numbers(epochs, unit),
    ]
    if limited:
        named = (
            _mine("limits", key, unit)
            .transform_filter("datum.last == 1")
            .transform_calculate(label="'limit ' + format(datum.limit_w, '.4~g') + ' W'")
        )
        text = named.mark_text(style="note", align="right", dy=-8)
        layers.append(text.encode(x=x, y="limit_w:Q", text="label:N"))
    return alt.layer(*layers)


def _layers(
    key: str, epochs: int, x: alt.X, unit: DisplayUnit, title: str, *, limited: bool, lone: bool
) -> list[Any]:
    import altair as alt

    power, limits = _mine("power", key, unit), _mine("limits", key, unit)
    low, mean, limit = (alt.Y(f"{name}_w:Q").title(title) for name in ("low", "mean", "limit"))
    held = limits.mark_line(style="limit", interpolate="step-after").encode(x=x, y=limit)
    return [
        *epoch_bands(epochs, unit, x),
        *banded(power, x, mean, low, "high_w:Q", lone=lone),
        *([held] if limited else []),
    ]


def _mine(data: str, key: str, unit: DisplayUnit) -> Any:
    import altair as alt

    return timed(alt.Chart(alt.NamedData(data)), unit).transform_filter(alt.datum.device == key)

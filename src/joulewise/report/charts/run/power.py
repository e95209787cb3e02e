"""Power over time, with every peak, the enforced power limit and the epochs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from joulewise.analyse.curves.run import DeviceCurves, RunCurves
from joulewise.analyse.curves.series import stages
from joulewise.data import PowerScope, Quantity, RunResult, listed_keys
from joulewise.formatting import watts
from joulewise.report.charts import encoding
from joulewise.report.charts.chart import Chart, alt
from joulewise.report.charts.encoding import DisplayUnit
from joulewise.report.charts.records import (
    Record,
    finite,
    record_table,
    to_thinned_records,
    with_fields,
)
from joulewise.units import NS_PER_S

_MAX_PANELS: Final = 8  # devices drawn one above the other: as many as fit a screen
_PANEL_HEIGHT_PX: Final = 110
# Share of the time above which a title says that the limit held the device back; below it, rounded
# to whole percent, the title would say "0 %".
_HELD_AT_ALL: Final = 0.005


def chart_power(curves: RunCurves) -> Iterator[Chart]:
    """Power of each device over time, a panel each."""
    summary = [_summary(curves, device) for device in curves.devices]
    power = [record for device in curves.devices for record in power_records(curves, device)]
    readings = Counter(str(record["device"]) for record in power)
    keys = list(readings)
    if not keys:
        return
    limits = [record for device in curves.devices for record in _limits(curves, device)]
    epochs = [
        {"epoch": epoch.number, "start_s": finite(epoch.start_s), "end_s": finite(epoch.end_s)}
        for epoch in stages(curves.result)
    ]
    shown = keys[:_MAX_PANELS]
    more = (
        f" Only the first {len(shown)} of {len(keys)} devices are drawn." if keys != shown else ""
    )
    yield Chart(
        key="power",
        title=_title(summary, _unread(curves.result)),
        description=(
            "Power over time. The line is the mean of the readings in each pixel; the band spans "
            "their minimum and maximum."
            + (" The dotted line is the enforced power limit." if limits else "")
            + (" Every other epoch is shaded." if encoding.are_shaded(len(epochs)) else "")
            + more
        ),
        tables={
            "summary": record_table(
                "Power of each device", "device mean_w peak_w limit_w held_pct", summary
            ),
            "power": record_table("Power over time", "device t_s mean_w low_w high_w", power),
            "limits": record_table("Enforced power limit", "device t_s limit_w", limits),
            "epochs": record_table("Epochs", "epoch start_s end_s", epochs),
        },
        drawing=partial(
            _draw,
            shown,
            {str(record["device"]) for record in limits},
            {key for key, count in readings.items() if count == 1},
            len(epochs),
            encoding.time_unit(curves.result.time_s),
        ),
    )


def _summary(curves: RunCurves, device: DeviceCurves) -> Record:
    use = curves.result.run.devices[device.key]
    limits_w = device.sensors.columns.get(Quantity.ENFORCED_LIMIT) if _is_limited(device) else None
    constant = limits_w and np.nanmin(limits_w.low) == np.nanmax(limits_w.high)
    held = device.sensors.held.get("power cap", 0.0) if limits_w else None
    return {
        "device": device.key,
        "mean_w": finite(use.mean_w),
        "peak_w": finite(use.peak_w),
        "limit_w": finite(float(np.nanmax(limits_w.high))) if limits_w and constant else None,
        "held_pct": None if held is None else finite(100 * held),
    }


def power_records(curves: RunCurves, device: DeviceCurves) -> list[Record]:
    """The power of a device over time; empty where it was not read."""
    if device.power is None:  # an energy counter alone has means only
        columns = {"t_s": device.cumulative.t_s, "mean_w": device.cumulative.mean_w}
    else:
        columns = {
            "t_s": device.power.middle_s(curves.interval.start_ns),
            "low_w": device.power.low,
            "high_w": device.power.high,
            "mean_w": device.power.mean,
        }
    return with_fields(to_thinned_records(columns, device=device.key), "mean_w")


def _is_limited(device: DeviceCurves) -> bool:
    """Whether the limit is one of the power that is drawn.

    The limit of a superchip's GPU does not bound the power of its module.
    """
    info = device.device.info
    return info.power_scope is not PowerScope.MODULE or info.limit_scope is PowerScope.MODULE


def _limits(curves: RunCurves, device: DeviceCurves) -> Iterator[Record]:
    """Where the limit begins, changes and ends, which is all that a step line needs."""
    envelope = device.sensors.columns.get(Quantity.ENFORCED_LIMIT)
    if not envelope or not _is_limited(device):
        return
    known = np.flatnonzero(envelope.count)
    limits_w = envelope.mean[known]
    starts_s = (envelope.edges_ns[known] - curves.interval.start_ns) / NS_PER_S
    for index, (t_s, limit_w) in enumerate(zip(starts_s.tolist(), limits_w.tolist(), strict=True)):
        record: Record = {"device": device.key, "limit_w": finite(limit_w)}
        if index == 0 or limit_w != limits_w[index - 1]:
            yield {**record, "t_s": t_s, "last": 0}
        if index == len(known) - 1:
            yield {**record, "t_s": curves.result.time_s, "last": 1}


def _unread(result: RunResult) -> list[str]:
    """The counted devices that were not read, or not to the end."""
    energies = {key: result.run.devices[key].energy for key in result.counted}
    return [key for key, energy in energies.items() if energy is None or energy.at_least]


def _title(summary: Sequence[Record], unread: Sequence[str]) -> str:
    first = summary[0]
    if unread:
        return f"Power is incomplete: {listed_keys(unread)} was not read for the whole run"
    mean_w, limit_w, held_pct = (first[name] for name in ("mean_w", "limit_w", "held_pct"))
    if len(summary) > 1:
        total_w = sum(float(device["mean_w"] or 0.0) for device in summary)
        return f"{len(summary)} devices draw {watts(total_w)} together on average"
    is_held = isinstance(held_pct, float) and held_pct >= 100 * _HELD_AT_ALL
    if isinstance(limit_w, float) and is_held:
        return f"{first['device']} is at its {limit_w:g} W limit for {held_pct:.0f} % of the time"
    below = f" and never reaches its {limit_w:g} W limit" if held_pct == 0 and limit_w else ""
    return f"{first['device']} draws {watts(float(mean_w or 0.0))} on average{below}"


def _draw(
    keys: Sequence[str], limited: set[str], single: set[str], epochs: int, unit: DisplayUnit
) -> alt.TopLevelMixin:
    """``limited`` devices have a limit, ``single`` ones only one reading."""

    def layers(key: str, x: alt.X, title: str) -> list[Any]:
        power, limits = (
            encoding.time_layer(table, unit).transform_filter(alt.datum.device == key)
            for table in ("power", "limits")
        )
        step_line = limits.mark_line(style="limit", interpolate="step-after")
        return [
            *encoding.epoch_bands(epochs, unit, x),
            *encoding.band_layers(
                power, x, ("low_w", "mean_w", "high_w"), title, is_single=key in single
            ),
            *([step_line.encode(x=x, y=alt.Y("limit_w:Q").title(title))] if key in limited else []),
        ]

    if len(keys) > 1:
        panels = [
            alt.layer(
                *layers(key, encoding.time_axis(unit, is_bare=key != keys[-1]), f"{key} (W)")
            ).properties(height=_PANEL_HEIGHT_PX)
            for key in keys
        ]
        stacked: alt.VConcatChart = alt.vconcat(*panels, spacing=6).resolve_scale(x="shared")
        return stacked
    x = encoding.time_axis(unit)
    drawn = [*layers(keys[0], x, "power (W)"), *encoding.epoch_numbers(epochs, unit)]
    if limited:
        end = encoding.time_layer("limits", unit).transform_filter(alt.datum.device == keys[0])
        text = (
            end.transform_filter("datum.last == 1")
            .transform_calculate(label="'limit ' + format(datum.limit_w, '.4~g') + ' W'")
            .mark_text(style="note", align="right", dy=-8)
        )
        drawn.append(text.encode(x=x, y="limit_w:Q", text="label:N"))
    return alt.layer(*drawn)

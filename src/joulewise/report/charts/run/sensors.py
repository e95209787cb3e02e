"""What sensors told over time, one panel below the other: work, memory and PCIe, CPU load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.analyse.curves.downsample import Envelope
from joulewise.analyse.curves.run import RunCurves
from joulewise.analyse.curves.series import SensorCourses
from joulewise.data import Quantity
from joulewise.formatting import SENSORS
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.run.time_axis import (
    Record,
    banded,
    finite,
    known,
    listed,
    record_table,
    thinned_records,
    time_axis,
    timed,
)
from joulewise.report.charts.theme import DisplayUnit, dashed, time_unit
from joulewise.report.tables import Column, Table
from joulewise.units import B_PER_GIB, NS_PER_S, digits

if TYPE_CHECKING:
    import altair as alt


@dataclass(frozen=True)
class _SensorPanel:
    """One quantity over time; ``unit`` is what it is drawn in.

    Its axis goes from ``low``, or from the lowest reading below that, up to ``high``, or to the
    highest above that; None is as far as the readings go. ``reverse`` has the least on top.
    """

    quantity: Quantity
    name: str
    unit: DisplayUnit
    low: float = 0.0
    high: float | None = None
    reverse: bool = False

    @property
    def title(self) -> str:
        return f"{self.name} ({self.unit.name})" if self.unit.name else self.name


_ROOM_C: Final = 20.0
_WORK: Final = (
    _SensorPanel(Quantity.TEMPERATURE, "temperature", DisplayUnit("°C"), _ROOM_C),
    _SensorPanel(Quantity.SM_CLOCK, "SM clock", DisplayUnit("MHz")),
    _SensorPanel(Quantity.GPU_UTILISATION, "utilisation", DisplayUnit("%"), high=100.0),
    # P0 is the fastest of 16 states; what idles is in P8 as a rule.
    _SensorPanel(Quantity.PERFORMANCE_STATE, "P-state", DisplayUnit(""), high=8.0, reverse=True),
)
_MEMORY: Final = (
    _SensorPanel(Quantity.MEMORY_USED, "memory used", DisplayUnit("GiB", B_PER_GIB)),
    _SensorPanel(Quantity.MEMORY_UTILISATION, "memory util.", DisplayUnit("%"), high=100.0),
    _SensorPanel(Quantity.MEMORY_CLOCK, "memory clock", DisplayUnit("MHz")),
    _SensorPanel(Quantity.PCIE_TX, "PCIe sent", DisplayUnit("MB/s")),
    _SensorPanel(Quantity.PCIE_RX, "PCIe received", DisplayUnit("MB/s")),
)
_CPU: Final = (_SensorPanel(Quantity.LOAD, "CPU load", DisplayUnit("%"), high=100.0),)
_MOST: Final = 7  # lines that can be told apart
_SERIES: Final = {
    "device": Column("device", right=False),
    "quantity": Column("quantity", right=False),
    "t_s": Column("time", "s"),
    "mean": Column("mean"),
    "low": Column("lowest"),
    "high": Column("highest"),
}
_DEVICE: Final = {"device": Column("device", right=False)}
_WORK_SUMMARY: Final = {
    **_DEVICE,
    "temperature_c": Column("temperature", "°C"),
    "temperature_max_c": Column("highest", "°C"),
    "sm_clock_mhz": Column("SM clock", "MHz"),
    "gpu_utilisation_pct": Column("utilisation", "%"),
    "held_down": Column("clocks held down by", right=False),
}
_MEMORY_SUMMARY: Final = {
    **_DEVICE,
    "memory_used_gib": Column("memory used", "GiB"),
    "memory_used_max_gib": Column("most", "GiB"),
    "memory_utilisation_pct": Column("memory utilisation", "%"),
    "memory_clock_mhz": Column("memory clock", "MHz"),
    "pcie_tx_mb_s": Column("PCIe sent", "MB/s"),
    "pcie_rx_mb_s": Column("PCIe received", "MB/s"),
}
_CPU_SUMMARY: Final = {
    **_DEVICE,
    "load_pct": Column("load", "%"),
    "load_max_pct": Column("highest", "%"),
}
_REASONS: Final = {
    "reason": Column("reason", right=False),
    "t_s": Column("time", "s"),
    "end_s": Column("until", "s"),
    "share_pct": Column("share of the looks", "%"),
}

Sensors = Mapping[str, SensorCourses]
"""By device."""


def sensor_charts(curves: RunCurves) -> Iterator[Chart]:
    gpus = {one.key: one.sensors for one in curves.gpus if one.sensors.columns}
    others = {one.key: one.sensors for one in curves.devices if one.key not in gpus}
    yield from _work_charts(curves, gpus)
    yield from _memory_charts(curves, gpus)
    yield from _cpu_charts(curves, others)


def _work_charts(curves: RunCurves, gpus: Sensors) -> Iterator[Chart]:
    """What the GPUs did, and what held their clocks down."""
    drawn = _drawn(_WORK, gpus)
    if not drawn:
        return
    keys = list(gpus)[:_MOST]
    reasons = list(_reasons(curves, gpus[keys[0]]))
    of = f" of {keys[0]}" if len(gpus) > 1 else ""
    summary = [_work_summary(key, one) for key, one in gpus.items()]
    below = (
        f" Below, the share of the looks at which each reason held the clocks{of} down."
        if reasons
        else ""
    )
    yield _chart(
        curves,
        gpus,
        drawn,
        key="sensors",
        title=_work_title(summary),
        more=below,
        tables={
            "summary": record_table("Means over the run", _WORK_SUMMARY, summary),
            "reasons": record_table(f"What held the clocks{of} down", _REASONS, reasons),
        },
        held=bool(reasons),
    )


def _memory_charts(curves: RunCurves, gpus: Sensors) -> Iterator[Chart]:
    """The GPUs' memory, and what goes over PCIe; the driver counts that for 20 ms at a time."""
    drawn = _drawn(_MEMORY, gpus)
    if not drawn:
        return
    summary = [_memory_summary(key, one) for key, one in gpus.items()]
    has_pcie = any(panel.quantity in {Quantity.PCIE_TX, Quantity.PCIE_RX} for panel in drawn)
    yield _chart(
        curves,
        gpus,
        drawn,
        key="memory",
        title=_memory_title(summary),
        more=" PCIe is counted for 20 ms of each look." if has_pcie else "",
        tables={"summary": record_table("Memory and PCIe, means", _MEMORY_SUMMARY, summary)},
    )


def _cpu_charts(curves: RunCurves, others: Sensors) -> Iterator[Chart]:
    cpus = {key: one for key, one in others.items() if Quantity.LOAD in one.columns}
    drawn = _drawn(_CPU, cpus)
    if not drawn:
        return
    summary = [_cpu_summary(key, one) for key, one in cpus.items()]
    loads = [float(each["load_pct"] or 0.0) for each in summary]
    yield _chart(
        curves,
        cpus,
        drawn,
        key="cpu-load",
        title=f"The CPUs are busy {sum(loads) / len(loads):.0f} % of the time",
        more=" It is that of the whole machine, whoever ran on it.",
        tables={"summary": record_table("CPU load, means", _CPU_SUMMARY, summary)},
    )


def _drawn(panels: Sequence[_SensorPanel], sensors: Sensors) -> list[_SensorPanel]:
    """Those that any of the devices has readings for."""
    return [it for it in panels if any(it.quantity in one.columns for one in sensors.values())]


def _chart(
    curves: RunCurves,
    sensors: Sensors,
    panels: Sequence[_SensorPanel],
    *,
    key: str,
    title: str,
    more: str,
    tables: Mapping[str, Table],
    held: bool = False,
) -> Chart:
    """The panels one below the other, a line for each device."""
    keys = list(sensors)[:_MOST]
    records = [
        record
        for device, one in sensors.items()
        for record in _series(curves, device, one, panels)
        if device in keys
    ]
    what = "GPUs" if panels[0] not in _CPU else "CPUs"
    left_out = (
        f" Of {len(sensors)} {what} the first {len(keys)} are drawn."
        if len(sensors) > _MOST
        else ""
    )
    return Chart(
        key=key,
        title=title,
        description=(
            f"Over time: {listed([SENSORS[panel.quantity] for panel in panels])}."
            + (" The band goes from the lowest reading to the highest." if len(keys) == 1 else "")
            + more
            + left_out
        ),
        tables={**tables, "sensors": record_table("Sensors over time", _SERIES, records)},
        drawing=partial(
            _draw,
            [(panel, _axis(panel, records)) for panel in panels],
            keys,
            time_unit(curves.result.time_s),
            held=held,
        ),
    )


@dataclass(frozen=True)
class _Axis:
    """Where a panel's readings lie, in its unit; ``is_lone`` where each device has but one."""

    low: float
    high: float | None
    is_lone: bool


def _axis(panel: _SensorPanel, records: Sequence[Record]) -> _Axis:
    mine = [record for record in records if record["quantity"] == panel.quantity.value]
    low = min([panel.low, *(float(it["low"] or 0.0) / panel.unit.of for it in mine)])
    high = panel.high
    if high is not None:
        high = max([high, *(float(it["high"] or 0.0) / panel.unit.of for it in mine)])
    return _Axis(low, high, len(mine) == len({record["device"] for record in mine}))


def _series(
    curves: RunCurves, key: str, sensors: SensorCourses, panels: Sequence[_SensorPanel]
) -> Iterator[Record]:
    for panel in panels:
        envelope = sensors.columns.get(panel.quantity)
        if envelope:
            columns = {
                "t_s": envelope.middle_s(curves.stretch.start_ns),
                "mean": envelope.mean,
                "low": envelope.low,
                "high": envelope.high,
            }
            told = thinned_records(columns, device=key, quantity=panel.quantity.value)
            yield from known(told, "mean")


def _work_summary(key: str, sensors: SensorCourses) -> Record:
    held = [f"{name} {100 * share:.0f} %" for name, share in sensors.held.items()]
    columns = sensors.columns
    return {
        "device": key,
        "temperature_c": _mean(columns.get(Quantity.TEMPERATURE)),
        "temperature_max_c": _highest(columns.get(Quantity.TEMPERATURE)),
        "sm_clock_mhz": _mean(columns.get(Quantity.SM_CLOCK)),
        "gpu_utilisation_pct": _mean(columns.get(Quantity.GPU_UTILISATION)),
        "held_down": ", ".join(held) or "nothing",
    }


def _memory_summary(key: str, sensors: SensorCourses) -> Record:
    columns = sensors.columns
    used = columns.get(Quantity.MEMORY_USED)
    return {
        "device": key,
        "memory_used_gib": _per(B_PER_GIB, _mean(used)),
        "memory_used_max_gib": _per(B_PER_GIB, _highest(used)),
        "memory_utilisation_pct": _mean(columns.get(Quantity.MEMORY_UTILISATION)),
        "memory_clock_mhz": _mean(columns.get(Quantity.MEMORY_CLOCK)),
        "pcie_tx_mb_s": _mean(columns.get(Quantity.PCIE_TX)),
        "pcie_rx_mb_s": _mean(columns.get(Quantity.PCIE_RX)),
    }


def _cpu_summary(key: str, sensors: SensorCourses) -> Record:
    load = sensors.columns.get(Quantity.LOAD)
    return {"device": key, "load_pct": _mean(load), "load_max_pct": _highest(load)}


def _mean(envelope: Envelope | None) -> float | None:
    if envelope is None:
        return None
    return float(np.nansum(envelope.mean * envelope.count) / envelope.count.sum())


def _highest(envelope: Envelope | None) -> float | None:
    return None if envelope is None else finite(float(np.nanmax(envelope.high)))


def _per(unit: float, value: float | None) -> float | None:
    return None if value is None else value / unit


def _reasons(curves: RunCurves, sensors: SensorCourses) -> Iterator[Record]:
    for name, envelope in sensors.reasons.items():
        edges_s = (envelope.edges_ns - curves.stretch.start_ns) / NS_PER_S
        columns = {"t_s": edges_s[:-1], "end_s": edges_s[1:], "share_pct": 100 * envelope.mean}
        told = known(thinned_records(columns, reason=name), "share_pct")
        for share_pct, alike in groupby(told, key=itemgetter("share_pct")):
            pixels = list(alike)
            if share_pct:
                yield {**pixels[0], "end_s": pixels[-1]["end_s"]}


def _work_title(summary: Sequence[Record]) -> str:
    used = _values(summary, "gpu_utilisation_pct")
    heat = _values(summary, "temperature_max_c")
    who, many = _who(summary), len(summary) > 1
    are, get = ("are", "get") if many else ("is", "gets")
    said = [f"{are} busy {sum(used) / len(used):.0f} % of the time"] if used else []
    said += [f"{get} {max(heat):.0f} °C warm"] if heat else []
    return f"{who} {listed(said)}" if said else f"Sensors of {who}"


def _memory_title(summary: Sequence[Record]) -> str:
    most_gib = _values(summary, "memory_used_max_gib")
    received = _values(summary, "pcie_rx_mb_s")
    who, many = _who(summary), len(summary) > 1
    hold, get = ("hold", "get") if many else ("holds", "gets")
    each = " each" if many else ""
    said = [f"{hold} up to {digits(max(most_gib))} GiB{each}"] if most_gib else []
    mean_mb_s = sum(received) / len(received) if received else 0.0
    said += [f"{get} {digits(mean_mb_s)} MB/s{each} over PCIe"] if received else []
    return f"{who} {listed(said)}" if said else f"Memory of {who}"


def _who(summary: Sequence[Record]) -> str:
    return str(summary[0]["device"]) if len(summary) == 1 else f"{len(summary)} GPUs"


def _values(summary: Sequence[Record], name: str) -> list[float]:
    return [float(value) for each in summary if (value := each[name]) is not None]


def _draw(
    panels: Sequence[tuple[_SensorPanel, _Axis]],
    keys: Sequence[str],
    unit: DisplayUnit,
    *,
    held: bool,
) -> alt.TopLevelMixin:
    import altair as alt

    last = None if held else panels[-1][0]
    drawn = [
        _draw_panel(panel, axis, keys, time_axis(unit, bare=panel is not last), unit)
        for panel, axis in panels
    ]
    below = [_held(unit)] if held else []
    stacked: alt.VConcatChart = alt.vconcat(*drawn, *below, spacing=6).resolve_scale(x="shared")
    return stacked


def _draw_panel(
    panel: _SensorPanel, axis: _Axis, keys: Sequence[str], x: alt.X, unit: DisplayUnit
) -> Any:
    import altair as alt

    base = (
        timed(alt.Chart(alt.NamedData("sensors")), unit)
        .transform_filter(alt.datum.quantity == panel.quantity.value)
        .transform_calculate(
            value=panel.unit.expression("mean"),
            least=panel.unit.expression("low"),
            most=panel.unit.expression("high"),
        )
    )
    ends = {"domainMin": axis.low} if axis.high is None else {"domain": [axis.low, axis.high]}
    scale = alt.Scale(**ends, reverse=panel.reverse)
    y, low = (
        alt.Y(f"{name}:Q").title(panel.title).scale(scale).axis(tickCount=4)
        for name in ("value", "least")
    )
    if len(keys) == 1:
        layers = banded(base, x, y, low, "most:Q", lone=axis.is_lone)
    else:
        told = dashed("device", keys)
        mark = base.mark_point(style="mean") if axis.is_lone else base.mark_line()
        layers = [mark.encode(x=x, y=y, **({"color": told["color"]} if axis.is_lone else told))]
    return alt.layer(*layers).properties(height=100)


def _held(unit: DisplayUnit) -> Any:
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

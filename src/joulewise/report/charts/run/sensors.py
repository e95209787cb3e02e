"""Sensors over time, a panel for each quantity: GPU activity, memory and PCIe, CPU load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import numpy as np

from joulewise.analyse.curves.downsample import Envelope
from joulewise.analyse.curves.run import RunCurves
from joulewise.analyse.curves.series import SensorCurves
from joulewise.data import Quantity
from joulewise.formatting import SENSORS
from joulewise.report.charts import encoding
from joulewise.report.charts.chart import Chart, alt
from joulewise.report.charts.encoding import DisplayUnit
from joulewise.report.charts.records import (
    Record,
    finite,
    join_words,
    record_table,
    to_thinned_records,
    with_fields,
)
from joulewise.report.tables import Table
from joulewise.units import B_PER_GIB, NS_PER_S, digits


@dataclass(frozen=True)
class _SensorPanel:
    """One quantity over time, drawn in ``unit``.

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


_ROOM_TEMPERATURE_C: Final = 20.0  # where the axis of temperatures begins
_WORK: Final = (
    _SensorPanel(Quantity.TEMPERATURE, "temperature", DisplayUnit("°C"), _ROOM_TEMPERATURE_C),
    _SensorPanel(Quantity.SM_CLOCK, "SM clock", DisplayUnit("MHz")),
    _SensorPanel(Quantity.GPU_UTILISATION, "utilisation", DisplayUnit("%"), high=100.0),
    # P0 is the fastest of NVML's 16 performance states; an idle GPU is usually in P8.
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
# Heights in pixels of a panel, and of a row of throttle reasons.
_PANEL_HEIGHT_PX, _REASON_HEIGHT_PX = 100, 18

Sensors = Mapping[str, SensorCurves]
"""Curves of the sensors, by device."""


def chart_sensors(curves: RunCurves) -> Iterator[Chart]:
    """GPU activity, GPU memory, and CPU load, each where a device has readings of it."""
    gpus = {gpu.key: gpu.sensors for gpu in curves.gpus if gpu.sensors.columns}
    cpus = {
        device.key: device.sensors
        for device in curves.devices
        if device.key not in gpus and Quantity.LOAD in device.sensors.columns
    }
    yield from _chart_work(curves, gpus)
    yield from _chart_memory(curves, gpus)
    yield from _chart_cpus(curves, cpus)


def _chart_work(curves: RunCurves, gpus: Sensors) -> Iterator[Chart]:
    """Temperature, clock and utilisation of the GPUs, and what reduced their clocks."""
    panels = _panels_with_readings(_WORK, gpus)
    if not panels:
        return
    first = next(iter(gpus))
    reasons = list(_reasons(curves, gpus[first]))
    of = f" of {first}" if len(gpus) > 1 else ""
    summary = [_work_summary(key, sensors) for key, sensors in gpus.items()]
    yield _chart(
        curves,
        gpus,
        panels,
        key="sensors",
        title=_work_title(summary),
        more=(
            f" Below: share of the readings at which each reason reduced the clocks{of}."
            if reasons
            else ""
        ),
        tables={
            "summary": record_table(
                "Means over the run",
                "device temperature_c temperature_max_c sm_clock_mhz gpu_utilisation_pct held_down",
                summary,
            ),
            "reasons": record_table(
                f"What reduced the clocks{of}", "reason t_s end_s share_pct", reasons
            ),
        },
        has_reasons=bool(reasons),
    )


def _chart_memory(curves: RunCurves, gpus: Sensors) -> Iterator[Chart]:
    panels = _panels_with_readings(_MEMORY, gpus)
    if not panels:
        return
    summary = [_memory_summary(key, sensors) for key, sensors in gpus.items()]
    has_pcie = any(panel.quantity in {Quantity.PCIE_TX, Quantity.PCIE_RX} for panel in panels)
    yield _chart(
        curves,
        gpus,
        panels,
        key="memory",
        title=_memory_title(summary),
        # nvmlDeviceGetPcieThroughput: "over a 20ms interval".
        more=" PCIe throughput is measured over 20 ms at each reading." if has_pcie else "",
        tables={
            "summary": record_table(
                "Memory and PCIe, means",
                "device memory_used_gib memory_used_max_gib memory_utilisation_pct "
                "memory_clock_mhz pcie_tx_mb_s pcie_rx_mb_s",
                summary,
            )
        },
    )


def _chart_cpus(curves: RunCurves, cpus: Sensors) -> Iterator[Chart]:
    panels = _panels_with_readings(_CPU, cpus)
    if not panels:
        return
    summary = [_cpu_summary(key, sensors) for key, sensors in cpus.items()]
    loads = [float(record["load_pct"] or 0.0) for record in summary]
    yield _chart(
        curves,
        cpus,
        panels,
        key="cpu-load",
        title=f"The CPUs are busy {sum(loads) / len(loads):.0f} % of the time",
        more=" The load is that of the whole machine, including other programs.",
        tables={
            "summary": record_table("CPU load, means", "device load_pct load_max_pct", summary)
        },
    )


def _panels_with_readings(panels: Sequence[_SensorPanel], sensors: Sensors) -> list[_SensorPanel]:
    return [
        panel
        for panel in panels
        if any(panel.quantity in device.columns for device in sensors.values())
    ]


def _chart(
    curves: RunCurves,
    sensors: Sensors,
    panels: Sequence[_SensorPanel],
    *,
    key: str,
    title: str,
    more: str,
    tables: Mapping[str, Table],
    has_reasons: bool = False,
) -> Chart:
    """The panels one below the other, with a line for each device."""
    keys = list(sensors)[: encoding.MAX_SERIES]
    records = [
        record for device in keys for record in _series(curves, device, sensors[device], panels)
    ]
    devices = "GPUs" if panels[0] not in _CPU else "CPUs"
    left_out = (
        f" Only the first {len(keys)} of {len(sensors)} {devices} are drawn."
        if len(sensors) > len(keys)
        else ""
    )
    names = [panel.name if panel in _CPU else SENSORS[panel.quantity] for panel in panels]
    return Chart(
        key=key,
        title=title,
        description=(
            f"Over time: {join_words(names)}."
            + (" The band spans the lowest and the highest reading." if len(keys) == 1 else "")
            + more
            + left_out
        ),
        tables={
            **tables,
            "sensors": record_table(
                "Sensors over time", "device quantity t_s mean low high", records
            ),
        },
        drawing=partial(
            _draw,
            [(panel, _axis(panel, records)) for panel in panels],
            keys,
            encoding.time_unit(curves.result.time_s),
            has_reasons=has_reasons,
        ),
    )


@dataclass(frozen=True)
class _Axis:
    """Range of a panel in its unit; ``is_single`` where each device has only one reading."""

    low: float
    high: float | None
    is_single: bool


def _axis(panel: _SensorPanel, records: Sequence[Record]) -> _Axis:
    readings = [record for record in records if record["quantity"] == panel.quantity.value]
    lows, highs = (
        [float(record[end] or 0.0) / panel.unit.of for record in readings]
        for end in ("low", "high")
    )
    high = None if panel.high is None else max([panel.high, *highs])
    is_single = len(readings) == len({record["device"] for record in readings})
    return _Axis(min([panel.low, *lows]), high, is_single)


def _series(
    curves: RunCurves, key: str, sensors: SensorCurves, panels: Sequence[_SensorPanel]
) -> Iterator[Record]:
    for panel in panels:
        envelope = sensors.columns.get(panel.quantity)
        if envelope:
            columns = {
                "t_s": envelope.middle_s(curves.interval.start_ns),
                "mean": envelope.mean,
                "low": envelope.low,
                "high": envelope.high,
            }
            records = to_thinned_records(columns, device=key, quantity=panel.quantity.value)
            yield from with_fields(records, "mean")


def _work_summary(key: str, sensors: SensorCurves) -> Record:
    reasons = [f"{name} {100 * share:.0f} %" for name, share in sensors.held.items()]
    return {
        "device": key,
        "temperature_c": _mean(sensors, Quantity.TEMPERATURE),
        "temperature_max_c": _highest(sensors, Quantity.TEMPERATURE),
        "sm_clock_mhz": _mean(sensors, Quantity.SM_CLOCK),
        "gpu_utilisation_pct": _mean(sensors, Quantity.GPU_UTILISATION),
        "held_down": ", ".join(reasons) or "nothing",
    }


def _memory_summary(key: str, sensors: SensorCurves) -> Record:
    return {
        "device": key,
        "memory_used_gib": _mean(sensors, Quantity.MEMORY_USED, B_PER_GIB),
        "memory_used_max_gib": _highest(sensors, Quantity.MEMORY_USED, B_PER_GIB),
        "memory_utilisation_pct": _mean(sensors, Quantity.MEMORY_UTILISATION),
        "memory_clock_mhz": _mean(sensors, Quantity.MEMORY_CLOCK),
        "pcie_tx_mb_s": _mean(sensors, Quantity.PCIE_TX),
        "pcie_rx_mb_s": _mean(sensors, Quantity.PCIE_RX),
    }


def _cpu_summary(key: str, sensors: SensorCurves) -> Record:
    return {
        "device": key,
        "load_pct": _mean(sensors, Quantity.LOAD),
        "load_max_pct": _highest(sensors, Quantity.LOAD),
    }


def _mean(sensors: SensorCurves, quantity: Quantity, per_unit: float = 1.0) -> float | None:
    """Mean of all readings, or None where there is none."""
    envelope: Envelope | None = sensors.columns.get(quantity)
    if envelope is None:
        return None
    return float(np.nansum(envelope.mean * envelope.count) / envelope.count.sum()) / per_unit


def _highest(sensors: SensorCurves, quantity: Quantity, per_unit: float = 1.0) -> float | None:
    envelope: Envelope | None = sensors.columns.get(quantity)
    return None if envelope is None else finite(float(np.nanmax(envelope.high)) / per_unit)


def _reasons(curves: RunCurves, sensors: SensorCurves) -> Iterator[Record]:
    """Intervals in which each reason reduced the clocks; neighbours with one share are merged."""
    for name, envelope in sensors.reasons.items():
        edges_s = (envelope.edges_ns - curves.interval.start_ns) / NS_PER_S
        columns = {"t_s": edges_s[:-1], "end_s": edges_s[1:], "share_pct": 100 * envelope.mean}
        records = with_fields(to_thinned_records(columns, reason=name), "share_pct")
        for share_pct, neighbours in groupby(records, key=itemgetter("share_pct")):
            first, *rest = neighbours
            if share_pct:
                yield {**first, "end_s": (rest or [first])[-1]["end_s"]}


def _work_title(summary: Sequence[Record]) -> str:
    used = _values(summary, "gpu_utilisation_pct")
    heat = _values(summary, "temperature_max_c")
    name, is_plural = _subject(summary)
    are, reach = ("are", "reach") if is_plural else ("is", "reaches")
    parts = [f"{are} busy {sum(used) / len(used):.0f} % of the time"] if used else []
    parts += [f"{reach} {max(heat):.0f} °C"] if heat else []
    return f"{name} {join_words(parts)}" if parts else f"Sensors of {name}"


def _memory_title(summary: Sequence[Record]) -> str:
    most_gib = _values(summary, "memory_used_max_gib")
    received = _values(summary, "pcie_rx_mb_s")
    name, is_plural = _subject(summary)
    use, receive, each = ("use", "receive", " each") if is_plural else ("uses", "receives", "")
    parts = [f"{use} up to {digits(max(most_gib))} GiB of memory{each}"] if most_gib else []
    if received:
        mean_mb_s = sum(received) / len(received)
        parts.append(f"{receive} {digits(mean_mb_s)} MB/s{each} over PCIe")
    return f"{name} {join_words(parts)}" if parts else f"Memory of {name}"


def _subject(summary: Sequence[Record]) -> tuple[str, bool]:
    """The subject of a title, and whether it is a plural."""
    is_plural = len(summary) > 1
    return f"{len(summary)} GPUs" if is_plural else str(summary[0]["device"]), is_plural


def _values(summary: Sequence[Record], name: str) -> list[float]:
    return [float(value) for record in summary if (value := record[name]) is not None]


def _draw(
    panels: Sequence[tuple[_SensorPanel, _Axis]],
    keys: Sequence[str],
    unit: DisplayUnit,
    *,
    has_reasons: bool,
) -> alt.TopLevelMixin:
    lowest = None if has_reasons else panels[-1][0]
    drawn = [
        _draw_panel(panel, axis, keys, encoding.time_axis(unit, is_bare=panel is not lowest), unit)
        for panel, axis in panels
    ]
    below = [_draw_reasons(unit)] if has_reasons else []
    stacked: alt.VConcatChart = alt.vconcat(*drawn, *below, spacing=6).resolve_scale(x="shared")
    return stacked


def _draw_panel(
    panel: _SensorPanel, axis: _Axis, keys: Sequence[str], x: alt.X, unit: DisplayUnit
) -> Any:
    base = (
        encoding.time_layer("sensors", unit)
        .transform_filter(alt.datum.quantity == panel.quantity.value)
        .transform_calculate(
            value=panel.unit.expression("mean"),
            least=panel.unit.expression("low"),
            most=panel.unit.expression("high"),
        )
    )
    ends = {"domainMin": axis.low} if axis.high is None else {"domain": [axis.low, axis.high]}
    options: dict[str, Any] = {
        "scale": alt.Scale(**ends, reverse=panel.reverse),
        "axis": alt.Axis(tickCount=4),
    }
    if len(keys) == 1:
        fields = ("least", "value", "most")
        layers = encoding.band_layers(
            base, x, fields, panel.title, is_single=axis.is_single, **options
        )
    else:
        y = alt.Y("value:Q", **options).title(panel.title)
        series = encoding.encode_lines("device", keys)
        if axis.is_single:
            layers = [base.mark_point(style="mean").encode(x=x, y=y, color=series["color"])]
        else:
            layers = [base.mark_line().encode(x=x, y=y, **series)]
    return alt.layer(*layers).properties(height=_PANEL_HEIGHT_PX)


def _draw_reasons(unit: DisplayUnit) -> Any:
    base = encoding.data_layer(
        "reasons", time=unit.expression("t_s"), until=unit.expression("end_s")
    )
    opacity = alt.Opacity("share_pct:Q").scale(domain=[0, 100], range=[0, 1]).legend(None)
    return (
        base.mark_rect()
        .encode(
            x=encoding.time_axis(unit),
            x2="until:Q",
            y=alt.Y("reason:N").title(None).axis(grid=False, labelLimit=0),
            opacity=opacity,
        )
        .properties(height=alt.Step(_REASON_HEIGHT_PX))
    )

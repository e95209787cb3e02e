"""Energy of a run: how it grew, with its error, and where it went, by device, idle and dynamic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.curves.run import RunCurves
from joulewise.analyse.curves.series import EnergyPart, Share, breakdown
from joulewise.data import Kind, RunResult
from joulewise.formatting import KINDS, capitalised, energy, plain, seconds
from joulewise.report.charts import encoding
from joulewise.report.charts.chart import Chart, alt
from joulewise.report.charts.encoding import DisplayUnit
from joulewise.report.charts.records import Record, record_table, to_records, with_fields

if TYPE_CHECKING:
    from joulewise.analyse.curves.series import CumulativeEnergy

_GROWTH_ROWS: Final = 10  # of the table to read; the other table has every moment that is drawn
_MIN_MOMENTS: Final = 3  # fewer are no curve
# Height in pixels of a bar with the space around it, and of the space above and below all bars.
_BAR_PX, _BARS_MARGIN_PX = 34, 10


def chart_energy(curves: RunCurves) -> Iterator[Chart]:
    """Energy so far over time."""
    cumulative, total = curves.cumulative, curves.result.run.total
    if cumulative is None or total is None or len(cumulative.t_s) < _MIN_MOMENTS:
        return
    records = with_fields(_cumulative_records(cumulative), "energy_j")
    step = max(len(records) // _GROWTH_ROWS, 1)
    yield Chart(
        key="energy",
        title=f"The run takes {energy(total)} in {seconds(curves.result.time_s)}",
        description=(
            "Energy of all counted devices from the start up to each moment. The band is its 95 % "
            "error. Most of that is the calibration error of the sensor: one unknown factor, which "
            "is constant over the run and cancels when runs on the same board are compared."
        ),
        tables={
            "tenths": record_table("Energy so far", "t_s energy_j error_j", records[::-step][::-1]),
            "growth": record_table(
                "Energy so far, every moment drawn", "t_s energy_j error_j", records
            ),
        },
        drawing=partial(
            draw_growth, encoding.energy_unit(total.value), encoding.time_unit(curves.result.time_s)
        ),
    )


def draw_growth(energy: DisplayUnit, time: DisplayUnit) -> alt.TopLevelMixin:
    """The table ``growth``: ``energy_j`` as a line in a band from ``low_j`` to ``high_j``."""
    base = encoding.time_layer("growth", time).transform_calculate(
        energy=energy.expression("energy_j"),
        low=energy.expression("low_j"),
        high=energy.expression("high_j"),
    )
    title = f"energy so far ({energy.name})"
    return alt.layer(
        *encoding.band_layers(base, encoding.time_axis(time), ("low", "energy", "high"), title)
    )


def _cumulative_records(cumulative: CumulativeEnergy) -> list[Record]:
    return to_records(
        {
            "t_s": cumulative.t_s,
            "energy_j": cumulative.energy_j,
            "error_j": cumulative.error_j,
            "low_j": np.maximum(cumulative.energy_j - cumulative.error_j, 0.0),
            "high_j": cumulative.energy_j + cumulative.error_j,
        }
    )


def chart_breakdown(result: RunResult) -> Iterator[Chart]:
    """Energy by device and part; not where there is only one device without a known idle power."""
    shares = breakdown(result)
    if result.run.total is None or len(shares) < 2:
        return
    whole_j = sum(share.energy_j for share in shares)
    records = [_part_record(share, whole_j) for share in shares]
    parts = [part.value for part in EnergyPart if any(share.part is part for share in shares)]
    labels = list(dict.fromkeys(str(record["label"]) for record in records))
    yield Chart(
        key="breakdown",
        title=(
            f"{capitalised(energy(result.run.total))}: what was read of each device"
            if result.run.total.at_least
            else f"{_largest_share(shares, whole_j)} of {energy(result.run.total)}"
        ),
        description=(
            "Energy of each counted device and its source: measured by a sensor, read from a "
            "simulated sensor, modelled from the load, or assumed. "
            + (
                "Idle is what the device would have drawn in that time without work; dynamic is "
                "what the work added. "
                if len(parts) > 1
                else ""
            )
            + "The lines are the 95 % error of a device's total energy."
        ),
        tables={
            "parts": record_table(
                "Energy by device and part",
                "device part energy_j error_j share_pct source",
                records,
            ),
            "devices": record_table(
                "Energy of the devices",
                "label energy_j low_j high_j",
                _device_records(result, shares),
                titles={"label": "device"},
            ),
        },
        drawing=partial(
            _draw_breakdown,
            parts,
            labels,
            encoding.energy_unit(max(share.energy_j for share in shares)),
        ),
    )


def _label(share: Share) -> str:
    return f"{plain(share.device)}, {share.source.value}"


def _part_record(share: Share, whole_j: float) -> Record:
    return {
        "device": plain(share.device),
        "label": _label(share),
        "part": share.part.value,
        "order": list(EnergyPart).index(share.part),
        "energy_j": share.energy_j,
        "error_j": share.error_j,
        "share_pct": 100 * share.energy_j / whole_j,
        "source": share.source.value,
    }


def _device_records(result: RunResult, shares: Sequence[Share]) -> list[Record]:
    """Each device once, with the bounds of its energy."""
    devices: dict[str, Record] = {}
    for share in shares:
        spent = result.run.devices[share.device].energy
        if spent is not None:
            devices[_label(share)] = {
                "label": _label(share),
                "energy_j": spent.value,
                "low_j": max(spent.value - spent.error, 0.0),
                "high_j": spent.value + spent.error,
            }
    return list(devices.values())


def _largest_share(shares: Sequence[Share], whole_j: float) -> str:
    by_kind: dict[str, float] = {}
    for share in shares:
        by_kind[share.kind] = by_kind.get(share.kind, 0.0) + share.energy_j
    kind, largest_j = max(by_kind.items(), key=lambda item: item[1])
    idle_j = sum(share.energy_j for share in shares if share.part is EnergyPart.IDLE)
    if len(by_kind) == 1 and idle_j:
        return f"Idle power accounts for {100 * idle_j / whole_j:.0f} %"
    is_plural = len({share.device for share in shares if share.kind == kind}) > 1
    takes = f"{KINDS[Kind(kind)]}s take" if is_plural else f"{KINDS[Kind(kind)]} takes"
    return f"The {takes} {100 * largest_j / whole_j:.0f} %"


def _draw_breakdown(
    parts: Sequence[str], labels: Sequence[str], unit: DisplayUnit
) -> alt.TopLevelMixin:
    y = alt.Y("label:N").title(None).sort(list(labels)).axis(labelLimit=0)
    x = alt.X("energy:Q").title(f"energy ({unit.name})").stack("zero").axis(tickCount=8)
    bars = encoding.data_layer(
        "parts", energy=unit.expression("energy_j"), text="format(datum.share_pct, '.0f') + ' %'"
    )
    errors = encoding.data_layer(
        "devices", low=unit.expression("low_j"), high=unit.expression("high_j")
    )
    series = encoding.encode_colour("part", parts) if len(parts) > 1 else {}
    return alt.layer(
        bars.mark_bar(style="cell").encode(x=x, y=y, order="order:Q", **series),
        encoding.interval_layer(errors, "x", "low", "high", y=y),
        height=_BAR_PX * len(labels) + _BARS_MARGIN_PX,
    )

"""How a run's energy grew, with its error.

Where a run's joules went: by device, idle and dynamic, and how each is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.curves.run import RunCurves
from joulewise.analyse.curves.series import EnergyPart, Share, breakdown
from joulewise.data import Kind, RunResult
from joulewise.formatting import KINDS, capitalised, energy, plain, seconds
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.run.time_axis import (
    Record,
    columns_as_records,
    known,
    record_table,
    time_axis,
    timed,
)
from joulewise.report.charts.theme import DisplayUnit, coloured, energy_unit, time_unit
from joulewise.report.tables import Column

if TYPE_CHECKING:
    import altair as alt

    from joulewise.analyse.curves.series import Growth

_COLUMNS: Final = {
    "t_s": Column("time", "s"),
    "energy_j": Column("energy so far", "J"),
    "error_j": Column("error (95 %)", "J"),
}
_ROWS: Final = 10


def energy_charts(curves: RunCurves) -> Iterator[Chart]:
    growth, total = curves.growth, curves.result.run.total
    if growth is None or total is None or len(growth.t_s) < 3:
        return
    records = known(_records(growth), "energy_j")
    step = max(len(records) // _ROWS, 1)
    tenths = records[::-step][::-1]
    yield Chart(
        key="energy",
        title=f"The run takes {energy(total)} in {seconds(curves.result.time_s)}",
        description=(
            "Energy of all devices that count, from the start up to each moment. The band is its "
            "error (95 %), most of which is one unknown factor of the board: it does not change "
            "from moment to moment, and cancels where runs on one board are compared."
        ),
        tables={
            "tenths": record_table("Energy so far", _COLUMNS, tenths),
            "growth": record_table("Energy so far, every moment drawn", _COLUMNS, records),
        },
        drawing=partial(
            draw_growth, "growth", energy_unit(total.value), time_unit(curves.result.time_s)
        ),
    )


def draw_growth(data: str, joules: DisplayUnit, unit: DisplayUnit) -> alt.TopLevelMixin:
    """``energy_j`` as a line, in a band from ``low_j`` to ``high_j``."""
    import altair as alt

    title = f"energy so far ({joules.name})"
    base = timed(alt.Chart(alt.NamedData(data)), unit).transform_calculate(
        energy=joules.expression("energy_j"),
        low=joules.expression("low_j"),
        high=joules.expression("high_j"),
    )
    x = time_axis(unit)
    return alt.layer(
        base.mark_area(style="band").encode(x=x, y=alt.Y("low:Q").title(title), y2="high:Q"),
        base.mark_line().encode(x=x, y=alt.Y("energy:Q").title(title)),
    )


def _records(growth: Growth) -> list[Record]:
    return columns_as_records(
        {
            "t_s": growth.t_s,
            "energy_j": growth.energy_j,
            "error_j": growth.error_j,
            "low_j": np.maximum(growth.energy_j - growth.error_j, 0.0),
            "high_j": growth.energy_j + growth.error_j,
        }
    )


if TYPE_CHECKING:
    import altair as alt

_RUN_BREAKDOWN_COLUMNS: Final = {
    "device": Column("device", right=False),
    "part": Column("part", right=False),
    "energy_j": Column("energy", "J"),
    "error_j": Column("error (95 %)", "J"),
    "share_pct": Column("share", "%"),
    "source": Column("source", right=False),
}

_DEVICES: Final = {
    "label": Column("device", right=False),
    "energy_j": Column("energy", "J"),
    "low_j": Column("low (95 %)", "J"),
    "high_j": Column("high (95 %)", "J"),
}


def breakdown_charts(result: RunResult) -> Iterator[Chart]:
    """Nothing is divided where one device counts and its idle power is not known."""
    shares = breakdown(result)
    if result.run.total is None or len(shares) < 2:
        return
    whole_j = sum(share.energy_j for share in shares)
    records = [_record(share, whole_j) for share in shares]
    parts = [part.value for part in EnergyPart if any(share.part is part for share in shares)]
    yield Chart(
        key="breakdown",
        title=(
            f"{capitalised(energy(result.run.total))}: what was read of each device"
            if result.run.total.at_least
            else f"{_title(shares, whole_j)} of {energy(result.run.total)}"
        ),
        description=(
            "Energy of each device that counts, and how it is known: measured by a sensor, told by "
            "a simulated one, modelled from the load, or assumed. Idle is what the device would "
            "have drawn in that time with nothing to do; dynamic is what the work added. The lines "
            "are the 95 % error of a device's whole energy."
        ),
        tables={
            "parts": record_table("Where the energy went", _RUN_BREAKDOWN_COLUMNS, records),
            "devices": record_table("Energy of the devices", _DEVICES, _devices(result, shares)),
        },
        drawing=partial(
            _draw,
            parts,
            list(dict.fromkeys(str(record["label"]) for record in records)),
            energy_unit(max(share.energy_j for share in shares)),
        ),
    )


def _record(share: Share, whole_j: float) -> Record:
    return {
        "device": plain(share.device),
        "label": f"{plain(share.device)}, {share.source.value}",
        "part": share.part.value,
        "order": list(EnergyPart).index(share.part),
        "energy_j": share.energy_j,
        "error_j": share.error_j,
        "share_pct": 100 * share.energy_j / whole_j,
        "source": share.source.value,
    }


def _devices(result: RunResult, shares: Sequence[Share]) -> list[Record]:
    """Each device once, with the bounds of its energy."""
    found: dict[str, Record] = {}
    for share in shares:
        energy_j = result.run.devices[share.device].energy
        if energy_j is not None:
            label = f"{plain(share.device)}, {share.source.value}"
            found[label] = {
                "label": label,
                "energy_j": energy_j.value,
                "low_j": max(energy_j.value - energy_j.error, 0.0),
                "high_j": energy_j.value + energy_j.error,
            }
    return list(found.values())


def _title(shares: Sequence[Share], whole_j: float) -> str:
    by_kind: dict[str, float] = {}
    for share in shares:
        by_kind[share.kind] = by_kind.get(share.kind, 0.0) + share.energy_j
    kind, most_j = max(by_kind.items(), key=lambda each: each[1])
    idle_j = sum(share.energy_j for share in shares if share.part is EnergyPart.IDLE)
    if len(by_kind) == 1 and idle_j:
        return f"Idling would have taken {100 * idle_j / whole_j:.0f} %"
    many = len({share.device for share in shares if share.kind == kind}) > 1
    takes = f"{KINDS[Kind(kind)]}s take" if many else f"{KINDS[Kind(kind)]} takes"
    return f"The {takes} {100 * most_j / whole_j:.0f} %"


def _draw(parts: Sequence[str], labels: Sequence[str], joules: DisplayUnit) -> alt.TopLevelMixin:
    import altair as alt

    base = alt.Chart(alt.NamedData("parts")).transform_calculate(
        energy=joules.expression("energy_j"),
        text="format(datum.share_pct, '.0f') + ' %'",
    )
    y = alt.Y("label:N").title(None).sort(list(labels)).axis(labelLimit=0)
    x = alt.X("energy:Q").title(f"energy ({joules.name})").stack("zero").axis(tickCount=8)
    bars = base.mark_bar(style="cell").encode(
        x=x,
        y=y,
        order="order:Q",
        **coloured("part", parts),
    )
    errors = (
        alt.Chart(alt.NamedData("devices"))
        .transform_calculate(low=joules.expression("low_j"), high=joules.expression("high_j"))
        .mark_rule(style="interval")
        .encode(x=alt.X("low:Q"), x2="high:Q", y=y)
    )
    return alt.layer(bars, errors, height=34 * len(labels) + 10)

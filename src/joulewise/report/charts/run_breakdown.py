"""Where a run's joules went: by device, idle and dynamic, and how each is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from joulewise.analyse.curves.breakdown import Part, Share, breakdown
from joulewise.data import Kind, RunResult
from joulewise.report.charts.axes import Unit, energy_unit
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.run_tables import Record, record_table
from joulewise.report.charts.series import coloured
from joulewise.report.figures import capitalised, energy, plain
from joulewise.report.tables import Column
from joulewise.report.words import KINDS

if TYPE_CHECKING:
    import altair as alt

_COLUMNS: Final = {
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
    parts = [part.value for part in Part if any(share.part is part for share in shares)]
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
            "parts": record_table("Where the energy went", _COLUMNS, records),
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
        "order": list(Part).index(share.part),
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
    idle_j = sum(share.energy_j for share in shares if share.part is Part.IDLE)
    if len(by_kind) == 1 and idle_j:
        return f"Idling would have taken {100 * idle_j / whole_j:.0f} %"
    many = len({share.device for share in shares if share.kind == kind}) > 1
    takes = f"{KINDS[Kind(kind)]}s take" if many else f"{KINDS[Kind(kind)]} takes"
    return f"The {takes} {100 * most_j / whole_j:.0f} %"


def _draw(parts: Sequence[str], labels: Sequence[str], joules: Unit) -> alt.TopLevelMixin:
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

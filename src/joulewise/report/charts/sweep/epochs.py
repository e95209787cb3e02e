"""Energy and time of an epoch at each limit, as box plots over the epochs of all repetitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any, Final

from joulewise.analyse.curves.series import Stage, gpu_stages
from joulewise.analyse.stored_result import result_of
from joulewise.data.sweeps import POWER_LIMIT
from joulewise.errors import JoulewiseError
from joulewise.formatting import joules, seconds
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.run.time_axis import Record, record_table
from joulewise.report.charts.sweep.source import Swept, at, runs_at
from joulewise.report.charts.theme import DisplayUnit, energy_unit, time_unit
from joulewise.report.settings_text import counted
from joulewise.report.tables import Column

if TYPE_CHECKING:
    import altair as alt

_WIDEST_BOX: Final = 18  # pixels, as in the figure of one run's epochs
_ROOM: Final = 200  # pixels that the boxes of a panel share

_QUANTITIES: Final = {"energy_j": "energy", "time_s": "time"}
_EPOCHS: Final = {
    POWER_LIMIT: Column("limit", "W"),
    "quantity": Column("quantity", right=False),
    "runs": Column("runs"),
    "epochs": Column("epochs"),
    "least": Column("least"),
    "q1": Column("lower quartile"),
    "median": Column("median"),
    "q3": Column("upper quartile"),
    "most": Column("most"),
}


@dataclass(frozen=True)
class _Limit:
    """The epochs of all runs at one limit that can be read."""

    limit_w: float
    runs: int
    epochs: tuple[Stage, ...]


def epochs_by_limit_charts(seen: Swept, store: Path | None) -> Iterator[Chart]:
    along = seen.main_slice
    if store is None or along is None:
        return
    limits = [
        limit
        for limit_w in along.values
        if (limit := _read(limit_w, runs_at(seen, store, along, limit_w))).epochs
    ]
    if len(limits) < 2 or max(len(limit.epochs) for limit in limits) < 2:
        return
    records = [record for limit in limits for record in _records(limit)]
    epochs = sum(len(limit.epochs) for limit in limits)
    yield Chart(
        key="epochs-by-limit",
        title=_title(limits) + at(along.where),
        description=(
            f"Energy of the GPUs and time of {counted(epochs, 'epoch')} at "
            f"{counted(len(limits), 'limit')}. A box holds the middle half of the epochs of all "
            "runs at its limit, the line in it is the median, whiskers reach to the least and "
            "the most."
        ),
        tables={"epochs": record_table("Epochs at each limit", _EPOCHS, records)},
        drawing=partial(
            _draw,
            energy_unit(_most(records, "energy_j")),
            time_unit(_most(records, "time_s")),
            len(limits),
        ),
    )


def _read(limit_w: float, runs: Sequence[Path]) -> _Limit:
    """A run that cannot be read any more, or has no epoch, is not in it."""
    read = [epochs for run in runs if (epochs := _epochs(run))]
    return _Limit(limit_w, len(read), tuple(epoch for epochs in read for epoch in epochs))


def _epochs(run: Path) -> list[Stage]:
    try:
        return gpu_stages(result_of(run))
    except (JoulewiseError, OSError, ValueError, KeyError, TypeError):  # Arrow's are ValueErrors
        return []


def _records(limit: _Limit) -> Iterator[Record]:
    values = {
        "energy_j": [one.energy.value for one in limit.epochs],
        "time_s": [one.time_s for one in limit.epochs],
    }
    for quantity, each in values.items():
        q1, median, q3 = quantiles(each, n=4, method="inclusive") if len(each) > 1 else each * 3
        yield {
            POWER_LIMIT: limit.limit_w,
            "quantity": quantity,
            "runs": limit.runs,
            "epochs": len(each),
            "least": min(each),
            "q1": q1,
            "median": median,
            "q3": q3,
            "most": max(each),
        }


def _most(records: Sequence[Record], quantity: str) -> float:
    return max(float(it["most"] or 0.0) for it in records if it["quantity"] == quantity)


def _title(limits: Sequence[_Limit]) -> str:
    said = []
    for limit in (limits[0], limits[-1]):
        energy, time = _records(limit)
        said.append(
            f"{joules(float(energy['median'] or 0.0))} and "
            f"{seconds(float(time['median'] or 0.0))} at {limit.limit_w:g} W"
        )
    return f"An epoch takes {', '.join(said)}"


def _draw(energy: DisplayUnit, time: DisplayUnit, limits: int) -> alt.TopLevelMixin:
    import altair as alt

    units = {"energy_j": energy, "time_s": time}
    return alt.hconcat(*(_panel(quantity, unit, limits) for quantity, unit in units.items()))


def _panel(quantity: str, unit: DisplayUnit, limits: int) -> Any:
    import altair as alt

    title = f"{_QUANTITIES[quantity]} of an epoch ({unit.name})"
    base = (
        alt.Chart(alt.NamedData("epochs"))
        .transform_filter(alt.datum.quantity == quantity)
        .transform_calculate(
            **{name: unit.expression(name) for name in ("least", "q1", "median", "q3", "most")}
        )
    )
    x = alt.X(f"{POWER_LIMIT}:O").title("power limit (W)").axis(labelAngle=0)
    least, q1, median = (
        alt.Y(f"{name}:Q").title(title).scale(zero=False) for name in ("least", "q1", "median")
    )
    size = max(min(_WIDEST_BOX, _ROOM // limits), 2)
    return alt.layer(
        base.mark_rule(style="interval").encode(x=x, y=least, y2="most:Q"),
        base.mark_bar(style="box", size=size).encode(x=x, y=q1, y2="q3:Q"),
        base.mark_tick(style="median", size=size).encode(x=x, y=median),
    ).properties(height=240)

"""Energy and time per epoch at each power limit, as box plots over the epochs of all runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

from joulewise.analyse.curves.series import Stage, gpu_stages
from joulewise.analyse.stored_result import load_or_compute_result
from joulewise.data.sweeps import POWER_LIMIT
from joulewise.errors import JoulewiseError
from joulewise.formatting import joules, seconds
from joulewise.report.charts import encoding
from joulewise.report.charts.chart import Chart, alt
from joulewise.report.charts.encoding import DisplayUnit
from joulewise.report.charts.records import Record, record_table
from joulewise.report.charts.sweep.source import SweptData, title_suffix
from joulewise.report.charts.theme import EPOCH_PANEL_PX, box_width_px
from joulewise.report.settings_text import counted


@dataclass(frozen=True)
class _LimitEpochs:
    """The epochs of all runs at one limit that can be read."""

    limit_w: float
    runs: int
    epochs: tuple[Stage, ...]


def chart_epochs_by_limit(data: SweptData, store: Path | None) -> Iterator[Chart]:
    """Where at least two limits have epochs, and one of them several."""
    along = data.main_slice
    if store is None or along is None:
        return
    limits = [
        limit
        for limit_w in along.values
        if (limit := _read_limit(limit_w, data.runs_at(store, along, limit_w))).epochs
    ]
    if len(limits) < 2 or max(len(limit.epochs) for limit in limits) < 2:
        return
    records = [record for limit in limits for record in _records(limit)]
    epochs = sum(len(limit.epochs) for limit in limits)
    most_j, most_s = (
        max(float(record["most"] or 0.0) for record in records if record["quantity"] == field)
        for field in encoding.QUANTITIES
    )
    yield Chart(
        key="epochs-by-limit",
        title=_title(limits) + title_suffix(along.where),
        description=(
            f"Energy of the GPUs and time of {counted(epochs, 'epoch')} at "
            f"{counted(len(limits), 'limit')}. A box spans the middle half of the epochs of all "
            "runs at its limit with a line at the median; whiskers reach to the minimum and the "
            "maximum."
        ),
        tables={
            "epochs": record_table(
                "Epochs at each limit",
                "power_limit_w quantity runs epochs least q1 median q3 most",
                records,
            )
        },
        drawing=partial(
            _draw,
            {"energy_j": encoding.energy_unit(most_j), "time_s": encoding.time_unit(most_s)},
            len(limits),
        ),
    )


def _read_limit(limit_w: float, runs: Sequence[Path]) -> _LimitEpochs:
    """Without runs that cannot be read any more, or have no epoch."""
    read = [epochs for run in runs if (epochs := _read_epochs(run))]
    return _LimitEpochs(limit_w, len(read), tuple(epoch for epochs in read for epoch in epochs))


def _read_epochs(run: Path) -> list[Stage]:
    try:
        return gpu_stages(load_or_compute_result(run))
    except (JoulewiseError, OSError, ValueError, KeyError, TypeError):  # Arrow's are ValueErrors
        return []


def _records(limit: _LimitEpochs) -> Iterator[Record]:
    quantities = {
        "energy_j": [epoch.energy.value for epoch in limit.epochs],
        "time_s": [epoch.time_s for epoch in limit.epochs],
    }
    for quantity, values in quantities.items():
        is_single = len(values) == 1
        q1, median, q3 = values * 3 if is_single else quantiles(values, n=4, method="inclusive")
        yield {
            POWER_LIMIT: limit.limit_w,
            "quantity": quantity,
            "runs": limit.runs,
            "epochs": len(values),
            "least": min(values),
            "q1": q1,
            "median": median,
            "q3": q3,
            "most": max(values),
        }


def _title(limits: Sequence[_LimitEpochs]) -> str:
    parts = []
    for limit in (limits[0], limits[-1]):
        energy, time = (float(record["median"] or 0.0) for record in _records(limit))
        parts.append(f"{joules(energy)} and {seconds(time)} at {limit.limit_w:g} W")
    return f"An epoch takes {', '.join(parts)}"


def _draw(units: Mapping[str, DisplayUnit], limits: int) -> alt.TopLevelMixin:
    return alt.hconcat(*(_draw_panel(field, unit, limits) for field, unit in units.items()))


def _draw_panel(field: str, unit: DisplayUnit, limits: int) -> Any:
    base = (
        encoding.data_layer("epochs")
        .transform_filter(alt.datum.quantity == field)
        .transform_calculate(
            **{name: unit.expression(name) for name in ("least", "q1", "median", "q3", "most")}
        )
    )
    x = alt.X(f"{POWER_LIMIT}:O").title("power limit (W)").axis(labelAngle=0)
    title = f"{encoding.QUANTITIES[field]} per epoch ({unit.name})"
    least, q1, median = (
        alt.Y(f"{name}:Q").title(title).scale(zero=False) for name in ("least", "q1", "median")
    )
    size = box_width_px(limits)
    return alt.layer(
        base.mark_rule(style="interval").encode(x=x, y=least, y2="most:Q"),
        base.mark_bar(style="box", size=size).encode(x=x, y=q1, y2="q3:Q"),
        base.mark_tick(style="median", size=size).encode(x=x, y=median),
    ).properties(height=EPOCH_PANEL_PX)

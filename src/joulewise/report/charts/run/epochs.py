"""Energy and time of each epoch: of one run as points, of several as box plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean, quantiles
from typing import TYPE_CHECKING, Any, Final

from joulewise.analyse.curves.series import Stage, whole_stages
from joulewise.data import RunResult
from joulewise.formatting import between, one_line, seconds
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.run.time_axis import Record, record_table, spread
from joulewise.report.charts.theme import DisplayUnit, energy_unit, time_unit
from joulewise.report.tables import Column

if TYPE_CHECKING:
    import altair as alt

_FEWEST: Final = 2
_BOXES: Final = 40  # more have no room
_FOR_QUARTILES: Final = 8
_ALIKE: Final = 0.001
_EPOCH: Final = {
    "epoch": Column("epoch"),
    "time_s": Column("time", "s"),
    "energy_j": Column("energy", "J"),
    "error_j": Column("error (95 %)", "J"),
    "mean_w": Column("mean power", "W"),
}
_QUARTILES: Final = {
    "quantity": Column("quantity", right=False),
    "q1": Column("lower quartile"),
    "median": Column("median"),
    "q3": Column("upper quartile"),
}


@dataclass(frozen=True)
class _EpochPanel:
    """``domain`` is set where all values are alike: their last digits are nothing to look at."""

    field: str
    title: str
    unit: DisplayUnit
    domain: tuple[float, float] | None


def epoch_charts(result: RunResult) -> Iterator[Chart]:
    """Of one run; where it has no epochs, of its steps."""
    for name in ("epoch", "step"):
        found = whole_stages(result, name)
        if len(found) >= _FEWEST:
            yield _of_one(found, name)
            return


def epochs_of_runs_charts(results: Sequence[RunResult]) -> Iterator[Chart]:
    records = [
        _record(one, run=one_line(result.id)) for result in results for one in whole_stages(result)
    ]
    epochs = len({record["epoch"] for record in records})
    if len(records) == epochs or not epochs:
        return
    energies = [float(record["energy_j"] or 0.0) for record in records]
    yield Chart(
        key="epochs",
        title=f"An epoch takes {spread(energies, 'J')} in {len(results)} runs",
        description=(
            f"Energy and time of each epoch over {len(results)} runs: the box holds the middle "
            "half of the runs, the line in it is the median, whiskers reach to the least and the "
            "most."
        ),
        tables={
            "epochs": record_table(
                "Epochs of all runs", {"run": Column("run", right=False), **_EPOCH}, records
            )
        },
        drawing=partial(_draw_boxes, *_units(records), epochs),
    )


def _of_one(found: Sequence[Stage], name: str) -> Chart:
    records = [_record(one) for one in found]
    energies = [float(record["energy_j"] or 0.0) for record in records]
    times = [float(record["time_s"] or 0.0) for record in records]
    is_many = len(records) >= _FOR_QUARTILES
    quartiles = [_quartiles("energy_j", energies), _quartiles("time_s", times)] if is_many else []
    noun = name.capitalize()
    article = "An" if name == "epoch" else "A"
    return Chart(
        key=f"{name}s",
        title=f"{article} {name} takes {spread(energies, 'J')} and {seconds(mean(times))}",
        description=(
            f"Energy and time of each {name}, in the order in which they ran: "
            f"{between(min(energies), max(energies), 'J')}, "
            f"{between(min(times), max(times), 's')}. Bars are what the energy may be off by "
            "(95 %, without the factor that is the same for all)."
            + (
                " The band holds the middle half of them, the line is the median."
                if is_many
                else ""
            )
        ),
        tables={
            "epochs": record_table(f"{noun}s", {**_EPOCH, "epoch": Column(name)}, records),
            "quartiles": record_table("Quartiles", _QUARTILES, quartiles),
        },
        drawing=partial(
            _draw_points,
            _panel("energy", name, energies, energy_unit(max(energies))),
            _panel("time", name, times, time_unit(max(times))),
            name,
            len(records),
        ),
    )


def _record(one: Stage, **same: str) -> Record:
    return {
        **same,
        "epoch": one.number,
        "time_s": one.time_s,
        "energy_j": one.energy.value,
        "error_j": one.energy.error,
        "low_j": one.energy.value - one.energy.error_sampling,
        "high_j": one.energy.value + one.energy.error_sampling,
        "mean_w": one.energy.value / one.time_s if one.time_s else None,
    }


def _quartiles(quantity: str, values: Sequence[float]) -> Record:
    q1, median, q3 = quantiles(values, n=4, method="inclusive")
    return {"quantity": quantity, "q1": q1, "median": median, "q3": q3}


def _units(records: Sequence[Record]) -> tuple[DisplayUnit, DisplayUnit]:
    most = (max(float(r[name] or 0) for r in records) for name in ("energy_j", "time_s"))
    most_j, most_s = most
    return energy_unit(most_j), time_unit(most_s)


def _panel(quantity: str, name: str, values: Sequence[float], unit: DisplayUnit) -> _EpochPanel:
    title = f"{quantity} of {_a(name)} ({unit.name})"
    low, high = min(values) / unit.of, max(values) / unit.of
    alike = high - low < _ALIKE * abs(high)
    field = "energy_j" if quantity == "energy" else "time_s"
    return _EpochPanel(field, title, unit, (0.95 * low, 1.05 * high) if alike else None)


def _draw_points(energy: _EpochPanel, time: _EpochPanel, name: str, many: int) -> alt.TopLevelMixin:
    import altair as alt

    return alt.hconcat(*(_points(panel, name, many) for panel in (energy, time)))


def _points(panel: _EpochPanel, name: str, many: int) -> Any:
    import altair as alt

    quantity, title, unit = panel.field, panel.title, panel.unit
    scale = alt.Scale(domain=list(panel.domain)) if panel.domain else alt.Scale(zero=False)
    whole = alt.Scale(domain=[0.5, many + 0.5], nice=False)
    x = alt.X("epoch:Q").title(name).axis(tickMinStep=1, format="d").scale(whole)
    y, low = (alt.Y(f"{field}:Q").title(title).scale(scale) for field in ("value", "low"))
    base = alt.Chart(alt.NamedData("epochs")).transform_calculate(
        value=unit.expression(quantity),
        low=unit.expression("low_j"),
        high=unit.expression("high_j"),
    )
    around = (
        alt.Chart(alt.NamedData("quartiles"))
        .transform_filter(alt.datum.quantity == quantity)
        .transform_calculate(
            low=unit.expression("q1"), high=unit.expression("q3"), value=unit.expression("median")
        )
    )
    layers: list[Any] = []
    if many >= _FOR_QUARTILES:
        layers += [
            around.mark_rect(style="stretch").encode(y=low, y2="high:Q"),
            around.mark_rule(style="reference").encode(y=y),
        ]
    if quantity == "energy_j":
        bars = base.mark_rule(style="interval")
        layers.append(bars.encode(x=x, y=low, y2="high:Q"))
    layers.append(base.mark_point(style="mean" if many <= _BOXES else "run").encode(x=x, y=y))
    return alt.layer(*layers).properties(height=240)


def _draw_boxes(energy: DisplayUnit, time: DisplayUnit, epochs: int) -> alt.TopLevelMixin:
    import altair as alt

    panels = []
    for quantity, title, unit in (
        ("energy_j", f"energy of an epoch ({energy.name})", energy),
        ("time_s", f"time of an epoch ({time.name})", time),
    ):
        base = alt.Chart(alt.NamedData("epochs")).transform_calculate(
            value=unit.expression(quantity)
        )
        y = alt.Y("value:Q").title(title).scale(zero=False)
        if epochs <= _BOXES:
            x = alt.X("epoch:O").title("epoch").axis(labelAngle=0)
            drawn = base.mark_boxplot(extent="min-max", size=min(18, 200 // epochs)).encode(
                x=x, y=y
            )
        else:
            x_wide = alt.X("epoch:Q").title("epoch").axis(tickMinStep=1, format="d")
            drawn = base.mark_point(style="run").encode(x=x_wide, y=y)
        panels.append(drawn.properties(height=240))
    return alt.hconcat(*panels)


def _a(name: str) -> str:
    return f"an {name}" if name == "epoch" else f"a {name}"

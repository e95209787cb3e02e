"""Energy and time of each epoch: of one run as points, of several as box plots."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from statistics import mean, quantiles
from typing import Any, Final

from joulewise.analyse.curves.series import Stage, whole_stages
from joulewise.data import RunResult
from joulewise.formatting import between, one_line, seconds
from joulewise.report.charts.chart import Chart, alt
from joulewise.report.charts.encoding import QUANTITIES, DisplayUnit, data_layer, display_units
from joulewise.report.charts.records import Record, mean_and_deviation, record_table
from joulewise.report.charts.theme import EPOCH_PANEL_PX, box_width_px

_MIN_EPOCHS: Final = 2  # one is the run itself
_MAX_BOXES: Final = 40  # more would touch in a panel 250 px wide
_MIN_FOR_QUARTILES: Final = 8  # two epochs in each quarter
# Where values differ by less than this share, the axis is widened by 5 % on both sides, so that
# the figure does not magnify their last digits.
_SAME_WITHIN: Final = 0.001
_FIELDS: Final = "epoch time_s energy_j error_j mean_w"


def chart_epochs(result: RunResult) -> Iterator[Chart]:
    """Epochs of one run; where it has none, its steps."""
    for name in ("epoch", "step"):
        found = whole_stages(result, name)
        if len(found) >= _MIN_EPOCHS:
            yield _chart_one_run(found, name)
            return


def chart_epochs_of_runs(results: Sequence[RunResult]) -> Iterator[Chart]:
    """Epochs of several runs, a box for each epoch."""
    records = [
        _record(epoch, run=one_line(result.id))
        for result in results
        for epoch in whole_stages(result)
    ]
    epochs = len({record["epoch"] for record in records})
    if len(records) == epochs or not epochs:
        return
    energies = [float(record["energy_j"] or 0.0) for record in records]
    yield Chart(
        key="epochs",
        title=f"An epoch takes {mean_and_deviation(energies, 'J')} in {len(results)} runs",
        description=(
            f"Energy and time of each epoch over {len(results)} runs. A box spans the middle half "
            "of the runs with a line at the median; whiskers reach to the minimum and the maximum."
        ),
        tables={"epochs": record_table("Epochs of all runs", f"run {_FIELDS}", records)},
        drawing=partial(_draw_boxes, display_units(records), epochs),
    )


def _chart_one_run(found: Sequence[Stage], name: str) -> Chart:
    """``name`` is ``epoch`` or ``step``."""
    records = [_record(stage) for stage in found]
    values = {field: [float(record[field] or 0.0) for record in records] for field in QUANTITIES}
    energies, times = values.values()
    has_quartiles = len(records) >= _MIN_FOR_QUARTILES
    quartiles = [_quartiles(*item) for item in values.items()] if has_quartiles else []
    article = "An" if name == "epoch" else "A"
    return Chart(
        key=f"{name}s",
        title=(
            f"{article} {name} takes {mean_and_deviation(energies, 'J')} and {seconds(mean(times))}"
        ),
        description=(
            f"Energy and time of each {name}, in the order in which they ran: "
            f"{between(min(energies), max(energies), 'J')}, "
            f"{between(min(times), max(times), 's')}. Bars are the 95 % sampling error of the "
            f"energy, without the calibration error, which is the same for every {name}."
            + (
                f" The band spans the middle half of the {name}s; the line is the median."
                if has_quartiles
                else ""
            )
        ),
        tables={
            "epochs": record_table(
                f"{name.capitalize()}s", _FIELDS, records, titles={"epoch": name}
            ),
            "quartiles": record_table("Quartiles", "quantity q1 median q3", quartiles),
        },
        drawing=partial(_draw_points, values, display_units(records), name),
    )


def _record(stage: Stage, **constant: str) -> Record:
    return {
        **constant,
        "epoch": stage.number,
        "time_s": stage.time_s,
        "energy_j": stage.energy.value,
        "error_j": stage.energy.error,
        "low_j": stage.energy.value - stage.energy.error_sampling,
        "high_j": stage.energy.value + stage.energy.error_sampling,
        "mean_w": stage.energy.value / stage.time_s if stage.time_s else None,
    }


def _quartiles(quantity: str, values: Sequence[float]) -> Record:
    q1, median, q3 = quantiles(values, n=4, method="inclusive")
    return {"quantity": quantity, "q1": q1, "median": median, "q3": q3}


def _draw_points(
    values: Mapping[str, Sequence[float]], units: Mapping[str, DisplayUnit], name: str
) -> alt.TopLevelMixin:
    return alt.hconcat(
        *(_points_panel(field, values[field], unit, name) for field, unit in units.items())
    )


def _points_panel(field: str, values: Sequence[float], unit: DisplayUnit, name: str) -> Any:
    lowest, highest = min(values) / unit.of, max(values) / unit.of
    scale = alt.Scale(zero=False)
    if highest - lowest < _SAME_WITHIN * abs(highest):
        scale = alt.Scale(domain=[0.95 * lowest, 1.05 * highest])
    numbers = alt.Scale(domain=[0.5, len(values) + 0.5], nice=False)
    x = alt.X("epoch:Q").title(name).axis(tickMinStep=1, format="d").scale(numbers)
    title = f"{QUANTITIES[field]} per {name} ({unit.name})"
    y, low = (alt.Y(f"{shown}:Q").title(title).scale(scale) for shown in ("value", "low"))
    base = data_layer(
        "epochs",
        value=unit.expression(field),
        low=unit.expression("low_j"),
        high=unit.expression("high_j"),
    )
    layers: list[Any] = []
    if len(values) >= _MIN_FOR_QUARTILES:
        quartiles = (
            data_layer("quartiles")
            .transform_filter(alt.datum.quantity == field)
            .transform_calculate(
                low=unit.expression("q1"),
                high=unit.expression("q3"),
                value=unit.expression("median"),
            )
        )
        layers += [
            quartiles.mark_rect(style="stretch").encode(y=low, y2="high:Q"),
            quartiles.mark_rule(style="reference").encode(y=y),
        ]
    if field == "energy_j":
        layers.append(base.mark_rule(style="interval").encode(x=x, y=low, y2="high:Q"))
    style = "mean" if len(values) <= _MAX_BOXES else "run"
    layers.append(base.mark_point(style=style).encode(x=x, y=y))
    return alt.layer(*layers).properties(height=EPOCH_PANEL_PX)


def _draw_boxes(units: Mapping[str, DisplayUnit], epochs: int) -> alt.TopLevelMixin:
    panels = []
    for field, unit in units.items():
        base = data_layer("epochs", value=unit.expression(field))
        title = f"{QUANTITIES[field]} per epoch ({unit.name})"
        y = alt.Y("value:Q").title(title).scale(zero=False)
        if epochs <= _MAX_BOXES:
            x = alt.X("epoch:O").title("epoch").axis(labelAngle=0)
            marks = base.mark_boxplot(extent="min-max", size=box_width_px(epochs))
        else:
            x = alt.X("epoch:Q").title("epoch").axis(tickMinStep=1, format="d")
            marks = base.mark_point(style="run")
        panels.append(marks.encode(x=x, y=y).properties(height=EPOCH_PANEL_PX))
    return alt.hconcat(*panels)

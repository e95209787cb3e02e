"""Savings by system boundary: what a choice saves or costs where more than the GPU is counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from joulewise.metrics.boundary import BOUNDARIES
from joulewise.metrics.metric import parse
from joulewise.metrics.result import Choice, Interval
from joulewise.report.charts import encoding
from joulewise.report.charts.chart import Chart, alt
from joulewise.report.charts.sweep.source import SweptData, change_text
from joulewise.report.settings_text import BOUNDARY_NAMES, change, setting_words
from joulewise.report.tables import Column, Table
from joulewise.report.views.sweep_tables import bounds, has_bounds

# Ratios closer than this are drawn as one: they would overlap, and print alike to 0.1 %.
_SAME_RATIO: Final = 0.002
_CHOICE_PX: Final = 56  # height in pixels of each choice, for up to three boundaries


def chart_boundaries(data: SweptData) -> Iterator[Chart]:
    """Only where boundaries differ: a factor such as PUE is the same in both terms of a ratio."""
    choices = [choice for choice in data.choices if len(_ratios(choice)) > 1]
    names = _boundary_names(choices) if choices else {}
    if len(names) < 2:
        return
    assumed = [BOUNDARY_NAMES[boundary] for boundary in names if boundary in data.result.assumed]
    table = _table(choices, names)
    yield Chart(
        key="boundaries",
        title=_title(choices, names),
        description=(
            "Energy of each best setting relative to the reference, by system boundary "
            f"({', '.join(names.values())}), with 95 % intervals; above 1 it costs energy."
            + (
                f" For the {' and the '.join(assumed)}, the power outside the GPUs is assumed."
                if assumed
                else ""
            )
        ),
        tables={"boundaries": table},
        drawing=partial(
            _draw,
            [_row_label(choice) for choice in choices],
            list(names.values()),
            has_bars=has_bounds(table, "energy_ratio"),
        ),
    )


def _ratios(choice: Choice) -> dict[str, Interval]:
    return {name: ratio for name in BOUNDARIES if (ratio := choice.at.get(name))}


def _boundary_names(choices: Sequence[Choice]) -> dict[str, str]:
    """Names of the boundaries; neighbours at which every ratio is the same share one."""
    names: dict[str, str] = {}
    for boundary in BOUNDARIES:
        ratios = [_ratios(choice).get(boundary) for choice in choices]
        last = next(reversed(names), "")
        before = [_ratios(choice).get(last) for choice in choices]
        pairs = zip(ratios, before, strict=True)
        if all(a and b and abs(a.mean - b.mean) < _SAME_RATIO for a, b in pairs):
            names[last] += f" and {BOUNDARY_NAMES[boundary]}"
        elif any(ratios):
            names[boundary] = BOUNDARY_NAMES[boundary]
    return names


def _title(choices: Sequence[Choice], names: Mapping[str, str]) -> str:
    """Of the choice that changes most from the first boundary to the last."""
    first, *_, last = names

    def difference(choice: Choice) -> float:
        ratios = _ratios(choice)
        both = first in ratios and last in ratios
        return ratios[last].mean - ratios[first].mean if both else 0.0

    choice = max(choices, key=difference)
    ratios = _ratios(choice)
    if first not in ratios or last not in ratios:
        return "Savings depend on the system boundary"
    return (
        f"{setting_words(choice.setting)} takes {change_text(ratios[first])} energy at the "
        f"{names[first]} and {change_text(ratios[last])} at the {names[last]}"
    )


def _row_label(choice: Choice) -> str:
    return f"{parse(choice.metric).label}: {setting_words(choice.setting)}"


def _table(choices: Sequence[Choice], names: Mapping[str, str]) -> Table:
    return Table(
        "Savings by system boundary",
        (
            Column("metric", right=False),
            Column("best setting", right=False),
            *(Column(f"energy {name}") for name in names.values()),
        ),
        tuple(
            (
                parse(choice.metric).label,
                setting_words(choice.setting),
                *(change(_ratios(choice).get(boundary)) for boundary in names),
            )
            for choice in choices
        ),
        tuple(
            {
                "choice": _row_label(choice),
                "boundary": names[boundary],
                **bounds("energy_ratio", _ratios(choice)[boundary]),
            }
            for choice in choices
            for boundary in names
            if boundary in _ratios(choice)
        ),
    )


def _draw(rows: Sequence[str], boundaries: Sequence[str], *, has_bars: bool) -> alt.TopLevelMixin:
    series = encoding.encode_points("boundary", boundaries, "system boundary")
    x = alt.X("energy_ratio:Q", axis=alt.Axis(tickCount=6)).scale(zero=False)
    base = (
        encoding.data_layer("boundaries")
        .properties(height=_CHOICE_PX * len(rows))
        .encode(
            x=x.title("energy relative to the reference"),
            y=alt.Y("choice:N", sort=list(rows)).title(None).axis(labelLimit=260),
            yOffset=alt.YOffset("boundary:N", sort=list(boundaries)),
            color=series["color"],
        )
    )
    bars = encoding.interval_layer(base, "x", "energy_ratio_low", "energy_ratio_high")
    return alt.layer(
        encoding.reference_line("boundaries", "x"),
        *([bars] if has_bars else ()),
        base.mark_point(style="mean").encode(shape=series["shape"]),
    )

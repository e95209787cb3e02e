"""What a choice saves or costs where more is counted than the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from joulewise.metrics.boundary import BOUNDARIES
from joulewise.metrics.metric import parse
from joulewise.metrics.result import Choice, Interval
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.sweep.source import Swept
from joulewise.report.charts.theme import shaped
from joulewise.report.settings_text import COUNTED, change, setting_words
from joulewise.report.tables import Column, Table
from joulewise.report.views.sweep_tables import bounds, has_bounds

if TYPE_CHECKING:
    import altair as alt

_SAME: Final = 0.002


def boundaries_charts(seen: Swept) -> Iterator[Chart]:
    """Only where boundaries differ: a factor that is added to both is none in a ratio."""
    choices = [choice for choice in seen.choices if len(_known(choice)) > 1]
    known = _told_apart(choices) if choices else {}
    if len(known) < 2:
        return
    names = [_row(choice) for choice in choices]
    assumed = [COUNTED[it] for it in known if it in seen.result.assumed]
    doubt = (
        f" What is drawn besides the GPUs is assumed at: {', '.join(assumed)}." if assumed else ""
    )
    table = _table(choices, known)
    yield Chart(
        key="boundaries",
        title=_title(choices, known),
        description=(
            "The energy of each chosen setting over that of the reference, counted at the "
            f"{', the '.join(known.values())}, with 95 % intervals; beyond 1 it "
            f"costs energy.{doubt}"
        ),
        tables={"boundaries": table},
        drawing=partial(
            _draw, names, list(known.values()), has_bars=has_bounds(table, "energy_ratio")
        ),
    )


def _known(choice: Choice) -> dict[str, Interval]:
    return {it: ratio for it in BOUNDARIES if (ratio := choice.at.get(it))}


def _told_apart(choices: Sequence[Choice]) -> dict[str, str]:
    """The boundaries by what they are called, together where every ratio is the same at both."""
    kept: dict[str, str] = {}
    for boundary in BOUNDARIES:
        ratios = [_known(choice).get(boundary) for choice in choices]
        last = next(reversed(kept), "")
        before = [_known(choice).get(last) for choice in choices]
        pairs = zip(ratios, before, strict=True)
        if all(a and b and abs(a.mean - b.mean) < _SAME for a, b in pairs):
            kept[last] += f" and {COUNTED[boundary]}"
        elif any(ratios):
            kept[boundary] = COUNTED[boundary]
    return kept


def _title(choices: Sequence[Choice], known: Mapping[str, str]) -> str:
    """Of the choice that changes most from the first boundary to the last."""
    first, *_, last = known

    def apart(choice: Choice) -> float:
        at = _known(choice)
        return at[last].mean - at[first].mean if first in at and last in at else 0.0

    most = max(choices, key=apart)
    at = _known(most)
    if first not in at or last not in at:
        return "What each choice saves depends on what is counted"
    return (
        f"{setting_words(most.setting)} takes {_said(at[first])} energy at the {known[first]} "
        f"and {_said(at[last])} at the {known[last]}"
    )


def _said(ratio: Interval) -> str:
    return f"{100 * abs(ratio.mean - 1):.1f} % {'less' if ratio.mean < 1 else 'more'}"


def _row(choice: Choice) -> str:
    return f"{parse(choice.metric).label}: {setting_words(choice.setting)}"


def _table(choices: Sequence[Choice], known: Mapping[str, str]) -> Table:
    return Table(
        "Energy of each choice for what is counted",
        (
            Column("metric", right=False),
            Column("chosen", right=False),
            *(Column(f"energy {name}") for name in known.values()),
        ),
        tuple(
            (
                parse(choice.metric).label,
                setting_words(choice.setting),
                *(change(_known(choice).get(it)) for it in known),
            )
            for choice in choices
        ),
        tuple(
            {
                "choice": _row(choice),
                "boundary": known[boundary],
                **bounds("energy_ratio", _known(choice)[boundary]),
            }
            for choice in choices
            for boundary in known
            if boundary in _known(choice)
        ),
    )


def _draw(names: Sequence[str], boundaries: Sequence[str], *, has_bars: bool) -> alt.TopLevelMixin:
    import altair as alt

    data = alt.NamedData("boundaries")
    told = shaped("boundary", boundaries, "counted")
    base = alt.Chart(data, height=56 * len(names)).encode(
        x=alt.X("energy_ratio:Q", axis=alt.Axis(tickCount=6))
        .title("energy, ratio to the reference")
        .scale(zero=False),
        y=alt.Y("choice:N", sort=list(names)).title(None).axis(labelLimit=260),
        yOffset=alt.YOffset("boundary:N", sort=list(boundaries)),
        color=told["color"],
    )
    bars = base.mark_rule(style="interval").encode(
        x=alt.X("energy_ratio_low:Q"), x2=alt.X2("energy_ratio_high:Q")
    )
    return alt.layer(
        alt.Chart(data).mark_rule(style="reference").encode(x=alt.XDatum(1)),
        *([bars] if has_bars else ()),
        base.mark_point(style="mean").encode(shape=told["shape"]),
    )

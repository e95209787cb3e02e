"""Figures of a recurring job: its recurrences, the beliefs of its policy, and time and energy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from joulewise.data.jobs import JobTry, TryStatus
from joulewise.formatting import between, joules, one_line
from joulewise.metrics.result import Interval
from joulewise.optimise.recurring.job_saving import MIN_RECURRENCES, CostSource
from joulewise.optimise.recurring.policy.interface import BatchSizeBelief
from joulewise.report.charts import encoding
from joulewise.report.charts.chart import Chart, alt, with_provenance
from joulewise.report.charts.encoding import DisplayUnit
from joulewise.report.charts.labels import label_table, place_labels
from joulewise.report.charts.records import Record, record_table, yes_or_empty
from joulewise.report.charts.sweep.rays import draw_plane, plane_frame, power_rays, ray_positions
from joulewise.report.views.job import JobView
from joulewise.report.views.job_tables import OUTCOMES, probability_text, unusable_text
from joulewise.report.views.sweep_tables import bounds

# Heights in pixels of the panel of values, for each of them and at least, and of the others
# (chosen: all of a figure is seen at once on a screen of 1080 lines).
_VALUE_PX, _LEAST_VALUES_PX, _PANEL_PX = 17, 70, 130
_HALF_BAR: Final = 0.4  # of the width of a recurrence; the rest is free between two bars
_LOG_FROM: Final = 4.0  # costs that span this factor or more get a logarithmic axis (as in labels)
_BESIDE: Final = 0.2  # where tries stand beside their belief, as a share of the width of a value
_SPREAD: Final = 0.22  # over which several tries of one value are spread, to the right of that
_QUANTITIES: Final = {"cost_j": "cost", "energy_j": "energy", "time_s": "time"}
_FIELDS: Final = {"cost_j": "cost", "energy_j": "energy_j", "time_s": "time_s"}
"""The fields of the figures, and those of a try."""


def chart_job(view: JobView) -> list[Chart]:
    """All figures for which there is data."""
    simulated = "GPU simulated" if any(one.is_simulated for one in view.tries) else ""
    charts = [*_chart_recurrences(view), *_chart_beliefs(view), *_chart_plane(view)]
    return with_provenance(charts, simulated)


def _chart_recurrences(view: JobView) -> Iterator[Chart]:
    """What was tried in each recurrence, and what it cost, beside the default."""
    tries = [record for one in view.recurrences for record in _try_records(view, one.tries)]
    if not any(record["cost_j"] is not None for record in tries):
        return
    saving, job = view.saving, view.job
    default = saving.default
    levels: dict[str, Record] = {
        field: {"level": view.default_mean(of), "level_low": None, "level_high": None}
        for field, of in _FIELDS.items()
    }
    source = "measured"
    if default is not None:
        levels["cost_j"] = bounds("level", default.interval)
        source = default.source.value
    means = [
        {
            "recurrence": one.number,
            **{f"mean_{field}": value for field, value in zip(_FIELDS, values, strict=True)},
        }
        for one, *values in zip(
            view.recurrences, *(view.running_mean(of) for of in _FIELDS.values()), strict=True
        )
    ]
    outcomes = _outcomes(view)
    title = "What the recurrences cost"
    if saving.paid is not None:
        title = f"Reaching the target cost {joules(saving.paid.mean)} on average"
        if default is not None:
            title += f"; at the default it would cost {joules(default.cost.mean)}"
            title += " (modelled)" * (default.source is CostSource.MODELLED)
    modelled = (
        " The default's cost is modelled, with a band of 95 %; its energy and time are the means "
        "of the tries there."
        if default is not None and default.source is CostSource.MODELLED
        else " A band of 95 % is around the default's cost."
        if default is not None
        else ""
    )
    yield Chart(
        key="job-recurrences",
        title=title,
        description=(
            f"Above: the {one_line(job.parameter)} of each try. Below: cost, energy and time of "
            "each recurrence, its tries one upon the other; those that failed have another colour. "
            "The line is the mean so far of reaching the target once, failed tries included. "
            f"Dashed: the default, {one_line(job.parameter)} {job.default}.{modelled}"
        ),
        tables={
            "tries": record_table(
                "Tries",
                "recurrence number value outcome cost_j energy_j time_s",
                tries,
                titles={"number": "try", "value": one_line(job.parameter)},
            ),
            "means": record_table(
                "Mean so far of reaching the target",
                "recurrence mean_cost_j mean_energy_j mean_time_s",
                means,
            ),
            "levels": record_table(
                f"At the default ({source})",
                "quantity level level_low level_high",
                [
                    {"quantity": _QUANTITIES[field], **record}
                    for field, record in levels.items()
                    if record["level"] is not None
                ],
            ),
        },
        drawing=partial(
            _draw_recurrences,
            one_line(job.parameter),
            [str(value) for value in sorted({view.history.value_of(one) for one in view.tries})],
            outcomes,
            _recurrence_units(tries, levels),
            (view.recurrences[0].number, view.recurrences[-1].number),
        ),
    )


def _try_records(view: JobView, tries: Sequence[JobTry]) -> Iterator[Record]:
    """The tries of a recurrence, each upon the one before it, and side by side."""
    ends = dict.fromkeys(_FIELDS, 0.0)
    for index, one in enumerate(tries):
        record: dict[str, float | str | None] = {
            "recurrence": one.recurrence,
            "number": one.number,
            "value": str(view.history.value_of(one)),
            "outcome": OUTCOMES[one.status],
            "at": one.recurrence + 2 * _HALF_BAR * ((index + 0.5) / len(tries) - 0.5),
        }
        for field, of in _FIELDS.items():
            value = getattr(one, of)
            record |= {field: value, f"{field}_from": ends[field]}
            ends[field] += value or 0.0
            record[f"{field}_to"] = ends[field]
        yield record


def _outcomes(view: JobView) -> list[str]:
    """Those that occurred, in the order of ``OUTCOMES``."""
    present = {one.status for one in view.tries}
    return [text for status, text in OUTCOMES.items() if status in present]


def _recurrence_units(tries: Sequence[Record], levels: dict[str, Record]) -> dict[str, DisplayUnit]:
    units = {}
    for field in _FIELDS:
        ends = [float(record[f"{field}_to"] or 0.0) for record in tries]
        most = max(*ends, float(levels[field]["level"] or 0.0), 0.0)
        units[field] = encoding.time_unit(most) if field == "time_s" else encoding.energy_unit(most)
    return units


def _draw_recurrences(
    parameter: str,
    values: Sequence[str],
    outcomes: Sequence[str],
    units: dict[str, DisplayUnit],
    numbers: tuple[int, int],
) -> alt.TopLevelMixin:
    scale = alt.Scale(domain=[numbers[0] - 0.5, numbers[1] + 0.5], nice=False)

    def across(field: str, *, is_last: bool = False) -> alt.X:
        axis = alt.Axis(title="recurrence", tickMinStep=1, format="d", tickCount=10)
        if not is_last:
            axis = alt.Axis(title=None, labels=False, ticks=False, tickMinStep=1, tickCount=10)
        return alt.X(f"{field}:Q", scale=scale).axis(axis)

    rows = alt.Y("value:O").sort(list(reversed(values))).title(parameter).axis(grid=True)
    tooltip = [alt.Tooltip(f"{name}:N") for name in ("recurrence", "value", "outcome")]
    tried = encoding.data_layer("tries").mark_point(style="mean")
    panels: list[Any] = [
        tried.encode(
            x=across("at"), y=rows, **encoding.encode_points("outcome", outcomes), tooltip=tooltip
        ).properties(height=max(_LEAST_VALUES_PX, _VALUE_PX * len(values)))
    ]
    colour = alt.Color("outcome:N", scale=alt.Scale(domain=list(outcomes)), legend=None)
    for field, name in _QUANTITIES.items():
        x, unit = across("left", is_last=field == "time_s"), units[field]
        bars = encoding.data_layer(
            "tries",
            low=unit.expression(f"{field}_from"),
            high=unit.expression(f"{field}_to"),
            left=f"datum.recurrence - {_HALF_BAR}",
            right=f"datum.recurrence + {_HALF_BAR}",
        ).transform_filter(f"isValid(datum.{field})")
        y = alt.Y("low:Q").title(f"{name} ({unit.name})").scale(domainMin=0)
        means = encoding.data_layer("means", mean=unit.expression(f"mean_{field}"))
        means = means.transform_filter(f"isValid(datum.mean_{field})")
        level = encoding.data_layer(
            "levels",
            level_shown=unit.expression("level"),
            least=unit.expression("level_low"),
            most=unit.expression("level_high"),
            label="'default'",
        ).transform_filter(f"datum.quantity == '{name}'")
        band = level.transform_filter("isValid(datum.level_low)")
        panels.append(
            alt.layer(
                band.mark_rect(style="stretch").encode(y=alt.Y("least:Q"), y2="most:Q"),
                bars.mark_rect().encode(x=x, x2="right:Q", y=y, y2="high:Q", color=colour),
                means.mark_line(style="fit").encode(
                    x=across("recurrence", is_last=field == "time_s"), y=alt.Y("mean:Q")
                ),
                level.mark_rule(style="reference").encode(y=alt.Y("level_shown:Q")),
                level.mark_text(style="note_end").encode(
                    x=alt.value("width"), y=alt.Y("level_shown:Q"), text="label:N"
                ),
            ).properties(height=_PANEL_PX)
        )
    stacked: alt.VConcatChart = alt.vconcat(*panels, spacing=8).resolve_scale(
        color="independent", shape="independent"
    )
    return stacked


def _chart_beliefs(view: JobView) -> Iterator[Chart]:
    """What the policy believes that each value costs, and what its tries cost."""
    beliefs, job = view.beliefs, view.job
    name = one_line(job.parameter)
    best = view.most_probable
    if not any(belief.cost is not None for belief in beliefs):
        return
    index = {belief.batch_size: at for at, belief in enumerate(beliefs)}
    records = [
        {
            "value": str(belief.batch_size),
            "at": index[belief.batch_size],
            "tries": belief.tries,
            **bounds("cost_j", belief.cost if belief.is_usable else None),
            "probability_best_pct": 100 * belief.probability_best,
            "usable": int(belief.is_usable),
            "unusable": "" if belief.is_usable else unusable_text(belief),
            "mark": "best" if belief is best else "",
            "note": "default" if belief.batch_size == job.default else "",
        }
        for belief in beliefs
    ]
    tries = list(_tries_by_value(view, index))
    costs = [
        float(value)
        for record in (*records, *tries)
        for field in ("cost_j", "cost_j_low", "cost_j_high")
        if (value := record.get(field)) is not None and float(value) > 0
    ]
    unusable = any(not belief.is_usable for belief in beliefs)
    yield Chart(
        key="job-beliefs",
        title=_title_beliefs(name, best),
        description=(
            f"The cost of a recurrence by {name}, as the policy believes: mean and 95 % interval, "
            "failed tries included. Small points beside it are the tries; those that failed say "
            "only that reaching the target costs more."
            + (
                " The ring marks what is most probably best of those that reached it."
                if best
                else ""
            )
            + (" Shaded: it ran out of memory, or a smaller one did." if unusable else "")
        ),
        tables={
            "beliefs": record_table(
                "Believed cost of a recurrence",
                "value tries cost_j cost_j_low cost_j_high probability_best_pct usable",
                records,
                titles={"value": name, "cost_j_low": "low (95 %)", "cost_j_high": "high (95 %)"},
                usable=yes_or_empty,
            ),
            "tries": record_table(
                "Cost of each try", "value outcome cost_j", tries, titles={"value": name}
            ),
        },
        drawing=partial(
            _draw_beliefs,
            name,
            [str(value) for value in index],
            [text for text in _outcomes(view) if any(it["outcome"] == text for it in tries)],
            encoding.energy_unit(max(costs)),
            is_log=max(costs) > _LOG_FROM * min(costs),
        ),
    )


def _title_beliefs(name: str, best: BatchSizeBelief | None) -> str:
    if best is None:
        return f"What each {name} is believed to cost; none has reached the target yet"
    shown = "" if best.cost is None else f": {joules(best.cost.mean)}"
    if best.cost is not None and best.cost.low is not None:
        shown += f" (95 %: {between(best.cost.low, best.cost.high, 'J')})"
    probability = probability_text(best.probability_best)
    return f"{name} {best.batch_size} costs least with a probability of {probability}{shown}"


def _tries_by_value(view: JobView, index: dict[int, int]) -> Iterator[Record]:
    """Tries with a cost, those of one value beside each other."""
    by_value: dict[int, list[JobTry]] = {}
    for one in view.tries:
        if (one.cost or 0) > 0:
            by_value.setdefault(view.history.value_of(one), []).append(one)
    for value, tries in by_value.items():
        for number, one in enumerate(tries):
            yield {
                "value": str(value),
                "at": index.get(value, 0) + _BESIDE + _SPREAD * number / max(1, len(tries) - 1),
                "outcome": OUTCOMES[one.status],
                "cost_j": one.cost,
            }


def _draw_beliefs(
    name: str,
    values: Sequence[str],
    outcomes: Sequence[str],
    unit: DisplayUnit,
    *,
    is_log: bool,
) -> alt.TopLevelMixin:
    labels = f"{list(values)!r}[datum.value]"
    x = (
        alt.X("at:Q")
        .scale(domain=[-0.5, len(values) - 0.5], nice=False)
        .axis(title=name, values=list(range(len(values))), labelExpr=labels)
    )
    scale = alt.Scale(type="log", nice=False, padding=8) if is_log else alt.Scale(domainMin=0)
    y = alt.Y("cost:Q").title(f"cost ({unit.name})").scale(scale).axis(tickCount=5)
    beliefs = encoding.data_layer(
        "beliefs",
        cost=unit.expression("cost_j"),
        least=unit.expression("cost_j_low"),
        most=unit.expression("cost_j_high"),
        left="datum.at - 0.5",
        right="datum.at + 0.5",
    )
    known = beliefs.transform_filter("isValid(datum.cost_j)")
    bound = beliefs.transform_filter("isValid(datum.cost_j_low)")
    unusable = beliefs.transform_filter("datum.usable == 0")
    tries = encoding.data_layer("tries", cost=unit.expression("cost_j"))
    tooltip = [alt.Tooltip(f) for f in ("value:N", "tries:Q", "probability_best_pct:Q")]
    beyond = x.copy()
    beyond.shorthand = "left:Q"
    layered: alt.TopLevelMixin = alt.layer(
        unusable.mark_rect(style="stretch").encode(x=beyond, x2="right:Q"),
        unusable.mark_text(style="note", angle=270, align="right", baseline="middle").encode(
            x=x, y=alt.value(6), text="unusable:N"
        ),
        bound.mark_rule(style="interval").encode(x=x, y=alt.Y("least:Q"), y2="most:Q"),
        known.mark_point(style=["mean", "label"]).encode(x=x, y=y, tooltip=tooltip),
        beliefs.transform_filter("datum.note != ''")
        .mark_text(style="note", baseline="bottom", dy=-4)
        .encode(x=x, y=alt.value("height"), text="note:N"),
        known.transform_filter("datum.mark == 'best'").mark_point(style="choice").encode(x=x, y=y),
        tries.mark_point(style="run").encode(
            x=x, y=y, **encoding.encode_points("outcome", outcomes, "tries")
        ),
    )
    return layered


def _chart_plane(view: JobView) -> Iterator[Chart]:
    """Time and energy to the target of each value, the front, and rays of constant power."""
    points, name = view.points, one_line(view.job.parameter)
    if len(points) < 2:
        return
    values = [str(point.setting[view.job.parameter]) for point in points]
    tries = [
        {
            "series": str(view.history.value_of(one)),
            "time_s": one.time_s,
            "energy_j": one.energy_j,
        }
        for one in view.tries
        if one.status is TryStatus.REACHED and (one.time_s or 0) > 0 and (one.energy_j or 0) > 0
    ]
    also = [(float(it["time_s"] or 0), float(it["energy_j"] or 0)) for it in tries]
    frame = plane_frame(points, None, also)
    rays = power_rays(points, None, frame)
    positions = [
        (point.time_s.mean, point.energy_j.mean)
        for point in points
        if point.time_s and point.energy_j
    ]
    powers_w = [energy_j / time_s for time_s, energy_j in positions]
    texts = {number: (value,) for number, value in enumerate(values)}
    labels = place_labels(frame, positions, texts, always=texts, lines=ray_positions(rays))
    placed = label_table(labels, [{"time_s": x, "energy_j": y} for x, y in positions])
    front = [value for value, point in zip(values, points, strict=True) if point.pareto]
    yield Chart(
        key="job-plane",
        title=(
            f"{len(front)} of {len(points)} values are on the Pareto front of time and energy to "
            f"the target, at a mean power of {between(min(powers_w), max(powers_w), 'W')}"
        ),
        description=(
            f"Energy to the target (ETA) against time to the target (TTA), by {name}: means of the "
            f"tries that reached it, with 95 % intervals from {MIN_RECURRENCES} tries on, and the "
            "single tries as small points. On "
            "a dashed ray from the origin (outside the figure) the mean power is constant. The "
            "grey line is the Pareto front: no other value takes less time and less energy, both "
            "beyond noise."
        ),
        tables={
            "points": record_table(
                "Time and energy to the target",
                "series tries time_s time_s_low time_s_high energy_j energy_j_low energy_j_high "
                "power_w pareto",
                (
                    {
                        "setting": str(point.setting),
                        "series": value,
                        "tries": point.n,
                        **bounds("time_s", _drawn(point.time_s, point.n)),
                        **bounds("energy_j", _drawn(point.energy_j, point.n)),
                        "power_w": power_w,
                        "pareto": int(point.pareto),
                        "preferred_by": "",
                    }
                    for point, value, power_w in zip(points, values, powers_w, strict=True)
                ),
                titles={"series": name},
                pareto=yes_or_empty,
            ),
            "tries": record_table(
                "Single tries", "series time_s energy_j", tries, titles={"series": name}
            ),
            "rays": rays,
            "labels": placed,
        },
        drawing=partial(draw_plane, placed, name, values, frame, tries="tries"),
    )


def _drawn(interval: Interval | None, tries: int) -> Interval | None:
    """Without the interval of two tries, which is so long that it says nothing."""
    is_known = interval is not None and tries >= MIN_RECURRENCES
    return interval if is_known or interval is None else Interval(interval.mean)

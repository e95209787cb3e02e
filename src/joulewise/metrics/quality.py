"""Warnings about a sweep: too few runs, lower bounds, drift, limits without effect, boundaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from joulewise.analyse.student_t import student
from joulewise.data import DOUBTFUL, QualityWarning
from joulewise.data.sweeps import POWER_LIMIT, Setting, Sweep, Trial
from joulewise.metrics import power_caps
from joulewise.metrics.boundary import GPU, NODE, REST, View
from joulewise.metrics.intervals import Ratios
from joulewise.metrics.metric import parse
from joulewise.metrics.result import Choice, SweepWarningCode
from joulewise.metrics.trial_table import TrialTable, completed_trials, slices

# All of these are chosen. A drift of the reference is warned of from 1 % over the sweep on, by at
# least so many runs; doubled, a board that warms up by some degrees is not noticed.
_MIN_DRIFT_SHARE: Final = 0.01
_MIN_DRIFT_RUNS: Final = 4
# Settings that a warning names; the table has them all.
_MAX_NAMED: Final = 3


def find_warnings(
    sweep: Sweep,
    table: TrialTable,
    ratios_by: Mapping[str, Mapping[str, Ratios]],
    choices: Mapping[str, Mapping[str, Choice]],
    view: View,
) -> Iterator[QualityWarning]:
    boundary = view.boundary
    time, energy = ratios_by[boundary]["time"], ratios_by[boundary]["energy"]
    yield from _too_little(sweep, table, time, energy, view)
    yield from _lower_bounds(sweep, boundary)
    yield from _doubtful(sweep)
    yield from power_caps.find_warnings(table, ratios_by[GPU]["energy"])
    yield from _contradicts_clocks(choices[boundary])
    yield from _costs_elsewhere(choices, table.sources, boundary)
    yield from _at_the_edge(sweep, table, choices[boundary])
    if not sweep.is_virtual:
        yield from _drift(table, time, energy)


def _too_little(
    sweep: Sweep, table: TrialTable, time: Ratios, energy: Ratios, view: View
) -> Iterator[QualityWarning]:
    n, boundary = time.means.n, view.boundary
    if not time.scores.n.any():
        return
    if not time.scores.n[table.reference]:
        yield QualityWarning(
            SweepWarningCode.NO_REFERENCE,
            f"no run of the reference ({table.settings[table.reference]}) is done: nothing can be "
            "compared with it, and nothing is recommended",
            "repeat the command that began the sweep: it makes the runs that are missing or failed",
        )
    elif energy.scores.n.any() and not energy.scores.n[table.reference]:
        yield QualityWarning(
            SweepWarningCode.NO_REFERENCE,
            f"no run of the reference ({table.settings[table.reference]}) has an energy at the "
            f"boundary {boundary}: by energy nothing can be compared with it or recommended",
            "see why it was not read (joulewise doctor), and sweep again with --new",
        )
    elif not energy.means.n.any() and any(GPU in trial.energy for trial in completed_trials(sweep)):
        yield QualityWarning(
            SweepWarningCode.NO_ENERGY,
            f"the energy of every single {view.per} is not known: a run keeps that of steps one by "
            "one only where it has no more than 1,000 of them, and in virtual time of none",
            "count what they are part of: --per epoch, --per sample or --per run",
        )
    elif not energy.means.n.any():
        yield QualityWarning(
            SweepWarningCode.NO_ENERGY,
            f"no energy was read at the boundary {boundary}",
            "count the node: --boundary node" if boundary == GPU else "see: joulewise doctor",
        )
    if n.max(initial=0) == 1:
        yield QualityWarning(
            SweepWarningCode.FEW_RUNS,
            "every setting ran once: nothing tells a difference from noise",
            "repeat it: --repeat 5",
        )


def _lower_bounds(sweep: Sweep, boundary: str) -> Iterator[QualityWarning]:
    """Runs of which a device was not read to the end, so that their energy enters nowhere."""
    parts = {GPU} if boundary == GPU else {GPU, REST}
    runs = [trial for trial in completed_trials(sweep) if parts & trial.bounds.keys()]
    if not runs:
        return
    settings = list(dict.fromkeys(trial.setting for trial in runs))
    named = "; ".join(map(str, settings[:_MAX_NAMED]))
    more = f" and {len(settings) - _MAX_NAMED} more" if len(settings) > _MAX_NAMED else ""
    many = f"{len(runs)} runs" if len(runs) > 1 else "1 run"
    yield QualityWarning(
        SweepWarningCode.LOWER_BOUND,
        f"of {many} ({named}{more}) only a lower bound of the energy is known: a device that "
        "counts was not read to the end",
        "their energy is in no figure, and a setting that has no other run is not recommended; "
        "see joulewise doctor, and sweep again with --new",
    )


def _doubtful(sweep: Sweep) -> Iterator[QualityWarning]:
    """Runs whose own warnings put their figures in doubt; they enter all the same."""
    runs = doubtful_trials(sweep)
    if not runs:
        return
    first = runs[0][0]
    many = f"{len(runs)} runs have" if len(runs) > 1 else "1 run has"
    yield QualityWarning(
        SweepWarningCode.RUN_WARNING,
        f"{many} warnings that put figures in doubt ({_codes(runs)}): "
        f"{'; '.join(str(trial.setting) for trial, _ in runs[:_MAX_NAMED])}",
        f"see: joulewise show {first.run}; sweep again with --new if it matters"
        if first.run
        else "sweep again with --new if it matters",
    )


def doubtful_trials(sweep: Sweep) -> list[tuple[Trial, list[str]]]:
    """The trials that enter and have warnings that put their figures in doubt, with these."""
    always = {code.value for code in DOUBTFUL}  # also of sweeps that did not write ``doubtful``
    with_codes = (
        (trial, [it for it in trial.warnings if it in always or it in trial.doubtful])
        for trial in completed_trials(sweep)
    )
    return [(trial, codes) for trial, codes in with_codes if codes]


def _codes(runs: Iterable[tuple[Trial, list[str]]]) -> str:
    return ", ".join(dict.fromkeys(code for _, codes in runs for code in codes))


def _contradicts_clocks(best: Mapping[str, Choice]) -> Iterator[QualityWarning]:
    """Settings that differ beyond noise though no power limit seems to have done anything."""
    by_setting: dict[Setting, list[Choice]] = {}
    for choice in best.values():
        if choice.is_contradictory:
            by_setting.setdefault(choice.setting, []).append(choice)
    for setting, chosen in by_setting.items():
        is_recommended = any(choice.recommended == setting for choice in chosen)
        seen = (
            "by their mean clocks neither limit held the load back"
            if is_recommended
            else "the driver reports that neither limit held the clocks down"
        )
        yield QualityWarning(
            SweepWarningCode.CONTRADICTS_CLOCKS,
            f"{setting} differs from the reference by {_labels(it.metric for it in chosen)} beyond "
            f"noise, but {seen}: something besides the limit may have differed",
            "repeat the sweep with --new and more runs (--repeat), on a machine that is idle"
            if is_recommended
            else "the reference is recommended; repeat the sweep with --new on a machine that is "
            "idle",
        )


def _costs_elsewhere(
    choices: Mapping[str, Mapping[str, Choice]], sources: Mapping[str, str], boundary: str
) -> Iterator[QualityWarning]:
    """Slower training keeps the rest of the machine on for longer."""
    by_setting: dict[Setting, list[Choice]] = {}
    for choice in choices[GPU].values():
        if choice.energy and choice.energy.mean < 1 and not choice.is_dismissed:
            by_setting.setdefault(choice.setting, []).append(choice)
    for setting, chosen in by_setting.items():
        gpu, node = chosen[0].at[GPU], chosen[0].at[NODE]
        if gpu is None or node is None or node.mean <= 1:
            continue
        metrics = _labels(choice.metric for choice in chosen)
        even = chosen[0].break_even_w
        up_to = "" if even is None else f"; it saves only where the rest draws below {even:.0f} W"
        yield QualityWarning(
            SweepWarningCode.COSTS_ELSEWHERE,
            f"{setting}, the GPU's best by {metrics}, saves {100 * (1 - gpu.mean):.1f} % of the "
            f"GPU's energy and costs {100 * (node.mean - 1):.1f} % more of the node's "
            f"({sources[NODE]}){up_to}",
            "choose for the node: --boundary node"
            if boundary == GPU
            else f"the choices above are for the {boundary} already",
        )


def _at_the_edge(
    sweep: Sweep, table: TrialTable, best: Mapping[str, Choice]
) -> Iterator[QualityWarning]:
    by_limit: dict[float, list[str]] = {}
    for axis_slice in slices(table.settings, POWER_LIMIT):
        if len(axis_slice.rows) > 1:
            lowest = table.settings[axis_slice.rows[0]]
            metrics = [
                name
                for name, choice in best.items()
                if choice.setting == lowest and not choice.is_dismissed
            ]
            if metrics and axis_slice.rows[0] != table.reference:
                by_limit.setdefault(axis_slice.values[0], []).extend(metrics)
    for limit_w, metrics in by_limit.items():
        yield QualityWarning(
            SweepWarningCode.EDGE_OF_RANGE,
            f"{limit_w:g} W, the best by {_labels(metrics)}, is the lowest limit that was tried",
            _below(limit_w, sweep.limits_w[0] if sweep.limits_w and not sweep.is_table else None),
        )


def _below(limit_w: float, lowest_w: float | None) -> str:
    """What to try below a power limit; ``lowest_w`` is the board's lowest, None if not known."""
    if lowest_w is None:  # such as runs from a file
        return "try lower ones, where the board allows them, or lock the SM clock: --sm-clock"
    if limit_w > lowest_w:
        return f"try lower ones: --power-limit {lowest_w:g}:{limit_w:g}:5"
    return "the board allows no lower one; a lower, locked SM clock may save more: --sm-clock"


def _drift(table: TrialTable, time: Ratios, energy: Ratios) -> Iterator[QualityWarning]:
    """Whether the reference rose or fell during the sweep.

    Method: a least-squares line through the logarithms of its runs over time, whose slope has to
    differ from 0 by Student's t at 95 %.
    """
    start_ns = table.start_ns[table.reference]
    for name, of in (("time", time), ("energy", energy)):
        values = of.plain[table.reference]
        known = ~np.isnan(values) & (start_ns > 0)
        if known.sum() < _MIN_DRIFT_RUNS or len(np.unique(table.boards[known])) > 1:
            continue
        when = (start_ns[known] - start_ns[known].min()) / max(np.ptp(start_ns[known]), 1.0)
        x, y = when - when.mean(), values[known] - values[known].mean()
        slope = (x @ y) / (x @ x) if x @ x else 0.0
        dof = len(x) - 2
        error = np.sqrt(((y - slope * x) ** 2).sum() / dof / (x @ x)) if x @ x else np.inf
        if abs(slope) > _MIN_DRIFT_SHARE and abs(slope) > student(dof) * error:
            yield QualityWarning(
                SweepWarningCode.DRIFT,
                f"the {name} of the reference {'rose' if slope > 0 else 'fell'} by "
                f"{100 * abs(np.expm1(slope)):.1f} % during the sweep",
                "ratios are paired by block and not affected; warm up or cool down between runs: "
                "--warm-up 1, --cool-down 60s",
            )


def _labels(metrics: Iterable[str]) -> str:
    return ", ".join(parse(metric).label for metric in metrics)

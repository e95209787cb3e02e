"""From the trials of a sweep to its result.

- `evaluate`: every setting with its intervals, and the best by each metric at each boundary
- `choose`: what one metric prefers, and what that saves and costs
- `band`: the range of a setting in which the reference is beaten
- `front`: the Pareto front, the settings that no other beats in both time and energy
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import hypot
from typing import Final

import numpy as np

from joulewise.analyse.chunks import Bools, Ints
from joulewise.data.sweeps import CONTROL_AXES, POWER_LIMIT, Setting, Sweep
from joulewise.metrics.boundary import BOUNDARIES, GPU, View
from joulewise.metrics.intervals import Means, Ratios, means, ratios
from joulewise.metrics.metric import Metric, default_metrics, parse
from joulewise.metrics.power_caps import UnboundEvidence, binds, find_unbound_evidence, fits
from joulewise.metrics.quality import find_warnings
from joulewise.metrics.result import Band, Choice, Interval, PointResult, SweepResult, Verdict
from joulewise.metrics.trial_table import TrialTable, slices, tabulate
from joulewise.metrics.winner import Picked, pick, settled, stated

__all__ = ["View", "evaluate"]


def band(settings: tuple[Setting, ...], by: Ratios, winner: int) -> Band | None:
    """The values around the winner, along the first setting that was varied, with means below 1."""
    for axis in CONTROL_AXES:
        for axis_slice in slices(settings, axis):
            if winner in axis_slice.rows and len(axis_slice.rows) > 1:
                pairs = zip(axis_slice.rows, axis_slice.values, strict=True)
                tried = [(row, value) for row, value in pairs if by.means.n[row]]
                return _around(axis, tried, by, winner)
    return None


def _around(axis: str, tried: list[tuple[int, float]], by: Ratios, winner: int) -> Band | None:
    beats = [bool(by.means.mean[row] < 0 and not by.ruled_out[row]) for row, _ in tried]
    rows = [row for row, _ in tried]
    if winner not in rows or not beats[rows.index(winner)]:
        return None
    low = high = rows.index(winner)
    while low > 0 and beats[low - 1]:
        low -= 1
    while high + 1 < len(tried) and beats[high + 1]:
        high += 1
    within = tried[low : high + 1]
    sure = tuple(value for row, value in within if by.verdict(row) is Verdict.BETTER)
    return Band(axis, within[0][1], within[-1][1], sure)


_RECOMMENDED: Final = {Verdict.BETTER, Verdict.UNKNOWN}
"""The verdicts with which a setting is recommended; with any other the reference is."""


def choose(
    table: TrialTable,
    ratios_by: Mapping[str, Mapping[str, Ratios]],
    metric: str,
    boundary: str,
    *,
    decided: Setting | None = None,
) -> Choice | None:
    """The best setting by ``metric``; None where the reference has no score.

    ``ratios_by`` has ratios by boundary, then by metric. ``decided`` is what a search has settled
    on for this metric at this boundary.

    Where only the power limits differ and neither held the clocks down, the two settings are the
    same load. Without an interval that says otherwise what differs is noise. An interval that does
    not contain 1 keeps its verdict; what is recommended then depends on how the load is known: by
    the throttle reasons the reference, by clocks alone the setting.
    """
    here = ratios_by[boundary]
    picked = None
    if decided in table.settings:
        row = table.settings.index(decided)
        picked = settled(here[metric], row, table.reference, table.fresh)
    picked = picked or pick(here[metric], table.reference)
    if picked is None:
        return None

    def ratio(of: Ratios) -> Interval | None:
        return stated(picked, of, table.reference)

    score, energy = ratio(here[metric]), ratio(here["energy"])
    verdict = _verdict(picked, here[metric], score, table.reference)
    unbound = _find_same_load(table, picked.row)
    if unbound is not None and verdict is Verdict.UNKNOWN:
        verdict = Verdict.NOISE
    is_recommended = verdict in _RECOMMENDED and unbound is not UnboundEvidence.THROTTLE_REASONS
    row = picked.row if is_recommended else table.reference
    return Choice(
        metric=metric,
        boundary=boundary,
        setting=table.settings[picked.row],
        verdict=verdict,
        recommended=table.settings[row],
        is_same_load=unbound is not None,
        score=score,
        time=ratio(here["time"]),
        energy=energy,
        saved_j=_saved(table, boundary, energy),
        at={it: ratio(ratios_by[it]["energy"]) for it in BOUNDARIES},
        break_even_w=_break_even_w(table, picked.row),
        band=None
        if unbound is not None and not is_recommended
        else band(table.settings, here[metric], picked.row),
    )


def _find_same_load(table: TrialTable, row: int) -> UnboundEvidence | None:
    """The evidence that a setting differs from the reference in a limit without effect alone."""
    setting, reference = table.settings[row], table.settings[table.reference]
    differ = [name for name in reference if setting.get(name) != reference[name]]
    if differ != [POWER_LIMIT]:
        return None
    return find_unbound_evidence(table, row, table.reference)


def _verdict(picked: Picked, by: Ratios, score: Interval | None, reference: int) -> Verdict:
    """By the interval that allows for being the best of many."""
    if picked.row == reference:
        return Verdict.REFERENCE
    if score is None or score.high is None or score.low is None:
        return by.verdict(picked.row)
    if score.high < 1:
        return Verdict.BETTER
    return Verdict.WORSE if score.low > 1 else Verdict.NOISE


def _saved(table: TrialTable, boundary: str, ratio: Interval | None) -> Interval | None:
    """Joules against the reference; here the calibration error of the boards does not cancel."""
    reference = means(table.energy_j[boundary], table.error_j[boundary])
    gain = means(table.gain_j[boundary])
    row = table.reference
    reference_j = reference.mean[row]
    if ratio is None or np.isnan(reference_j):
        return None
    saved_j = reference_j * (1 - ratio.mean)
    if ratio.low is None or ratio.high is None or np.isnan(reference.half[row]):
        return Interval(float(saved_j))
    scale = abs(1 - ratio.mean) * hypot(reference.half[row], gain.mean[row])
    return Interval(
        float(saved_j),
        float(saved_j - hypot(reference_j * (ratio.high - ratio.mean), scale)),
        float(saved_j + hypot(reference_j * (ratio.mean - ratio.low), scale)),
    )


def _break_even_w(table: TrialTable, row: int) -> float | None:
    """Power besides the GPUs at which saved joules = watts · longer seconds; None without one."""
    saved_j = _less(means(table.energy_j[GPU]), row, table.reference)
    longer_s = -_less(means(table.time_s), row, table.reference)
    return float(saved_j / longer_s) if saved_j > 0 and longer_s > 0 else None


def _less(of: Means, row: int, reference: int) -> float:
    return float(of.mean[reference] - of.mean[row])


# Pairs of settings times blocks that are compared at once: 32 MB an array (chosen).
_MAX_COMPARED: Final = 4_000_000
# Differences of logarithms below this are rounding errors of the arithmetic.
_ROUNDING: Final = 1e-9


def front(time: Ratios, energy: Ratios) -> Bools:
    """The Pareto front: True unless another setting takes less time and energy, both beyond noise.

    Settings are compared by the blocks that they share; where these are fewer than two, by how
    each stands to the reference.
    """
    known = (time.means.n > 0) & (energy.means.n > 0)
    count, columns = time.plain.shape
    step = max(1, _MAX_COMPARED // max(1, count * columns))
    beaten = np.zeros(count, dtype=bool)
    for first in range(0, count, step):
        rows = np.arange(first, min(first + step, count))
        beaten[rows] = (_above(time, rows) & _above(energy, rows)).any(axis=1)
    return known & ~beaten


def _above(of: Ratios, rows: Ints) -> Bools:
    """Whether each of these rows lies above each of all, beyond noise."""
    shape = len(rows), len(of.plain)
    apart = of.plain[rows, None] - of.plain[None]
    floors = np.hypot(of.floors[rows, None], of.floors[None])
    pairs = shape[0] * shape[1], of.plain.shape[1]
    shared = means(apart.reshape(pairs), floors.reshape(pairs))
    mean, half = shared.mean.reshape(shape), shared.half.reshape(shape)
    alone = np.isnan(half)
    if alone.any():
        single = of.means
        by_reference = single.mean[rows, None] - single.mean[None]
        error = np.hypot(single.half[rows, None], single.half[None])
        meter = np.hypot(single.floor[rows, None], single.floor[None])
        mean = np.where(alone, by_reference, mean)
        half = np.where(alone, np.where(np.isnan(error), meter, error), half)
    with np.errstate(invalid="ignore"):
        return np.asarray(mean > half + _ROUNDING)


_TIME: Final = parse("time")
_ENERGY: Final = parse("energy")


def evaluate(sweep: Sweep, metrics: Sequence[Metric] = (), view: View | None = None) -> SweepResult:
    """Every setting with its intervals, and what each metric prefers at each boundary."""
    view, metrics = view or View(), tuple(metrics) or default_metrics()
    table = tabulate(sweep, view)
    needed = {metric.name: metric for metric in (*metrics, _TIME, _ENERGY)}
    ratios_by = {
        boundary: {name: ratios(metric, table, boundary) for name, metric in needed.items()}
        for boundary in BOUNDARIES
    }
    names = tuple(dict.fromkeys(metric.name for metric in metrics))

    def _choice(name: str, boundary: str) -> Choice | None:
        decided = _decided(sweep, name, boundary)
        return choose(table, ratios_by, name, boundary, decided=decided)

    bound = binds(table)
    points = tuple(_points(table, ratios_by[view.boundary], names, view.boundary, bound))
    choices = {
        boundary: {name: choice for name in names if (choice := _choice(name, boundary))}
        for boundary in BOUNDARIES
    }
    return SweepResult(
        id=sweep.id,
        name=sweep.name,
        gpu_name=sweep.gpu_name,
        boundary=view.boundary,
        per="training" if view.training else view.per,
        metrics=names,
        reference=points[table.reference],
        points=points,
        choices=choices,
        sources=table.sources,
        assumed=table.assumed,
        simulated=table.simulated,
        fits=fits(table, view.boundary),
        warnings=tuple(find_warnings(sweep, table, ratios_by, choices, view)),
    )


def _points(
    table: TrialTable,
    ratios_by: Mapping[str, Ratios],
    names: Sequence[str],
    boundary: str,
    bound: Sequence[bool | None],
) -> Iterator[PointResult]:
    time_s = means(table.time_s)
    energy_j = means(table.energy_j[boundary], table.error_j[boundary])
    gain_j = means(table.gain_j[boundary])
    capped, clock = means(table.capped), means(table.clock_mhz)
    on_front = front(ratios_by["time"], ratios_by["energy"])
    for row, setting in enumerate(table.settings):
        is_reference = row == table.reference
        yield PointResult(
            setting=setting,
            n=int(time_s.n[row]),
            time_s=time_s.interval(row),
            energy_j=energy_j.interval(row),
            gain_j=_number(gain_j, row),
            time_ratio=ratios_by["time"].interval(row),
            energy_ratio=ratios_by["energy"].interval(row),
            scores={name: ratios_by[name].score(row) for name in names},
            ratios={name: ratios_by[name].interval(row) for name in names},
            verdicts={
                name: Verdict.REFERENCE if is_reference else ratios_by[name].verdict(row)
                for name in names
            },
            pareto=bool(on_front[row]),
            binds=bound[row],
            capped=_number(capped, row),
            clock_mhz=_number(clock, row),
        )


def _decided(sweep: Sweep, metric: str, boundary: str) -> Setting | None:
    """What the search of this sweep settled on, at the boundary that it was for."""
    settings = sweep.sure.get("metrics", {}).get(metric, {}).get("settings")
    if settings is None or boundary != sweep.asked.get("boundary", GPU):
        return None
    return Setting.of(settings)


def _number(of: Means, row: int) -> float | None:
    value = of.mean[row]
    return None if np.isnan(value) else float(value)

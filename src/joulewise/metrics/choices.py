"""What each metric prefers, and what that saves and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import hypot
from typing import Final

import numpy as np

from joulewise.data.sweeps import POWER_LIMIT, Setting
from joulewise.metrics.bands import band
from joulewise.metrics.ratios import Means, Ratios, means
from joulewise.metrics.result import Choice, Interval, Verdict
from joulewise.metrics.table import Table
from joulewise.metrics.view import BOUNDARIES, GPU
from joulewise.metrics.winner import Picked, pick, settled, stated

_RECOMMENDED: Final = {Verdict.BETTER, Verdict.UNKNOWN}
"""The verdicts with which a setting is recommended; with any other the reference is."""


def choose(
    table: Table,
    found: Mapping[str, Mapping[str, Ratios]],
    metric: str,
    boundary: str,
    *,
    bound: Sequence[bool | None],
    decided: Setting | None = None,
) -> Choice | None:
    """None where the reference has no score; ``found`` is by boundary, then by metric.

    ``bound`` says of each setting whether its power limit held the clocks down
    (:func:`joulewise.metrics.caps.binds`). ``decided`` is what a search has settled on for this
    metric at this boundary.
    """
    here = found[boundary]
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
    is_same_load = _is_same_load(table, picked.row, bound)
    if is_same_load:
        verdict = Verdict.NOISE
    row = picked.row if verdict in _RECOMMENDED else table.reference
    return Choice(
        metric=metric,
        boundary=boundary,
        setting=table.settings[picked.row],
        verdict=verdict,
        recommended=table.settings[row],
        is_same_load=is_same_load,
        score=score,
        time=ratio(here["time"]),
        energy=energy,
        saved_j=_saved(table, boundary, energy),
        at={it: ratio(found[it]["energy"]) for it in BOUNDARIES},
        break_even_w=_break_even_w(table, picked.row),
        band=None if is_same_load else band(table.settings, here[metric], picked.row),
    )


def _is_same_load(table: Table, row: int, bound: Sequence[bool | None]) -> bool:
    """Whether a setting has another limit than the reference, and neither did anything."""
    setting, reference = table.settings[row], table.settings[table.reference]
    differ = [name for name in reference if setting.get(name) != reference[name]]
    return differ == [POWER_LIMIT] and bound[row] is False and not bound[table.reference]


def _verdict(picked: Picked, by: Ratios, score: Interval | None, reference: int) -> Verdict:
    """By the interval that allows for the picking."""
    if picked.row == reference:
        return Verdict.REFERENCE
    if score is None or score.high is None or score.low is None:
        return by.verdict(picked.row)
    if score.high < 1:
        return Verdict.BETTER
    return Verdict.WORSE if score.low > 1 else Verdict.NOISE


def _saved(table: Table, boundary: str, ratio: Interval | None) -> Interval | None:
    """Joules against the reference; here the gain of the boards does not cancel."""
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


def _break_even_w(table: Table, row: int) -> float | None:
    saved_j = _less(means(table.energy_j[GPU]), row, table.reference)
    longer_s = -_less(means(table.time_s), row, table.reference)
    return float(saved_j / longer_s) if saved_j > 0 and longer_s > 0 else None


def _less(of: Means, row: int, reference: int) -> float:
    return float(of.mean[reference] - of.mean[row])

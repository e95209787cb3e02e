"""What each metric prefers, and what that saves and costs."""

from __future__ import annotations

from collections.abc import Mapping
from math import hypot
from typing import Final

import numpy as np

from joulewise.data.sweeps import POWER_LIMIT, Setting
from joulewise.metrics.bands import band
from joulewise.metrics.caps import UnboundEvidence, find_unbound_evidence
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
    decided: Setting | None = None,
) -> Choice | None:
    """None where the reference has no score; ``found`` is by boundary, then by metric.

    ``decided`` is what a search has settled on for this metric at this boundary.

    Where only the power limits differ and neither held the clocks down, the two settings are the
    same load. Without an interval that says otherwise what differs is noise. An interval that does
    not contain 1 keeps its verdict; what is recommended then depends on how the load is known: by
    the throttle reasons the reference, by clocks alone the setting.
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
        at={it: ratio(found[it]["energy"]) for it in BOUNDARIES},
        break_even_w=_break_even_w(table, picked.row),
        band=None
        if unbound is not None and not is_recommended
        else band(table.settings, here[metric], picked.row),
    )


def _find_same_load(table: Table, row: int) -> UnboundEvidence | None:
    """How it is known that a setting has another limit than the reference, to no effect."""
    setting, reference = table.settings[row], table.settings[table.reference]
    differ = [name for name in reference if setting.get(name) != reference[name]]
    if differ != [POWER_LIMIT]:
        return None
    return find_unbound_evidence(table, row, table.reference)


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

"""The range of a knob in which a setting beats the reference."""

from __future__ import annotations

from joulewise.data.sweeps import KNOBS, Setting
from joulewise.metrics.ratios import Ratios
from joulewise.metrics.result import Band, Verdict
from joulewise.metrics.slices import slices


def band(settings: tuple[Setting, ...], by: Ratios, winner: int) -> Band | None:
    """Around the winner along the first knob that was turned there, as far as means are below 1."""
    for axis in KNOBS:
        for found in slices(settings, axis):
            if winner in found.rows and len(found.rows) > 1:
                tried = [
                    it for it in zip(found.rows, found.values, strict=True) if by.means.n[it[0]]
                ]
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

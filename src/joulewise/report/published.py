"""A sweep beside the figures that were published for the same board and network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from joulewise.data.sweeps import POWER_LIMIT, Setting
from joulewise.metrics.metric import parse
from joulewise.metrics.result import SweepResult
from joulewise.report.tables import Column, Table
from joulewise.simulate.published_caps import PublishedRow, read_table

METRICS: Final = {
    "energy": "min_e",
    "edp": "min_edp",
    "eds:1.5": "min_eds_1.5",
    "eds:2.0": "min_eds_2.0",
}
"""Our names of the published metrics."""

_DEFAULT: Final = "default"


@dataclass(frozen=True)
class Beside:
    """One metric's best power limit, in the sweep and published. Shares are of 1.

    ``excess`` is how far the mean score at the published limit exceeds the least of all means;
    ``excess_of_stated`` how far it exceeds the best score as the sweep states it, corrected for
    having chosen the least. ``slower`` and ``saves`` are at the published limit, against the
    default limit's time and energy; ``band_w`` are the lowest and the highest limit that beats it.
    """

    row: PublishedRow
    metric: str
    cap_w: float
    excess: float
    excess_of_stated: float
    slower: float
    saves: float
    published_slower: float
    published_saves: float
    band_w: tuple[float, float] | None

    def as_json(self) -> dict[str, Any]:
        return {
            "metric": self.metric,
            "power_limit_w": self.row.cap_w,
            "time_ratio": 1 + self.published_slower,
            "energy_ratio": 1 - self.published_saves,
            "found": {
                "power_limit_w": self.cap_w,
                "time_ratio_there": 1 + self.slower,
                "energy_ratio_there": 1 - self.saves,
                "score_there_over_best": 1 + self.excess,
            },
        }


def beside(result: SweepResult, board: str, network: str) -> list[Beside]:
    """Compare a sweep over the limits of that board, the published ones among them."""
    rows = {row.metric: row for row in read_table() if (row.board, row.network) == (board, network)}
    return [_beside(result, metric, rows[name], rows[_DEFAULT]) for metric, name in METRICS.items()]


def published_table(rows: Sequence[Beside]) -> Table:
    """The best limits of the sweep beside the published ones, and what those do in both."""
    return Table(
        "This sweep beside the published figures",
        (
            Column("objective", right=False),
            Column("best limit", "W"),
            Column("published", "W"),
            Column("slowdown", "%"),
            Column("published", "%"),
            Column("saving", "%"),
            Column("published", "%"),
            Column("score above best", "%"),
        ),
        tuple(
            (
                parse(it.metric).label,
                f"{it.cap_w:.0f}",
                f"{it.row.cap_w:.0f}",
                *(
                    f"{100 * share:.1f}"
                    for share in (
                        *(it.slower, it.published_slower, it.saves, it.published_saves),
                        it.excess,
                    )
                ),
            )
            for it in rows
        ),
        tuple(
            {
                "metric": it.metric,
                "found_w": it.cap_w,
                "published_w": it.row.cap_w,
                "over_best": it.excess,
                "slower_there": it.slower,
                "published_slower": it.published_slower,
                "saves_there": it.saves,
                "published_saves": it.published_saves,
            }
            for it in rows
        ),
        note="Slowdown and saving are those of the published limit against the default limit: "
        "first in this sweep, then as published. Score above best is by how much the published "
        "limit scores worse than the best limit, both in this sweep.",
        name="published",
    )


def _beside(result: SweepResult, metric: str, row: PublishedRow, default: PublishedRow) -> Beside:
    scores = {
        float(point.setting[POWER_LIMIT] or 0): ratio.mean
        for point in result.points
        if (ratio := point.ratios[metric])
    }
    there = result.point(Setting.of({POWER_LIMIT: row.cap_w}))
    best = result.best[metric]
    assert there.time_ratio  # noqa: S101  # every point of a grid was run
    assert there.energy_ratio  # noqa: S101
    assert best.score  # noqa: S101
    wins = [cap_w for cap_w, score in scores.items() if score < 1]
    return Beside(
        row,
        metric,
        cap_w=float(best.setting[POWER_LIMIT] or 0),
        excess=scores[row.cap_w] / min(scores.values()) - 1,
        excess_of_stated=scores[row.cap_w] / best.score.mean - 1,
        slower=there.time_ratio.mean - 1,
        saves=1 - there.energy_ratio.mean,
        published_slower=row.time_s / default.time_s - 1,
        published_saves=1 - row.energy_j / default.energy_j,
        band_w=(min(wins), max(wins)) if wins else None,
    )

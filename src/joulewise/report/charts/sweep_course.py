"""Power and energy of a sweep's runs over time, averaged over the repetitions of a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.curves.average import Average, Curve, averaged
from joulewise.analyse.curves.cumulative import gpu_growth
from joulewise.analyse.curves.passing import even_edges, show
from joulewise.analyse.curves.spans import Stage, whole_stages
from joulewise.analyse.curves.thin import Envelope, Thinning
from joulewise.analyse.stored import result_of
from joulewise.analyse.stretch import Stretch
from joulewise.errors import JoulewiseError
from joulewise.record.layout import Lane
from joulewise.record.trace import open_lane
from joulewise.report.charts.run_time import are_shaded
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_MOMENTS: Final = 240
_POWER: Final = "power_w"


@dataclass(frozen=True)
class Course:
    """All that is shown of one limit; ``low`` and ``high`` are of all runs' readings.

    ``mean_w`` is that of the runs' results; the mean of a drawn curve would be another figure.
    ``unread`` is how many runs could not be read any more. ``growths`` are the energy so far of
    the GPUs in each run, joules over seconds, of those whose GPUs have all been read.
    """

    limit_w: float
    mean_w: float
    runs: int
    unread: int
    power: Average
    low: Array
    high: Array
    epochs: tuple[tuple[float, float], ...]
    growths: tuple[Curve, ...]


def course_of(limit_w: float, runs: Sequence[Path]) -> Course | None:
    """None where nothing can be read any more."""
    read = [found for run in runs if (found := _read(run))]
    if not read:
        return None
    grid_s = np.linspace(0.0, max(run.time_s for run in read), _MOMENTS + 1)
    return Course(
        limit_w,
        float(np.mean([run.mean_w for run in read])),
        len(read),
        len(runs) - len(read),
        averaged([run.curve for run in read], grid_s),
        np.fmin.reduce([run.at(grid_s, run.low) for run in read]),
        np.fmax.reduce([run.at(grid_s, run.high) for run in read]),
        _mean_epochs([run.epochs for run in read]),
        tuple(run.growth for run in read if run.growth is not None),
    )


@dataclass(frozen=True)
class _Run:
    """The mean of its GPUs' power: over all of it, and in pieces of one length up to ``time_s``."""

    time_s: float
    mean_w: float
    low: Array
    high: Array
    mean: Array
    epochs: Sequence[Stage]
    growth: Curve | None

    @property
    def curve(self) -> Curve:
        middle_s = (np.arange(len(self.mean)) + 0.5) * self.time_s / len(self.mean)
        return Curve(middle_s, self.mean)

    def at(self, grid_s: Array, values: Array) -> Array:
        """NaN where it has ended."""
        pieces = (grid_s * len(values) / self.time_s).astype(np.int64)
        there = grid_s <= self.time_s
        return np.where(there, values[np.minimum(pieces, len(values) - 1)], np.nan)


def _read(run: Path) -> _Run | None:
    try:
        result = result_of(run)
        stretch = Stretch(result.run.span.start_ns, result.run.span.end_ns)
        edges_ns = even_edges(stretch, _MOMENTS)
        gpus = [key for key in result.counted if key.startswith("gpu")]
        means_w = [it for key in gpus if (it := result.run.devices[key].mean_w) is not None]
        powers = [found for key in gpus if (found := _thinned(run, key, edges_ns)) is not None]
        growth = gpu_growth(run, result)
    except (JoulewiseError, OSError, ValueError, KeyError, TypeError):  # Arrow's are ValueErrors
        return None
    if not powers or not means_w or stretch.time_ns <= 0:
        return None
    low, high, mean = (
        np.mean([getattr(power, name) for power in powers], axis=0)
        for name in ("low", "high", "mean")
    )
    time_s, mean_w = stretch.time_ns / NS_PER_S, float(np.mean(means_w))
    return _Run(time_s, mean_w, low, high, mean, whole_stages(result), growth)


def _thinned(run: Path, key: str, edges_ns: NDArray[np.int64]) -> Envelope | None:
    for kind in (Lane.BUFFER, Lane.FAST):
        lane = open_lane(run, key, kind)
        if lane is not None and _POWER in lane.columns:
            thinning = Thinning(_POWER, edges_ns)
            show(lane, thinning)
            return thinning.envelope()
    return None


def _mean_epochs(runs: Sequence[Sequence[Stage]]) -> tuple[tuple[float, float], ...]:
    """Where all have as many, and they can be told apart."""
    count = len(runs[0])
    if not are_shaded(count) or any(len(run) != count for run in runs):
        return ()
    return tuple(
        (
            float(np.mean([one.start_s for one in alike])),
            float(np.mean([one.end_s for one in alike])),
        )
        for alike in zip(*runs, strict=True)
    )

"""Figures of a sweep, each only where the sweep has data for it.

::

    source.py        SweptData: the sweep, its result and its runs, and which points to show
    limits.py        ratios to the reference by power limit, and quadratic fits of single runs
    time_energy.py   the time-energy plane with lines of equal metric and the Pareto front
    rays.py          the same plane by batch size or the like, with rays of constant mean power
    heatmap.py       one metric over two axes
    boundaries.py    savings by system boundary
    power.py         power and energy over time at each limit
    epochs.py        energy and time per epoch at each limit
    drift.py         runs of the reference over the course of the sweep
"""

from __future__ import annotations

from pathlib import Path

from joulewise.data.sweeps import Sweep
from joulewise.metrics.boundary import View
from joulewise.metrics.result import SweepResult
from joulewise.report.charts.chart import Chart, with_provenance
from joulewise.report.charts.sweep.boundaries import chart_boundaries
from joulewise.report.charts.sweep.drift import chart_drift
from joulewise.report.charts.sweep.epochs import chart_epochs_by_limit
from joulewise.report.charts.sweep.heatmap import chart_heatmap
from joulewise.report.charts.sweep.limits import chart_fits, chart_limits
from joulewise.report.charts.sweep.power import chart_power_over_time
from joulewise.report.charts.sweep.rays import chart_rays
from joulewise.report.charts.sweep.source import swept_data
from joulewise.report.charts.sweep.time_energy import chart_plane
from joulewise.report.settings_text import simulated_words

__all__ = ["chart_sweep"]


def chart_sweep(
    sweep: Sweep, result: SweepResult, store: Path | None, view: View | None = None
) -> list[Chart]:
    """All figures of a sweep.

    ``store`` has the recorded runs, if there are any. ``view`` is what ``result`` was evaluated
    with; without it, figures of single runs are left out of a result for a full training.
    """
    data = swept_data(sweep, result, view)
    charts = [
        *chart_limits(data),
        *chart_plane(data),
        *chart_heatmap(data),
        *chart_rays(data, store),
        *chart_boundaries(data),
        *chart_power_over_time(data, store),
        *chart_epochs_by_limit(data, store),
        *chart_fits(data),
        *chart_drift(data),
    ]
    return with_provenance(charts, simulated_words(result.simulated))

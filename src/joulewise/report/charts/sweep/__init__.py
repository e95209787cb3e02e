"""All figures of a sweep, each only where the sweep has what it shows."""

from __future__ import annotations

from pathlib import Path

from joulewise.data.sweeps import Sweep
from joulewise.metrics.boundary import View
from joulewise.metrics.result import SweepResult
from joulewise.report.charts.chart import Chart, with_provenance
from joulewise.report.charts.sweep.boundaries import boundaries_charts
from joulewise.report.charts.sweep.drift import drift_charts
from joulewise.report.charts.sweep.epochs import epochs_by_limit_charts
from joulewise.report.charts.sweep.heatmap import heat_charts
from joulewise.report.charts.sweep.limits import caps_charts, fits_charts
from joulewise.report.charts.sweep.power import courses_charts
from joulewise.report.charts.sweep.rays import rays_charts
from joulewise.report.charts.sweep.source import swept
from joulewise.report.charts.sweep.time_energy import plane_charts
from joulewise.report.settings_text import simulated_words


def sweep_charts(
    sweep: Sweep, result: SweepResult, store: Path | None, view: View | None = None
) -> list[Chart]:
    """``store`` has the recorded runs, if there are any; ``view`` is what the result is of.

    Without a view, what needs single runs is left out of a result for a full training.
    """
    seen = swept(sweep, result, view)
    charts = [
        *caps_charts(seen),
        *plane_charts(seen),
        *heat_charts(seen),
        *rays_charts(seen, store),
        *boundaries_charts(seen),
        *courses_charts(seen, store),
        *epochs_by_limit_charts(seen, store),
        *fits_charts(seen),
        *drift_charts(seen),
    ]
    return with_provenance(charts, simulated_words(result.simulated))

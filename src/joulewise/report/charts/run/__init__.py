"""Figures of one run, or of several as their average, each only where there is data for it.

::

    power.py      power over time with limits and epochs
    energy.py     energy so far with its error, and its breakdown by device
    epochs.py     energy and time of each epoch
    sensors.py    temperature, clocks, utilisation, memory, PCIe, CPU load over time
    sampling.py   intervals between readings
    tuning.py     power while a run was tuned, and what steps took at each setting tried
    average.py    power and energy over time, averaged over several runs
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Final

from joulewise.analyse.curves.run import RunCurves, run_curves
from joulewise.data import RunResult
from joulewise.data.tuning import Tuning
from joulewise.errors import JoulewiseError
from joulewise.formatting import one_line
from joulewise.report.charts.chart import Chart, with_provenance
from joulewise.report.charts.run.average import chart_average
from joulewise.report.charts.run.energy import chart_breakdown, chart_energy
from joulewise.report.charts.run.epochs import chart_epochs, chart_epochs_of_runs
from joulewise.report.charts.run.power import chart_power
from joulewise.report.charts.run.sampling import chart_sampling
from joulewise.report.charts.run.sensors import chart_sensors
from joulewise.report.charts.run.tuning import TUNING_KEY, chart_tried, chart_tuning_power
from joulewise.report.views.run import provenance
from joulewise.store.runs import Skipped

__all__ = ["TUNING_KEY", "RunCharts", "chart_runs", "read_curves", "skipped_text"]

_LOWER_BOUND: Final = "not all of its counted devices were read: its energy is a lower bound"


@dataclass(frozen=True)
class RunCharts:
    """The figures, and the runs that are in none of them, with the reason."""

    charts: tuple[Chart, ...]
    skipped: tuple[Skipped, ...]


def chart_runs(
    runs: Sequence[Path], results: Sequence[RunResult] = (), tuning: Tuning | None = None
) -> RunCharts:
    """Figures of one run, or of several as their average; ``tuning`` is that of the one run.

    ``results`` are those shown beside the figures; without them, the stored ones are read. A run
    that cannot be read, or would lower an average, is skipped and named below each figure.
    """
    curves, skipped = read_curves(runs, results)
    if len(curves) > 1:
        skipped += [
            Skipped(Path(run.manifest.id), _LOWER_BOUND) for run in curves if _is_bound(run)
        ]
        curves = [run for run in curves if not _is_bound(run)]
    charts = [*(_chart_one(curves[0]) if len(curves) == 1 else _chart_several(curves))]
    if tuning:
        charts = [*(chart_tuning_power(curves[0], tuning) if curves else ()), *charts]
        charts += chart_tried(tuning)
    note = f" Left out: {skipped_text(skipped)}." if skipped else ""
    noted = (replace(chart, description=chart.description + note) for chart in charts)
    simulated = provenance(*(run.result for run in curves))
    return RunCharts(tuple(with_provenance(noted, simulated)), tuple(skipped))


def read_curves(
    runs: Sequence[Path], results: Sequence[RunResult] = ()
) -> tuple[list[RunCurves], list[Skipped]]:
    """The curves of each run, and the runs that are damaged."""
    read = [_read_curves(run, result) for run, result in zip_longest(runs, results)]
    return (
        [run for run in read if isinstance(run, RunCurves)],
        [run for run in read if isinstance(run, Skipped)],
    )


def skipped_text(skipped: Sequence[Skipped]) -> str:
    """``run-7 (its trace cannot be read: …); run-9 (…)``."""
    return "; ".join(f"{one_line(run.path.name)} ({one_line(run.reason)})" for run in skipped)


def _read_curves(run: Path, result: RunResult | None) -> RunCurves | Skipped:
    try:
        return run_curves(run, result)
    except JoulewiseError as error:
        return Skipped(run, error.message)
    except (OSError, ValueError, KeyError, TypeError) as error:  # Arrow's are ValueErrors
        return Skipped(run, f"its trace cannot be read: {error}")


def _is_bound(curves: RunCurves) -> bool:
    """Whether a counted device is missing, so that the run would lower an average."""
    total = curves.result.run.total
    return bool(curves.result.missing) or (total is not None and total.at_least)


def _chart_one(curves: RunCurves) -> Iterator[Chart]:
    yield from chart_power(curves)
    yield from chart_energy(curves)
    yield from chart_breakdown(curves.result)
    yield from chart_epochs(curves.result)
    yield from chart_sensors(curves)
    yield from chart_sampling(curves)


def _chart_several(curves: Sequence[RunCurves]) -> Iterator[Chart]:
    if curves:
        yield from chart_average(curves)
        yield from chart_epochs_of_runs([run.result for run in curves])

"""All figures of a run, or of the average of several, each only where there is what it shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Final

from joulewise.analyse.curves.run import RunCurves, run_curves
from joulewise.data import RunResult
from joulewise.errors import JoulewiseError
from joulewise.formatting import one_line
from joulewise.report.charts.chart import Chart, with_provenance
from joulewise.report.charts.run.average import average_charts
from joulewise.report.charts.run.energy import breakdown_charts, energy_charts
from joulewise.report.charts.run.epochs import epoch_charts, epochs_of_runs_charts
from joulewise.report.charts.run.power import power_charts
from joulewise.report.charts.run.sampling import sampling_charts
from joulewise.report.charts.run.sensors import sensor_charts
from joulewise.report.views.run import provenance
from joulewise.store.runs import Skipped

_BOUND: Final = "not all devices that count were read: its energy is a lower bound"


@dataclass(frozen=True)
class Charted:
    """The figures, and the runs that are in none of them, with the reason."""

    charts: tuple[Chart, ...]
    skipped: tuple[Skipped, ...]


def run_charts(runs: Sequence[Path]) -> list[Chart]:
    """Of one run, or of several as their average; a run that cannot be read is named below."""
    return list(charted(runs).charts)


def charted(runs: Sequence[Path], results: Sequence[RunResult] = ()) -> Charted:
    """``results`` are what is told of the runs beside the figures; without them, what is kept."""
    found, skipped = read_curves(runs, results)
    if len(found) > 1:
        skipped += [Skipped(Path(one.manifest.id), _BOUND) for one in found if _is_bound(one)]
        found = [one for one in found if not _is_bound(one)]
    charts = of_one(found[0]) if len(found) == 1 else of_several(found) if found else iter(())
    left_out = "; ".join(f"{one_line(one.path.name)} ({one_line(one.reason)})" for one in skipped)
    note = f" Left out: {left_out}." if skipped else ""
    simulated = provenance(*(one.result for one in found))
    told = (replace(chart, description=chart.description + note) for chart in charts)
    return Charted(
        tuple(with_provenance(told, simulated)),
        tuple(skipped),
    )


def read_curves(
    runs: Sequence[Path], results: Sequence[RunResult] = ()
) -> tuple[list[RunCurves], list[Skipped]]:
    """What can be drawn of each run, and which runs are damaged."""
    told = [_curves(run, result) for run, result in zip_longest(runs, results)]
    return (
        [one for one in told if isinstance(one, RunCurves)],
        [one for one in told if isinstance(one, Skipped)],
    )


def _is_bound(curves: RunCurves) -> bool:
    """Whether a device that counts is missing: its watts and joules would lower an average."""
    total = curves.result.run.total
    return bool(curves.result.missing) or (total is not None and total.at_least)


def of_one(curves: RunCurves) -> Iterator[Chart]:
    yield from power_charts(curves)
    yield from energy_charts(curves)
    yield from breakdown_charts(curves.result)
    yield from epoch_charts(curves.result)
    yield from sensor_charts(curves)
    yield from sampling_charts(curves)


def of_several(curves: Sequence[RunCurves]) -> Iterator[Chart]:
    yield from average_charts(curves)
    yield from epochs_of_runs_charts([one.result for one in curves])


def _curves(run: Path, result: RunResult | None) -> RunCurves | Skipped:
    try:
        return run_curves(run, result)
    except JoulewiseError as error:
        return Skipped(run, error.message)
    except (OSError, ValueError, KeyError, TypeError) as error:  # Arrow's are ValueErrors
        return Skipped(run, f"its trace cannot be read: {error}")

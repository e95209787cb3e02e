"""Several runs as one curve: the mean of those still running, and their standard deviation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np

from joulewise.analyse.curves.run import PIXELS, DeviceCurves, RunCurves
from joulewise.analyse.curves.series import Average, Curve, average_curves, grid
from joulewise.formatting import one_line, seconds
from joulewise.report.charts import encoding
from joulewise.report.charts.chart import Chart, alt
from joulewise.report.charts.encoding import DisplayUnit
from joulewise.report.charts.records import (
    Record,
    average_columns,
    mean_and_deviation,
    record_table,
    to_records,
    with_fields,
)
from joulewise.report.charts.run.energy import draw_growth
from joulewise.report.settings_text import counted
from joulewise.units import digits

DEVIATION_BAND: Final = (
    "The band is one standard deviation to either side. The mean is over the runs that have not "
    "ended yet."
)


def chart_average(runs: Sequence[RunCurves]) -> Iterator[Chart]:
    """Power and energy over time, averaged over the runs."""
    yield from _chart_power(runs)
    yield from _chart_energy(runs)


def average_power(runs: Sequence[RunCurves]) -> Average | None:
    """Power of all counted devices together, in watts; None where no run has any."""
    curves = [curve for run in runs if (curve := _power_of_run(run))]
    if not curves:
        return None
    longest_s = max(float(curve.t_s[-1]) for curve in curves)
    return average_curves(curves, grid(longest_s, _effective_hz(runs), PIXELS))


def power_records(average: Average) -> list[Record]:
    """Mean, deviation and band at each moment that any run has."""
    return with_fields(to_records(average_columns(average, "mean_w")), "mean_w")


def _chart_power(runs: Sequence[RunCurves]) -> Iterator[Chart]:
    runs = [run for run in runs if _power_of_run(run)]
    average = average_power(runs)
    if average is None:
        return
    summary = _summary(runs)
    means_w = [mean_w for record in summary if isinstance(mean_w := record["mean_w"], float)]
    yield Chart(
        key="power",
        title=(
            f"{counted(len(runs), 'run')} {'draws' if len(runs) == 1 else 'draw'} "
            f"{mean_and_deviation(means_w, 'W')} on average"
        ),
        description=(
            f"Power of all counted devices, averaged over {counted(len(runs), 'run')} "
            f"({_resampling(average)}). {DEVIATION_BAND}"
        ),
        tables={
            "runs": record_table("The runs", "run time_s energy_j error_j mean_w", summary),
            "power": record_table(
                "Average power over time", "t_s mean_w sigma_w runs", power_records(average)
            ),
        },
        drawing=partial(_draw_power, encoding.time_unit(float(average.t_s[-1]))),
    )


def _chart_energy(runs: Sequence[RunCurves]) -> Iterator[Chart]:
    cumulative_energies = [run.cumulative for run in runs if run.cumulative is not None]
    if len(cumulative_energies) < 2:
        return
    times_s = [float(cumulative.t_s[-1]) for cumulative in cumulative_energies]
    grid_s = np.linspace(0.0, max(times_s), max(len(each.t_s) for each in cumulative_energies))
    average = average_curves(
        [Curve(cumulative.t_s, cumulative.energy_j) for cumulative in cumulative_energies], grid_s
    )
    energies_j = [float(cumulative.energy_j[-1]) for cumulative in cumulative_energies]
    records = with_fields(to_records(average_columns(average, "energy_j")), "energy_j")
    yield Chart(
        key="energy",
        title=f"A run takes {mean_and_deviation(energies_j, 'J')}",
        description=(
            f"Energy so far, averaged over {len(cumulative_energies)} runs of "
            f"{seconds(min(times_s))} to {seconds(max(times_s))}. {DEVIATION_BAND}"
        ),
        tables={
            "runs": record_table("The runs", "run time_s energy_j error_j mean_w", _summary(runs)),
            "growth": record_table("Average energy so far", "t_s energy_j sigma_j runs", records),
        },
        drawing=partial(
            draw_growth, encoding.energy_unit(max(energies_j)), encoding.time_unit(max(times_s))
        ),
    )


def _power_of_run(run: RunCurves) -> Curve | None:
    """The sum over devices, at the times of the first; None where a device has no reading.

    Without that device, the rest would be taken for the whole.
    """
    curves = [_power_of_device(run, device) for device in run.devices]
    if not curves or not all(len(curve.t_s) for curve in curves):
        return None
    t_s = curves[0].t_s
    return Curve(t_s, np.sum([np.interp(t_s, curve.t_s, curve.values) for curve in curves], axis=0))


def _power_of_device(run: RunCurves, device: DeviceCurves) -> Curve:
    if device.power is None:
        t_s, values = device.cumulative.t_s, device.cumulative.mean_w
    else:
        t_s, values = device.power.middle_s(run.interval.start_ns), device.power.mean
    known = np.isfinite(values)
    return Curve(t_s[known], values[known])


def _effective_hz(runs: Sequence[RunCurves]) -> float:
    """New values per second of the slowest run, each run by its fastest device.

    RAM whose power is assumed has no new values, and must not coarsen the curve of a GPU.
    """
    rates = [
        max(
            (
                sampling.effective_hz
                for device in run.devices
                for sampling in device.sampling.values()
            ),
            default=None,
        )
        for run in runs
    ]
    return min((rate for rate in rates if rate is not None), default=1.0)


def _summary(runs: Sequence[RunCurves]) -> list[Record]:
    records: list[Record] = []
    for run in runs:
        total, time_s = run.result.run.total, run.result.time_s
        records.append(
            {
                "run": one_line(run.result.id),
                "time_s": time_s,
                "energy_j": total.value if total else None,
                "error_j": total.error if total else None,
                "mean_w": total.value / time_s if total and time_s else None,
            }
        )
    return records


def _resampling(average: Average) -> str:
    step_s = float(average.t_s[-1]) / max(len(average.t_s) - 1, 1)
    return "cubic interpolation" + (f" at {digits(1 / step_s)} Hz" if step_s > 0 else "")


def _draw_power(unit: DisplayUnit) -> alt.TopLevelMixin:
    fields = ("low_w", "mean_w", "high_w")
    return alt.layer(
        *encoding.band_layers(
            encoding.time_layer("power", unit), encoding.time_axis(unit), fields, "power (W)"
        )
    )

"""Several runs as one curve: the mean of those still running, and how far they lie apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.curves.average import Average, Curve, averaged, grid
from joulewise.analyse.curves.run import PIXELS, DeviceCurves, RunCurves
from joulewise.formatting import one_line, seconds
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.run.energy import draw_growth
from joulewise.report.charts.run.time_axis import (
    Record,
    columns_as_records,
    known,
    record_table,
    spread,
    time_axis,
    timed,
)
from joulewise.report.charts.theme import DisplayUnit, energy_unit, time_unit
from joulewise.report.settings_text import counted
from joulewise.report.tables import Column
from joulewise.units import digits

if TYPE_CHECKING:
    import altair as alt

_RUNS: Final = {
    "run": Column("run", right=False),
    "time_s": Column("time", "s"),
    "energy_j": Column("energy", "J"),
    "error_j": Column("error (95 %)", "J"),
    "mean_w": Column("mean power", "W"),
}
_POWER: Final = {
    "t_s": Column("time", "s"),
    "mean_w": Column("mean power", "W"),
    "sigma_w": Column("std. dev.", "W"),
    "runs": Column("runs"),
}
_ENERGY: Final = {
    "t_s": Column("time", "s"),
    "energy_j": Column("energy so far", "J"),
    "sigma_j": Column("std. dev.", "J"),
    "runs": Column("runs"),
}


def average_charts(runs: Sequence[RunCurves]) -> Iterator[Chart]:
    yield from _power_charts(runs)
    yield from _energy_charts(runs)


def average_power(runs: Sequence[RunCurves]) -> Average | None:
    """Watts of all devices that count together; None where no run has any."""
    curves = [curve for run in runs if (curve := _power_of(run))]
    if not curves:
        return None
    longest_s = max(float(curve.t_s[-1]) for curve in curves)
    return averaged(curves, grid(longest_s, _effective_hz(runs), PIXELS))


def _power_charts(runs: Sequence[RunCurves]) -> Iterator[Chart]:
    runs = [run for run in runs if _power_of(run)]
    average = average_power(runs)
    if average is None:
        return
    summary = _summary(runs)
    means_w = [mean_w for one in summary if isinstance(mean_w := one["mean_w"], float)]
    longest_s = float(average.t_s[-1])
    yield Chart(
        key="power",
        title=(
            f"{counted(len(runs), 'run')} {'draws' if len(runs) == 1 else 'draw'} "
            f"{spread(means_w, 'W')} on average"
        ),
        description=(
            f"Power of all devices that count, averaged over {counted(len(runs), 'run')} "
            f"({_step(average)}). The band is one standard deviation to either side. A run that "
            "has ended is no longer in the mean."
        ),
        tables={
            "runs": record_table("The runs", _RUNS, summary),
            "power": record_table("Average power over time", _POWER, power_records(average)),
        },
        drawing=partial(_draw_power, time_unit(longest_s)),
    )


def _energy_charts(runs: Sequence[RunCurves]) -> Iterator[Chart]:
    growths = [run.growth for run in runs if run.growth is not None]
    if len(growths) < 2:
        return
    longest_s = max(float(growth.t_s[-1]) for growth in growths)
    most = max(len(growth.t_s) for growth in growths)
    grid_s = np.linspace(0.0, longest_s, most)
    average = averaged([Curve(growth.t_s, growth.energy_j) for growth in growths], grid_s)
    ends_j = [float(growth.energy_j[-1]) for growth in growths]
    records = columns_as_records(
        {
            "t_s": average.t_s,
            "energy_j": average.mean,
            "sigma_j": average.sigma,
            "low_j": np.maximum(average.mean - np.nan_to_num(average.sigma), 0.0),
            "high_j": average.mean + np.nan_to_num(average.sigma),
            "runs": average.count,
        }
    )
    yield Chart(
        key="energy",
        title=f"A run takes {spread(ends_j, 'J')}",
        description=(
            f"Energy so far, averaged over {len(growths)} runs of "
            f"{seconds(min(float(g.t_s[-1]) for g in growths))} to {seconds(longest_s)}. The band "
            "is one standard deviation to either side. A run that has ended is no longer in the "
            "mean."
        ),
        tables={
            "runs": record_table("The runs", _RUNS, _summary(runs)),
            "growth": record_table("Average energy so far", _ENERGY, known(records, "energy_j")),
        },
        drawing=partial(draw_growth, "growth", energy_unit(max(ends_j)), time_unit(longest_s)),
    )


def _power_of(run: RunCurves) -> Curve | None:
    """The sum over devices, at the moments of the first; None where one has no reading at all.

    Without it the rest would pass for the whole.
    """
    curves = [_device_power(run, one) for one in run.devices]
    if not curves or not all(len(curve.t_s) for curve in curves):
        return None
    t_s = curves[0].t_s
    watts_of = [np.interp(t_s, curve.t_s, curve.values) for curve in curves[1:]]
    return Curve(t_s, np.sum([curves[0].values, *watts_of], axis=0))


def _device_power(run: RunCurves, one: DeviceCurves) -> Curve:
    if one.power is None:
        t_s, values = one.growth.t_s, one.growth.mean_w
    else:
        t_s, values = one.power.middle_s(run.stretch.start_ns), one.power.mean
    there = np.isfinite(values)
    return Curve(t_s[there], values[there])


def _effective_hz(runs: Sequence[RunCurves]) -> float:
    """New values a second of the slowest run; in a run the fastest device leads.

    Memory whose power is assumed never tells anything new, and must not take the course of a GPU.
    """
    rates = [
        max((it.effective_hz for one in run.devices for it in one.sampling.values()), default=None)
        for run in runs
    ]
    return min((rate for rate in rates if rate is not None), default=1.0)


def _summary(runs: Sequence[RunCurves]) -> list[Record]:
    told: list[Record] = []
    for run in runs:
        total, time_s = run.result.run.total, run.result.time_s
        told.append(
            {
                "run": one_line(run.result.id),
                "time_s": time_s,
                "energy_j": total.value if total else None,
                "error_j": total.error if total else None,
                "mean_w": total.value / time_s if total and time_s else None,
            }
        )
    return told


def _step(average: Average) -> str:
    step_s = float(average.t_s[-1]) / max(len(average.t_s) - 1, 1)
    return f"cubic, at {digits(1 / step_s)} Hz" if step_s > 0 else "cubic"


def power_records(average: Average) -> list[Record]:
    """Mean, deviation and band at each moment that any run has."""
    sigma = np.nan_to_num(average.sigma)
    records = columns_as_records(
        {
            "t_s": average.t_s,
            "mean_w": average.mean,
            "sigma_w": average.sigma,
            "low_w": np.maximum(average.mean - sigma, 0.0),
            "high_w": average.mean + sigma,
            "runs": average.count,
        }
    )
    return known(records, "mean_w")


def _draw_power(unit: DisplayUnit) -> alt.TopLevelMixin:
    import altair as alt

    base = timed(alt.Chart(alt.NamedData("power")), unit)
    x = time_axis(unit)
    return alt.layer(
        base.mark_area(style="band").encode(
            x=x, y=alt.Y("low_w:Q").title("power (W)"), y2="high_w:Q"
        ),
        base.mark_line().encode(x=x, y=alt.Y("mean_w:Q").title("power (W)")),
    )

"""Power and energy over time at each power limit, averaged over the repetitions.

The curves of a limit's runs are resampled to one grid, padded to the longest, and averaged over
what is not padding: mean and standard deviation are those of the runs that have not ended yet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.analyse.chunks import show
from joulewise.analyse.curves.downsample import Envelope, EnvelopeBuilder, even_edges
from joulewise.analyse.curves.series import (
    Average,
    Curve,
    Stage,
    average_curves,
    cumulative_gpu_energy,
    whole_stages,
)
from joulewise.analyse.stored_result import load_or_compute_result
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.data.sweeps import POWER_LIMIT
from joulewise.errors import JoulewiseError
from joulewise.formatting import seconds
from joulewise.metrics.trial_table import AxisSlice
from joulewise.report.charts import encoding
from joulewise.report.charts.chart import Chart, alt
from joulewise.report.charts.encoding import DisplayUnit
from joulewise.report.charts.records import (
    Record,
    average_columns,
    mean_and_deviation,
    record_table,
    to_thinned_records,
    with_fields,
)
from joulewise.report.charts.run.average import DEVIATION_BAND
from joulewise.report.charts.sweep.source import SweptData, title_suffix
from joulewise.report.settings_text import counted
from joulewise.store.layout import StreamKind
from joulewise.store.trace import open_device_stream
from joulewise.units import NS_PER_S, digits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# Points of a curve: no figure shows more, and twice as many would double the size of the page.
_CURVE_POINTS: Final = 240
# Grid of the energy curves, about twice the rate at which boards update their power (chosen); a
# long run has a coarser one, of as many points as above.
_GRID_HZ: Final = 4.0
_MAX_PANELS: Final = 5  # limits that are drawn
_MAX_RUNS: Final = 5  # repetitions that are read of each limit, the first ones
_PANEL_HEIGHT_PX: Final = 74
_POWER: Final = "power_w"


@dataclass(frozen=True)
class LimitSeries:
    """What is shown of one power limit; ``low`` and ``high`` are of all runs' readings.

    ``mean_w`` is that of the runs' results, which differs from the mean of the drawn curve.
    ``unread`` is how many runs cannot be read any more. ``cumulative_energies`` are the energy
    so far of the GPUs in each run, in joules, of those runs whose GPUs have all been read.
    """

    limit_w: float
    mean_w: float
    runs: int
    unread: int
    power: Average
    low: Array
    high: Array
    epochs: tuple[tuple[float, float], ...]
    cumulative_energies: tuple[Curve, ...]

    @property
    def energies_j(self) -> list[float]:
        """The energy of each run."""
        return [float(cumulative.values[-1]) for cumulative in self.cumulative_energies]

    @property
    def times_s(self) -> list[float]:
        """The time of each run."""
        return [float(cumulative.t_s[-1]) for cumulative in self.cumulative_energies]


def _read_limit(limit_w: float, runs: Sequence[Path]) -> LimitSeries | None:
    """None where no run can be read any more."""
    read = [series for run in runs if (series := _read_run(run))]
    if not read:
        return None
    grid_s = np.linspace(0.0, max(run.time_s for run in read), _CURVE_POINTS + 1)
    return LimitSeries(
        limit_w,
        float(np.mean([run.mean_w for run in read])),
        len(read),
        len(runs) - len(read),
        average_curves([run.curve for run in read], grid_s),
        np.fmin.reduce([run.sample(grid_s, run.low) for run in read]),
        np.fmax.reduce([run.sample(grid_s, run.high) for run in read]),
        _mean_epochs([run.epochs for run in read]),
        tuple(run.cumulative for run in read if run.cumulative is not None),
    )


@dataclass(frozen=True)
class _RunSeries:
    """Mean power of a run's GPUs: over all of it, and in pieces of one length up to ``time_s``."""

    time_s: float
    mean_w: float
    low: Array
    high: Array
    mean: Array
    epochs: Sequence[Stage]
    cumulative: Curve | None

    @property
    def curve(self) -> Curve:
        middle_s = (np.arange(len(self.mean)) + 0.5) * self.time_s / len(self.mean)
        return Curve(middle_s, self.mean)

    def sample(self, grid_s: Array, values: Array) -> Array:
        """Values at the times of a grid, NaN after the end of the run."""
        pieces = (grid_s * len(values) / self.time_s).astype(np.int64)
        return np.where(grid_s <= self.time_s, values[np.minimum(pieces, len(values) - 1)], np.nan)


def _read_run(run: Path) -> _RunSeries | None:
    try:
        result = load_or_compute_result(run)
        interval = TimeInterval(result.run.span.start_ns, result.run.span.end_ns)
        edges_ns = even_edges(interval, _CURVE_POINTS)
        gpus = [key for key in result.counted if key.startswith("gpu")]
        means_w = [mean_w for key in gpus if (mean_w := result.run.devices[key].mean_w) is not None]
        powers = [power for key in gpus if (power := _read_power(run, key, edges_ns)) is not None]
        cumulative = cumulative_gpu_energy(run, result)
    except (JoulewiseError, OSError, ValueError, KeyError, TypeError):  # Arrow's are ValueErrors
        return None
    if not powers or not means_w or interval.time_ns <= 0:
        return None
    low, high, mean_power = (
        np.mean([getattr(power, name) for power in powers], axis=0)
        for name in ("low", "high", "mean")
    )
    time_s, mean_w = interval.time_ns / NS_PER_S, float(np.mean(means_w))
    return _RunSeries(time_s, mean_w, low, high, mean_power, whole_stages(result), cumulative)


def _read_power(run: Path, key: str, edges_ns: NDArray[np.int64]) -> Envelope | None:
    """Power of a GPU, thinned to the pieces between the edges."""
    for kind in (StreamKind.BUFFER, StreamKind.FAST):
        stream = open_device_stream(run, key, kind)
        if stream is not None and _POWER in stream.columns:
            thinning = EnvelopeBuilder(_POWER, edges_ns)
            show(stream, thinning)
            return thinning.envelope()
    return None


def _mean_epochs(runs: Sequence[Sequence[Stage]]) -> tuple[tuple[float, float], ...]:
    """Mean start and end of each epoch; empty where runs have different numbers of epochs."""
    count = len(runs[0])
    if not encoding.are_shaded(count) or any(len(run) != count for run in runs):
        return ()
    return tuple(
        (
            float(np.mean([epoch.start_s for epoch in epochs])),
            float(np.mean([epoch.end_s for epoch in epochs])),
        )
        for epochs in zip(*runs, strict=True)
    )


def chart_power_over_time(data: SweptData, store: Path | None) -> Iterator[Chart]:
    """Power over time at up to five limits, a panel each, and energy over time at the same."""
    along = data.main_slice
    if store is None or along is None:
        return
    limits = [
        limit
        for limit_w in _select_limits(data, along)
        if (limit := _read_limit(limit_w, data.runs_at(store, along, limit_w)[:_MAX_RUNS]))
    ]
    if not limits:
        return
    yield _chart_power(limits, along)
    yield from _chart_energy([limit for limit in limits if limit.cumulative_energies], along)


def _chart_power(limits: Sequence[LimitSeries], along: AxisSlice) -> Chart:
    unread = sum(limit.unread for limit in limits)
    epochs = [record for limit in limits for record in _epoch_records(limit)]
    longest_s = max(float(limit.power.t_s[-1]) for limit in limits)
    return Chart(
        key="power-over-time",
        title=_power_title(limits) + title_suffix(along.where),
        description=(
            f"Power of a GPU over time at {counted(len(limits), 'limit')}, from the lowest at "
            "the top to the highest: the mean of "
            f"{counted(max(limit.runs for limit in limits), 'run')} at each, with a band "
            "from their lowest to their highest reading. The dotted line is the limit"
            f"{', every other epoch is shaded' if epochs else ''}."
            + (f" {counted(unread, 'run')} of these can no longer be read." if unread else "")
        ),
        tables={
            "limits": record_table(
                "Mean power at each limit",
                "power_limit_w runs mean_w highest_w time_s",
                map(_power_limit_record, limits),
            ),
            "courses": record_table(
                "Power over time", "power_limit_w t_s mean_w low_w high_w", _power_records(limits)
            ),
            "epochs": record_table(
                "Epochs at each limit", "power_limit_w epoch start_s end_s", epochs
            ),
        },
        drawing=partial(
            _draw_power,
            [limit.limit_w for limit in limits],
            _panel_w(limits),
            encoding.time_unit(longest_s),
            has_epochs=bool(epochs),
        ),
    )


def _select_limits(data: SweptData, along: AxisSlice) -> list[float]:
    """Both ends, the chosen limits, and limits evenly between them."""
    limits = list(along.values)
    if len(limits) <= _MAX_PANELS:
        return limits
    chosen = [choice.setting.get(POWER_LIMIT) for choice in data.choices]
    wanted = [limits[0], limits[-1], *(limit for limit in chosen if limit in limits)]
    evenly = [limits[round(step)] for step in np.linspace(0, len(limits) - 1, _MAX_PANELS)]
    unique = dict.fromkeys(float(limit or 0) for limit in (*wanted, *evenly))
    return sorted(list(unique)[:_MAX_PANELS])


def _power_limit_record(limit: LimitSeries) -> Record:
    return {
        POWER_LIMIT: limit.limit_w,
        "runs": limit.runs,
        "mean_w": limit.mean_w,
        "highest_w": float(np.nanmax(limit.high)),
        "time_s": float(limit.power.t_s[-1]),
    }


def _power_records(limits: Sequence[LimitSeries]) -> Iterator[Record]:
    for limit in limits:
        columns = {
            "t_s": limit.power.t_s,
            "mean_w": limit.power.mean,
            "low_w": limit.low,
            "high_w": limit.high,
        }
        records = to_thinned_records(columns, **{POWER_LIMIT: limit.limit_w})
        yield from with_fields(records, "mean_w")


def _epoch_records(limit: LimitSeries) -> Iterator[Record]:
    for number, (start_s, end_s) in enumerate(limit.epochs, start=1):
        yield {POWER_LIMIT: limit.limit_w, "epoch": number, "start_s": start_s, "end_s": end_s}


def _power_title(limits: Sequence[LimitSeries]) -> str:
    lowest, highest = limits[0], limits[-1]
    if len(limits) == 1:
        return f"At {lowest.limit_w:g} W a GPU draws {lowest.mean_w:.0f} W on average"
    return (
        f"A GPU draws {lowest.mean_w:.0f} W on average at a limit of {lowest.limit_w:g} W, and "
        f"{highest.mean_w:.0f} W at {highest.limit_w:g} W"
    )


def _panel_w(limits: Sequence[LimitSeries]) -> float:
    """The height of a panel in watts: a multiple of 100 at least 12 % above what is in it."""
    most_w = max(max(limit.limit_w, float(np.nanmax(limit.high))) for limit in limits)
    return 100.0 * math.ceil(1.12 * most_w / 100)


def _draw_power(
    limits_w: Sequence[float], panel_w: float, unit: DisplayUnit, *, has_epochs: bool
) -> alt.TopLevelMixin:
    # One view, which a page can stretch: panels are shifted up by their height in watts.
    below = f"({len(limits_w) - 1} - indexof({list(limits_w)}, datum['{POWER_LIMIT}'])) * {panel_w}"
    ticks = [
        panel * panel_w + watts
        for panel in range(len(limits_w))
        for watts in np.arange(0, panel_w - 50, 100 if panel_w <= 400 else 200).tolist()
    ]
    axis = alt.Axis(values=ticks, labelExpr=f"format(datum.value % {panel_w}, '~g')")
    scale = alt.Scale(domain=[0, panel_w * len(limits_w)], nice=False)
    y = alt.Y("from:Q", axis=axis, scale=scale).title("power (W)")
    mean_y = alt.Y("mean:Q", axis=axis, scale=scale)
    x = encoding.time_axis(unit)
    by_limit = alt.Detail(f"{POWER_LIMIT}:Q")
    curves = encoding.data_layer(
        "courses",
        **{"time": unit.expression("t_s"), "from": f"datum.low_w + {below}"},
        to=f"datum.high_w + {below}",
        mean=f"datum.mean_w + {below}",
    ).properties(height=_PANEL_HEIGHT_PX * len(limits_w))
    epochs = (
        encoding.data_layer("epochs")
        .transform_filter("datum.epoch % 2 == 1")
        .transform_calculate(
            **{"time": unit.expression("start_s"), "from": below},
            until=unit.expression("end_s"),
            to=f"{below} + {panel_w}",
        )
    )
    limits = encoding.data_layer(
        "limits",
        **{"time": "0", "from": f"datum['{POWER_LIMIT}'] + {below}"},
        label=f"'limit ' + {encoding.WATTS}",
    )
    shading = epochs.mark_rect(style="stretch").encode(x=x, x2="until:Q", y=y, y2="to:Q")
    return alt.layer(
        *([shading] if has_epochs else []),
        limits.mark_rule(style="limit").encode(y=y),
        curves.mark_area(style="band").encode(x=x, y=y, y2="to:Q", detail=by_limit),
        curves.mark_line(style="course").encode(x=x, y=mean_y, detail=by_limit),
        limits.mark_text(style="label_within").encode(x=x, y=y, text=alt.Text("label:N")),
    )


def _chart_energy(limits: Sequence[LimitSeries], along: AxisSlice) -> Iterator[Chart]:
    """Energy so far at each limit; ``limits`` are those with such curves."""
    if not limits:
        return
    longest_s = max(time_s for limit in limits for time_s in limit.times_s)
    step_s = max(1 / _GRID_HZ, longest_s / _CURVE_POINTS)
    summary = [_energy_limit_record(limit) for limit in limits]
    runs = max(len(limit.cumulative_energies) for limit in limits)
    yield Chart(
        key="energy-over-time",
        title=_energy_title(limits) + title_suffix(along.where),
        description=(
            f"Energy of the GPUs from the start of a run up to each moment, at "
            f"{counted(len(limits), 'limit')}; the mean of {counted(runs, 'run')} at each"
            f" (cubic interpolation at {digits(1 / step_s)} Hz), ending in a point at the mean "
            f"time and energy.{f' {DEVIATION_BAND}' if runs > 1 else ''}"
        ),
        tables={
            "limits": record_table(
                "Mean energy at each limit", "power_limit_w runs time_s energy_j sigma_j", summary
            ),
            "growth": record_table(
                "Energy so far at each limit",
                "power_limit_w t_s energy_j sigma_j runs",
                (record for limit in limits for record in _energy_records(limit, step_s)),
            ),
        },
        drawing=partial(
            _draw_energy,
            [limit.limit_w for limit in limits],
            encoding.energy_unit(max(float(record["energy_j"] or 0.0) for record in summary)),
            encoding.time_unit(longest_s),
            has_bands=runs > 1,
        ),
    )


def _energy_limit_record(limit: LimitSeries) -> Record:
    energies_j = limit.energies_j
    return {
        POWER_LIMIT: limit.limit_w,
        "runs": len(energies_j),
        "time_s": mean(limit.times_s),
        "energy_j": mean(energies_j),
        "sigma_j": stdev(energies_j) if len(energies_j) > 1 else None,
    }


def _energy_records(limit: LimitSeries, step_s: float) -> list[Record]:
    grid_s = np.arange(0.0, max(limit.times_s) + step_s / 2, step_s)
    columns = average_columns(average_curves(limit.cumulative_energies, grid_s), "energy_j")
    return with_fields(to_thinned_records(columns, **{POWER_LIMIT: limit.limit_w}), "energy_j")


def _energy_title(limits: Sequence[LimitSeries]) -> str:
    parts = [
        f"{mean_and_deviation(limit.energies_j, 'J')} in {seconds(mean(limit.times_s))} "
        f"at {limit.limit_w:g} W"
        for limit in (limits if len(limits) == 1 else (limits[0], limits[-1]))
    ]
    return f"A run takes {' and '.join(parts)}"


def _draw_energy(
    limits_w: Sequence[float], energy: DisplayUnit, time: DisplayUnit, *, has_bands: bool
) -> alt.TopLevelMixin:
    names = [f"{limit_w:g} W" for limit_w in limits_w]
    fill = encoding.encode_fill("limit", names)
    title = f"energy so far ({energy.name})"
    x = encoding.time_axis(time)
    low, y = (alt.Y(f"{field}:Q").title(title) for field in ("low", "energy"))
    layer = encoding.time_layer("growth", time).transform_calculate(
        limit=encoding.WATTS,
        energy=energy.expression("energy_j"),
        low=energy.expression("low_j"),
        high=energy.expression("high_j"),
    )
    ends = encoding.data_layer(
        "limits",
        limit=encoding.WATTS,
        time=time.expression("time_s"),
        energy=energy.expression("energy_j"),
    )
    bands = layer.mark_area(style="band").encode(x=x, y=low, y2="high:Q", fill=fill)
    layered: alt.TopLevelMixin = encoding.layer_with_fill(
        *([bands] if has_bands else []),
        layer.mark_line().encode(x=x, y=y, **encoding.encode_lines("limit", names, "power limit")),
        ends.mark_point(style="mean").encode(x=x, y=y, fill=fill),
    )
    return layered

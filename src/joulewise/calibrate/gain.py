"""The gain of a board's sensor, by comparison with a wall meter.

The power at the wall is modelled as linear in what the boards report: a constant that may drift,
for the rest of the node, plus for each board a slope of 1 / (efficiency x gain), with the
efficiency of the power supply (multiple linear regression). The offset of the meter's clock, and
the time over which it averages, are those with the best fit.

- :func:`gain_from_waves`: live, under slow waves of load
- :func:`gains_from_run`: from an earlier run whose load went up and down

The log of a wall meter is a CSV file with a column of times and one of watts, in any order.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.calibrate.bench import draw_waves
from joulewise.calibrate.board import Bench
from joulewise.calibrate.gpu_load import HEAVY
from joulewise.calibrate.response import (
    JACKKNIFE_BLOCKS,
    LEAST_EXPLAINED_SHARE,
    jackknife_error,
)
from joulewise.data import DeviceInfo, Kind, Quantity, SensorProfile, Unavailable
from joulewise.errors import UsageError
from joulewise.record.sensor_profiles import CalibratedValue
from joulewise.store.layout import StreamKind
from joulewise.store.manifest import read_manifest
from joulewise.store.trace import open_device_stream
from joulewise.units import NS_PER_S, Z95

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Readings that a log needs; chosen: a line with a drift has three parameters.
FEWEST: Final = 20
_FORM_HINT: Final = "it needs two columns, such as: time,power_w"
# Unix times in ns, us, ms and s: the least number of each unit (the year 2001), and its seconds.
# Anything below is time since boot.
_UNIX: Final = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3), (1e9, 1.0))


@dataclass(frozen=True)
class Meter:
    """Power at the wall, at times of the monotonic clock, as far as the meter's clock is right."""

    t_s: NDArray[np.float64]
    power_w: NDArray[np.float64]


def read_meter(path: Path, wall_ahead_s: float, *, fewest: int = FEWEST) -> Meter:
    """Read a log of at least ``fewest`` readings; ``wall_ahead_s`` is wall less monotonic clock.

    Times are ISO 8601 (local where they name no zone), unix (s, ms, us or ns), or seconds of the
    monotonic clock (nanoseconds in a column whose name ends in ``_ns``).
    """
    rows = _rows(path)
    first, *rest = rows
    header = first if _number(first[1][-1]) is None else None
    names = [cell.strip().lower() for cell in header[1]] if header else []
    time_at = _column(names, ("time", "date", "stamp", "t_s", "t_ns", "monotonic"), 0)
    power_at = _column(names, ("power", "watt"), 1 if time_at == 0 else 0)
    name = names[time_at] if names else ""
    moments: list[tuple[float, float]] = []
    for line, cells in rest if header else rows:
        if len(cells) <= max(time_at, power_at):
            raise _wrong(path, line, "has too few columns")
        power_text, time_text = cells[power_at].strip(), cells[time_at].strip()
        if not power_text:
            continue
        power_w, t_s = _number(power_text), _parse_time(time_text, name, wall_ahead_s)
        if power_w is None:
            raise _wrong(path, line, f"has no power: {power_text[:20]!r}")
        if t_s is None:
            raise _wrong(path, line, f"has no time: {time_text[:30]!r}")
        moments.append((t_s, power_w))
    if len(moments) < fewest:
        few = f"{path} has {len(moments)} readings, too few"
        raise UsageError(few, f"log {fewest} or more while the GPU is loaded and while it is not")
    table = np.array(sorted(moments)).reshape(-1, 2)
    table = table[np.diff(table[:, 0], prepend=-math.inf) > 0]
    return Meter(table[:, 0], table[:, 1])


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "name the meter's CSV") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a text file", _FORM_HINT) from None
    lines = [(n, s) for n, s in enumerate(text.splitlines(), 1) if s.strip() and s[0] != "#"]
    if not lines:
        raise UsageError(f"{path} is empty", _FORM_HINT)
    separator = next((c for c in ";\t" if c in lines[0][1]), ",")
    rows = [(n, next(csv.reader([s], delimiter=separator))) for n, s in lines]
    if len(rows[0][1]) < 2:
        raise _wrong(path, rows[0][0], "has one column")
    return rows


def _column(names: Sequence[str], words: Sequence[str], otherwise: int) -> int:
    matching = (i for i, name in enumerate(names) if any(word in name for word in words))
    return next(matching, otherwise)


def _parse_time(text: str, name: str, wall_ahead_s: float) -> float | None:
    number = _number(text)
    if number is None:
        try:
            moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            return None
        return moment.timestamp() - wall_ahead_s
    if name.endswith("_ns") and ("monotonic" in name or name == "t_ns"):
        return number / 1e9
    for least, seconds in _UNIX:
        if number >= least:
            return number * seconds - wall_ahead_s
    return number


def _number(text: str) -> float | None:
    try:
        value = float(text.strip().lower().removesuffix("w").replace(",", "."))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _wrong(path: Path, line: int, what: str) -> UsageError:
    return UsageError(f"{path}, line {line}: it {what}", _FORM_HINT)


if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

# Fans, regulators and the core that feeds the GPU draw more when it works: a share of the slope
# (95 %) that is not the board's.
REST_SHARE: Final = 0.02
# A supply of which nothing is known: 80 PLUS asks for 0.80 (plain) to 0.96 (Titanium) at half load.
DEFAULT_EFFICIENCY: Final = CalibratedValue(0.90, 0.06)
WAVES_S: Final = 100.0

_LEAD_S: Final = 5.0
_PAUSES_S: Final = (4.0, 10.0)  # a wall meter has about one value a second
_PRIOR: Final = SensorProfile().gain_sigma  # relative, one standard deviation
_LEAST_SWING_W: Final = 10.0  # chosen: cheap wall meters resolve 0.1 to 1 W
# By how much, as a share of its range, power may differ before, during and after a reading for the
# load to count as steady. Doubled, edges of the waves come in, and errors of the clock with them.
_STEADY_SHARE: Final = 0.1
_MOST_AHEAD_S: Final = 60.0
# Averaging times of the meter that are tried, in its intervals between two readings.
_AVERAGES: Final = (0.1, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0, 5.0)


@dataclass(frozen=True)
class ReportedEnergy:
    """The energy that a board reports to have drawn up to each time."""

    t_s: Array
    energy_j: Array

    def mean_w(self, start_s: Array, end_s: Array) -> Array:
        used_j = np.interp(end_s, self.t_s, self.energy_j)
        used_j -= np.interp(start_s, self.t_s, self.energy_j)
        return np.asarray(used_j / (end_s - start_s))


@dataclass(frozen=True)
class Gains:
    """The gain of each board, or why it is unknown; by how much the meter's clock is ahead."""

    gains: tuple[CalibratedValue | Unavailable, ...]
    ahead_s: float
    average_s: float


def fit_gains(
    meter: Meter, boards: Sequence[ReportedEnergy], efficiency: CalibratedValue
) -> Gains | Unavailable:
    """Fit the gains of all boards of a node at once, so that each is separated from the others."""
    interval_s = float(np.median(np.diff(meter.t_s)))
    averages_s = [interval_s * factor for factor in _AVERAGES]
    aligned = _align(
        meter, boards, np.arange(-_MOST_AHEAD_S, _MOST_AHEAD_S, interval_s / 4), averages_s
    )
    if aligned is None:
        return Unavailable("the meter's log and the recording have no minute in common")
    fine = aligned.ahead_s + interval_s * np.linspace(-0.5, 0.5, 41)
    aligned = _align(meter, boards, fine, np.geomspace(0.6, 1.6, 9) * aligned.average_s) or aligned
    swings_w = np.ptp(aligned.columns[:, 2:], axis=0)
    steady = aligned.select(_is_steady(aligned, boards, interval_s))
    count = steady.power_w.size
    if aligned.unexplained > 1 - LEAST_EXPLAINED_SHARE or swings_w.max() < _LEAST_SWING_W:
        return Unavailable(
            f"the GPU explains only {1 - aligned.unexplained:.0%} of the meter's readings: "
            "the node had other work, or the log is of another time"
        )
    if count < FEWEST:
        return Unavailable(
            f"the load was steady for only {count} of the meter's readings: "
            "pauses and loads must last for several of them"
        )
    block = np.arange(count) * JACKKNIFE_BLOCKS // count
    without = [steady.select(block != i).solve()[2:] for i in range(JACKKNIFE_BLOCKS)]
    errors = jackknife_error(np.array(without))
    gains = tuple(
        _gain(slope, error, swing_w, efficiency)
        for slope, error, swing_w in zip(
            steady.solve()[2:], errors, _own_swings_w(steady), strict=True
        )
    )
    return Gains(gains, aligned.ahead_s, aligned.average_s)


def _gain(
    slope: float, error: float, swing_w: float, efficiency: CalibratedValue
) -> CalibratedValue | Unavailable:
    if swing_w < _LEAST_SWING_W or slope <= 0 or error > slope / 2:
        return Unavailable("this board's load changed too little, or only along with another's")
    gain = 1 / (efficiency.value * slope)
    relative = np.sqrt(
        (error / slope) ** 2 + (efficiency.error / efficiency.value) ** 2 + REST_SHARE**2
    )
    return CalibratedValue(float(gain), float(gain * relative))


def _own_swings_w(line: _GainLine) -> list[float]:
    """The range of each board's power that no other board's power explains."""
    swings_w = []
    for at in range(2, line.columns.shape[1]):
        column, others = line.columns[:, at], np.delete(line.columns, at, axis=1)
        shared, *_ = np.linalg.lstsq(others, column, rcond=None)
        alone = np.std(column - others @ shared) / max(np.std(column), 1e-9)
        swings_w.append(float(np.ptp(column) * alone))
    return swings_w


@dataclass(frozen=True)
class _GainLine:
    """The linear model of the meter, for one offset of its clock and one averaging time.

    ``columns`` are a constant, a drift, and the mean power of each board.
    """

    ahead_s: float
    average_s: float
    end_s: Array
    power_w: Array
    columns: Array

    def select(self, keep: NDArray[np.bool_]) -> _GainLine:
        parts = (self.end_s[keep], self.power_w[keep], self.columns[keep])
        return _GainLine(self.ahead_s, self.average_s, *parts)

    def solve(self) -> Array:
        coefficients, *_ = np.linalg.lstsq(self.columns, self.power_w, rcond=None)
        return np.asarray(coefficients)

    @property
    def unexplained(self) -> float:
        """The share of the meter's variance that the boards do not explain."""
        residual = self.power_w - self.columns @ self.solve()
        return float(residual.var() / max(self.power_w.var(), 1e-12))


def _align(
    meter: Meter,
    boards: Sequence[ReportedEnergy],
    ahead_s: Array,
    averages_s: Sequence[float] | Array,
) -> _GainLine | None:
    """The model with the highest likelihood, which favours clocks that use more of the log."""
    best, highest = None, 0.0
    for average_s in averages_s:
        for ahead in ahead_s:
            line = _make_line(meter, boards, float(ahead), float(average_s))
            if line is None:
                continue
            log_likelihood = -line.power_w.size * np.log(max(line.unexplained, 1e-9))
            if log_likelihood > highest:
                best, highest = line, log_likelihood
    return best


def _make_line(
    meter: Meter, boards: Sequence[ReportedEnergy], ahead_s: float, average_s: float
) -> _GainLine | None:
    end_s = meter.t_s - ahead_s
    start_s = end_s - average_s
    known = (start_s >= max(b.t_s[0] for b in boards)) & (end_s <= min(b.t_s[-1] for b in boards))
    if known.sum() < FEWEST:
        return None
    start_s, end_s = start_s[known], end_s[known]
    drift = (end_s - end_s.mean()) / np.ptp(end_s)
    means_w = [board.mean_w(start_s, end_s) for board in boards]
    columns = np.column_stack([np.ones_like(drift), drift, *means_w])
    return _GainLine(ahead_s, average_s, end_s, meter.power_w[known], columns)


def _is_steady(
    line: _GainLine, boards: Sequence[ReportedEnergy], margin_s: float
) -> NDArray[np.bool_]:
    """Where no board's load changed around a reading: there the exact clock does not matter."""
    start_s = line.end_s - line.average_s
    is_steady = np.ones(line.end_s.size, bool)
    for board in boards:
        means_w = np.array(
            [
                board.mean_w(start_s - margin_s, start_s),
                board.mean_w(start_s, line.end_s),
                board.mean_w(line.end_s, line.end_s + margin_s),
            ]
        )
        limit_w = _STEADY_SHARE * max(np.ptp(means_w[1]), _LEAST_SWING_W)
        is_steady &= np.ptp(means_w, axis=0) <= limit_w
    return is_steady


@dataclass(frozen=True)
class WallMeter:
    """The log of a meter, and the efficiency of the power supply between it and the boards."""

    path: Path
    efficiency: CalibratedValue = DEFAULT_EFFICIENCY


@dataclass(frozen=True)
class Gain:
    """The gain of one board, or why it is unknown; ``how`` says in words what it is based on."""

    gain: CalibratedValue | Unavailable
    how: str


def gain_from_waves(
    bench: Bench, meter: WallMeter, *, seed: int = 0, progress: Callable[[float], None]
) -> Gain:
    """Measure the gain: load the board with slow waves while the meter writes its log."""
    read_meter(meter.path, _wall_ahead_s(), fewest=0)  # raises now where the log has errors
    waves = draw_waves(WAVES_S - _LEAD_S, *_PAUSES_S, lead_s=_LEAD_S, seed=seed)
    recording = bench.record(waves, HEAVY, progress)
    if recording.faults:
        return Gain(Unavailable("; ".join(recording.faults)), "")
    energy_j = recording.columns.get(Quantity.ENERGY)
    drawn = _integrate(recording.t_s, recording.columns[Quantity.POWER], energy_j)
    (gain,) = _fit(meter, _wall_ahead_s(), [drawn])
    return gain


def gains_from_run(run: Path, meter: WallMeter) -> dict[DeviceInfo, Gain]:
    """Measure the gain of every GPU of a run whose load went up and down."""
    manifest = read_manifest(run)
    gpus = [device.info for device in manifest.devices if device.info.kind is Kind.GPU]
    drawn = {info: one for info in gpus if (one := _read_run(run, info.key)) is not None}
    if not drawn:
        raise UsageError(
            f"run {manifest.id} has no trace of a GPU", "`joulewise show` lists its devices"
        )
    ahead_s = (manifest.wall_start_ns - manifest.monotonic_start_ns) / NS_PER_S
    return dict(zip(drawn, _fit(meter, ahead_s, list(drawn.values())), strict=True))


def _fit(meter: WallMeter, wall_ahead_s: float, boards: list[ReportedEnergy]) -> list[Gain]:
    log = read_meter(meter.path, wall_ahead_s)
    fitted = fit_gains(log, boards, meter.efficiency)
    if isinstance(fitted, Unavailable):
        return [Gain(fitted, "") for _ in boards]
    how = (
        f"{meter.path.name}, a supply of {meter.efficiency.value:g} ± {meter.efficiency.error:g}, "
        f"the meter's clock {fitted.ahead_s:+.1f} s"
    )
    return [Gain(_check_useful(gain), how) for gain in fitted.gains]


def _check_useful(gain: CalibratedValue | Unavailable) -> CalibratedValue | Unavailable:
    """The gain, unless it is no more exact than what is known of any board."""
    if isinstance(gain, Unavailable) or gain.error / gain.value < Z95 * _PRIOR:
        return gain
    return Unavailable(
        f"the meter gives {gain.value:.3f} ± {gain.error:.3f}, "
        f"no better than the ± {Z95 * _PRIOR:.3f} that is known without it",
        "give the efficiency of the power supply: --psu-efficiency 0.94±0.01",
    )


def _read_run(run: Path, key: str) -> ReportedEnergy | None:
    stream = open_device_stream(run, key, StreamKind.FAST)
    if stream is None or Quantity.POWER.value not in stream.columns:
        return None
    wanted = "t_ns", Quantity.POWER.value, Quantity.ENERGY.value
    names = [name for name in wanted if name in stream.columns]
    chunks = list(stream.chunks(names))
    column = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in names}
    t_s = column["t_ns"] / NS_PER_S
    return _integrate(t_s, column[Quantity.POWER.value], column.get(Quantity.ENERGY.value))


def _integrate(t_s: Array, power_w: Array, energy_j: Array | None) -> ReportedEnergy:
    """The energy by the counter, else by holding each power reading until the next."""
    if energy_j is not None and np.isfinite(energy_j).any():
        is_known = np.isfinite(energy_j)
        t_s, energy_j = t_s[is_known], energy_j[is_known]
        # Between two of its updates the counter stands still, and the board does not.
        stepped = np.diff(energy_j, prepend=energy_j[0] - 1.0) != 0
        return ReportedEnergy(t_s[stepped], energy_j[stepped])
    is_known = np.isfinite(power_w)
    t_s, power_w = t_s[is_known], power_w[is_known]
    return ReportedEnergy(t_s, np.concatenate([[0.0], np.cumsum(power_w[:-1] * np.diff(t_s))]))


def _wall_ahead_s() -> float:
    """The wall clock less the monotonic one."""
    return time.time() - time.monotonic()

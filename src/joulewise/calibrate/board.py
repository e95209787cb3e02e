"""The calibration of one board: load it, poll its sensor, and fit a sensor profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from joulewise.calibrate.bench import Burst, draw_waves
from joulewise.calibrate.gpu_load import HEAVY, LIGHT
from joulewise.calibrate.response import SensorPolls, counter_period, fit_sensor
from joulewise.calibrate.update_period import find_ticks
from joulewise.data import DeviceInfo, Quantity, SensorProfile, Unavailable
from joulewise.errors import UsageError
from joulewise.record.sensor_profiles import (
    CalibratedProfile,
    CalibratedValue,
    SensorTiming,
    read_calibrated_profile,
    write_calibrated_profile,
)

SENSORS: Final = (Quantity.POWER, Quantity.POWER_INSTANT)
LEAST_S: Final = 8.0

# A first part of the time finds the update period, for which the waves of the rest are drawn.
_PROBE_SHARE: Final = 0.2
_LEAD_S: Final = 1.5
_PROBE_BURSTS_S: Final = (0.010, 0.400)  # the periods of known boards are 15 to 100 ms
_DEFAULT_PERIOD_S: Final = 0.1  # where the probe finds none
# Shortest and longest pause or load, in update periods: some within a window, some far beyond it.
_SHORTEST, _LONGEST = 0.25, 4.0
_POWER_CAP: Final = "power cap"

Progress = Callable[[float], None]


class Bench(Protocol):
    """Loads and polls a board: a :class:`~joulewise.calibrate.bench.Rig`, or a simulated one."""

    def record(self, bursts: Sequence[Burst], kind: str, progress: Progress) -> SensorPolls: ...


@dataclass(frozen=True)
class Calibration:
    """The result of calibrating one board, beside what the tables say of it.

    ``sensors`` has the timing of each power sensor of the board, or why it is unknown. ``gain`` is
    None without a meter. ``card`` is the stored sensor profile, and ``earlier`` why a profile that
    was stored before is not valid.
    """

    info: DeviceInfo
    sensors: Mapping[Quantity, SensorTiming | Unavailable] = field(default_factory=dict)
    counter_period_s: CalibratedValue | Unavailable | None = None
    how: str = ""
    tables: Mapping[Quantity, SensorProfile] = field(default_factory=dict)
    gain: CalibratedValue | Unavailable | None = None
    gain_how: str = ""
    card: CalibratedProfile | None = None
    path: Path | None = None
    earlier: Unavailable | None = None

    @property
    def tells(self) -> bool:
        """Whether anything was found."""
        timed = any(isinstance(timing, SensorTiming) for timing in self.sensors.values())
        return timed or isinstance(self.gain, CalibratedValue)


def calibrate(
    info: DeviceInfo,
    tables: Mapping[Quantity, SensorProfile],
    bench: Bench,
    seconds: float,
    *,
    seed: int = 0,
    progress: Progress = lambda _: None,
) -> Calibration:
    """Load the board for about ``seconds`` and fit its sensors, without the gain.

    A first part finds the update period, from which the waves of the rest follow.
    """
    if seconds < LEAST_S:
        raise UsageError(f"{seconds:g} s is too short", f"use {LEAST_S:g} s or more")
    probe_s = seconds * _PROBE_SHARE
    waves = draw_waves(probe_s - _LEAD_S / 2, *_PROBE_BURSTS_S, lead_s=_LEAD_S / 2, seed=seed)
    kind = HEAVY
    probe = bench.record(waves, kind, lambda share: progress(share * _PROBE_SHARE))
    if any(_POWER_CAP in fault for fault in probe.faults):
        kind = LIGHT  # under its power limit, a board draws no square wave
        probe = bench.record(waves, kind, lambda share: progress(share * _PROBE_SHARE))
    period_s = _period_s(probe)
    waves = draw_waves(
        seconds - probe_s - _LEAD_S,
        period_s * _SHORTEST,
        period_s * _LONGEST,
        lead_s=_LEAD_S,
        seed=seed + 1,
    )
    rest = 1 - _PROBE_SHARE
    recording = bench.record(waves, kind, lambda share: progress(_PROBE_SHARE + share * rest))
    return Calibration(
        info,
        {q: fit_sensor(recording, q) for q in SENSORS if q in recording.columns},
        counter_period(recording),
        f"{len(waves)} bursts of {kind} load in {seconds:.0f} s",
        tables,
    )


def keep(result: Calibration, environ: Mapping[str, str], when: str) -> Calibration:
    """Store the result as the board's sensor profile; what was not measured stays as it was."""
    before = read_calibrated_profile(result.info, environ)
    if isinstance(before, Unavailable):
        result, before = replace(result, earlier=before), None
    if not result.tells:
        return replace(result, card=before)
    info = result.info
    card = before or CalibratedProfile(info.uid, info.driver, info.name, when, result.how)
    timings = {q.value: t for q, t in result.sensors.items() if isinstance(t, SensorTiming)}
    if timings:
        card = replace(card, when=when, how=result.how, sensors={**card.sensors, **timings})
    if isinstance(result.counter_period_s, CalibratedValue):
        card = replace(card, counter_period_s=result.counter_period_s)
    if isinstance(result.gain, CalibratedValue):
        card = replace(card, when=when, gain=result.gain, gain_how=result.gain_how)
    return replace(result, card=card, path=write_calibrated_profile(card, environ))


def _period_s(probe: SensorPolls) -> float:
    """The update period of the quickest sensor of the board."""
    loaded = probe.under_load()
    clocks = [find_ticks(loaded.t_s, loaded.columns[q]) for q in SENSORS if q in loaded.columns]
    periods = [clock.period_s.value for clock in clocks if not isinstance(clock, Unavailable)]
    return min(periods, default=_DEFAULT_PERIOD_S)

"""``calibrate``: what a board's sensor really does, measured on the board itself."""

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
    CalibratedValue,
    KeptCard,
    SensorTiming,
    keep_card,
    kept_card,
)

SENSORS: Final = (Quantity.POWER, Quantity.POWER_INSTANT)
LEAST_S: Final = 8.0

_PROBE_SHARE: Final = 0.2
_LEAD_S: Final = 1.5
_PROBED_S: Final = (0.010, 0.400)
_USUAL_PERIOD_S: Final = 0.1
# Pauses and loads of these many periods: some within a window, some far beyond it.
_SHORTEST, _LONGEST = 0.25, 4.0
_POWER_CAP: Final = "power cap"

Progress = Callable[[float], None]


class Bench(Protocol):
    """Where a board is loaded and polled: a :class:`~joulewise.calibrate.bench.Rig`, as a rule."""

    def record(self, bursts: Sequence[Burst], kind: str, progress: Progress) -> SensorPolls: ...


@dataclass(frozen=True)
class Calibration:
    """What was found of one board, beside what the tables say of it.

    ``sensors`` has figures or a reason for each reading of power that the board tells. ``gain``
    is None without a meter. ``card`` is what was kept, and ``earlier`` why a card that was there
    before did not count.
    """

    info: DeviceInfo
    sensors: Mapping[Quantity, SensorTiming | Unavailable] = field(default_factory=dict)
    counter_period_s: CalibratedValue | Unavailable | None = None
    how: str = ""
    tables: Mapping[Quantity, SensorProfile] = field(default_factory=dict)
    gain: CalibratedValue | Unavailable | None = None
    gain_how: str = ""
    card: KeptCard | None = None
    path: Path | None = None
    earlier: Unavailable | None = None

    @property
    def tells(self) -> bool:
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
    """Load the board for about ``seconds``: to see how often it updates, then to suit that."""
    if seconds < LEAST_S:
        raise UsageError(f"{seconds:g} s are too short", f"take {LEAST_S:g} s or more")
    probe_s = seconds * _PROBE_SHARE
    waves = draw_waves(probe_s - _LEAD_S / 2, *_PROBED_S, lead_s=_LEAD_S / 2, seed=seed)
    kind = HEAVY
    probe = bench.record(waves, kind, lambda share: progress(share * _PROBE_SHARE))
    if any(_POWER_CAP in fault for fault in probe.faults):
        kind = LIGHT  # a board that its limit holds back draws no square wave
        probe = bench.record(waves, kind, lambda share: progress(share * _PROBE_SHARE))
    period_s = _period_s(probe)
    waves = draw_waves(
        seconds - probe_s - _LEAD_S,
        period_s * _SHORTEST,
        period_s * _LONGEST,
        lead_s=_LEAD_S,
        seed=seed + 1,
    )
    whole = 1 - _PROBE_SHARE
    recording = bench.record(waves, kind, lambda share: progress(_PROBE_SHARE + share * whole))
    return Calibration(
        info,
        {q: fit_sensor(recording, q) for q in SENSORS if q in recording.columns},
        counter_period(recording),
        f"{len(waves)} bursts of {kind} load in {seconds:.0f} s",
        tables,
    )


def keep(found: Calibration, environ: Mapping[str, str], when: str) -> Calibration:
    """Keep what was found as the board's card; what was not asked for stays as it was."""
    before = kept_card(found.info, environ)
    if isinstance(before, Unavailable):
        found, before = replace(found, earlier=before), None
    if not found.tells:
        return replace(found, card=before)
    info = found.info
    card = before or KeptCard(info.uid, info.driver, info.name, when, found.how)
    timings = {q.value: t for q, t in found.sensors.items() if isinstance(t, SensorTiming)}
    if timings:
        card = replace(card, when=when, how=found.how, sensors={**card.sensors, **timings})
    if isinstance(found.counter_period_s, CalibratedValue):
        card = replace(card, counter_period_s=found.counter_period_s)
    if isinstance(found.gain, CalibratedValue):
        card = replace(card, when=when, gain=found.gain, gain_how=found.gain_how)
    return replace(found, card=card, path=keep_card(card, environ))


def _period_s(probe: SensorPolls) -> float:
    """Of the quickest of the board's readings."""
    loaded = probe.under_load()
    found = [find_ticks(loaded.t_s, loaded.columns[q]) for q in SENSORS if q in loaded.columns]
    periods = [ticks.period_s.value for ticks in found if not isinstance(ticks, Unavailable)]
    return min(periods, default=_USUAL_PERIOD_S)

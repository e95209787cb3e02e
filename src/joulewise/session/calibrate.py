"""``calibrate``: what a board's sensor really does, measured on the board itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from joulewise.analyse.sensor_fit import Recording, counter_period, fit_sensor
from joulewise.analyse.sensor_ticks import find_ticks
from joulewise.data import Card, DeviceInfo, Quantity, Unavailable
from joulewise.errors import UsageError
from joulewise.record.cards import Figure, KeptCard, SensorTiming
from joulewise.session.load import HEAVY, LIGHT
from joulewise.session.waves import Burst, draw_waves

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
    """Where a board is loaded and polled: a :class:`~joulewise.session.rig.Rig`, as a rule."""

    def record(self, bursts: Sequence[Burst], kind: str, progress: Progress) -> Recording: ...


@dataclass(frozen=True)
class Calibration:
    """What was found of one board, beside what the tables say of it.

    ``sensors`` has a figure or a reason for each reading of power that the board tells.
    """

    info: DeviceInfo
    sensors: Mapping[Quantity, SensorTiming | Unavailable]
    counter_period_s: Figure | Unavailable
    how: str
    tables: Mapping[Quantity, Card] = field(default_factory=dict)
    gain: Figure | Unavailable | None = None
    gain_how: str = ""

    @property
    def complete(self) -> bool:
        return not any(isinstance(timing, Unavailable) for timing in self.sensors.values())


def calibrate(
    info: DeviceInfo,
    tables: Mapping[Quantity, Card],
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


def kept(found: Calibration, earlier: KeptCard | Unavailable | None, when: str) -> KeptCard:
    """The card to keep. A gain that a meter told earlier stays until one tells another."""
    before = earlier if isinstance(earlier, KeptCard) else None
    gain, gain_how = (before.gain, before.gain_how) if before else (None, "")
    if isinstance(found.gain, Figure):
        gain, gain_how = found.gain, found.gain_how
    period = found.counter_period_s
    return KeptCard(
        uid=found.info.uid,
        driver=found.info.driver,
        name=found.info.name,
        when=when,
        how=found.how,
        sensors={
            quantity.value: timing
            for quantity, timing in found.sensors.items()
            if isinstance(timing, SensorTiming)
        },
        counter_period_s=period if isinstance(period, Figure) else None,
        gain=gain,
        gain_how=gain_how,
    )


def _period_s(probe: Recording) -> float:
    """Of the quickest of the board's readings."""
    loaded = probe.under_load()
    found = [find_ticks(loaded.t_s, loaded.columns[q]) for q in SENSORS if q in loaded.columns]
    periods = [ticks.period_s.value for ticks in found if not isinstance(ticks, Unavailable)]
    return min(periods, default=_USUAL_PERIOD_S)

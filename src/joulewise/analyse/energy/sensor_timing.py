"""The times that matter of a sensor, from its profile and from its streams themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from joulewise.analyse.chunks import ChunkReader, typical_step_ns
from joulewise.data import SensorProfile
from joulewise.units import NS_PER_S

# Nobody has published how late a reading is; `joulewise calibrate` measures it on one board.
# Without that it is assumed to be a fifth of the period, within a quarter of that (one standard
# deviation). Both chosen; simulated boards do not confirm them, since their lags are assumed, too
# (a fifth of 100 ms, a quarter of 20 ms). With twice the lag, the energy of a window moves by that
# of another fifth of a period where power differs at its edges; with twice the sigma, its error
# widens.
_LAG_SHARE: Final = 0.2
_LAG_SIGMA_SHARE: Final = 0.25
# A counter's lag is known even less. It is taken to be that of the readings, within half of it.
_COUNTER_LAG_SIGMA_SHARE: Final = 0.5
_DEFAULT_STEP_S: Final = 0.1
# Where the profile is of readings averaged over many periods, the driver's own samples average less
# than one, and no vendor states how much: between a quarter (GA100, Hopper) and all of it. As a
# share of the period, and how far the centre of such a window may lie off (one sigma).
_UNKNOWN_WINDOW_SHARE: Final = 0.4
_UNKNOWN_DELAY_SIGMA_SHARE: Final = 0.15
_MANY_PERIODS: Final = 1.5


@dataclass(frozen=True)
class ReadingTiming:
    """When readings of power and values of the counter are of; sigmas are standard deviations.

    - ``step_s``: from row to row of the power stream; ``period_s``: from new value to new value
    - ``poll_s``: between two polls of the counter; ``counter_s``: between its ticks, 0 where it is
      computed when it is polled
    - ``held_s``: how long a reading stands, None where the period is not stated
    - ``window_s``: over which a reading is averaged; ``delay_s``: from the centre of that window to
      the reading's timestamp
    - ``counter_lag_s``: from the energy that a counter shows to its tick
    - ``timing_sigma_s``: by how much the integral of the readings alone may misplace a change at
      the edge of a window
    - ``spread``: the relative half-width within which a stated period may be off
    - ``is_sampled``: the readings are the driver's own samples; ``is_delay_known``: their averaging
      window is stated
    """

    step_s: float
    poll_s: float
    held_s: float | None
    period_s: float
    window_s: float
    delay_s: float
    delay_sigma_s: float
    timing_sigma_s: float
    counter_s: float
    counter_lag_s: float
    counter_lag_sigma_s: float
    spread: float
    is_sampled: bool
    is_delay_known: bool

    @property
    def shift_s(self) -> float:
        """How much later than the power itself the end of its cell is in the power stream."""
        return self.delay_s - self.step_s / 2

    @property
    def shortest_s(self) -> float:
        """The shortest time that the sensor can resolve."""
        return max(self.period_s, self.counter_s, min(self.window_s, self.step_s))

    @property
    def seen(self) -> float:
        """The share of the time that readings average over."""
        return self.window_s / max(self.period_s, self.step_s)


def timing_of(
    profile: SensorProfile, fast: ChunkReader | None, buffer: ChunkReader | None
) -> ReadingTiming:
    """The timing of a device's polled stream ``fast``, and of the driver's samples ``buffer``.

    A time that the profile does not state is assumed, with a sigma that allows for it. The
    variance of an edge is that of a uniform distribution over a step, s²/12, and the delay's.
    """
    power = buffer if buffer is not None else fast
    step_s = (typical_step_ns(power) / NS_PER_S if power is not None else 0.0) or _DEFAULT_STEP_S
    stated_s = profile.update_period_s or step_s
    period_s = step_s if buffer is not None else stated_s
    window_s = stated_s if profile.window_s is None else profile.window_s
    lag_s = _LAG_SHARE * period_s if profile.lag_s is None else profile.lag_s
    lag_sigma_s = (_LAG_SIGMA_SHARE if profile.lag_s is None else profile.timing_spread / 2) * lag_s
    # The profile's spread is a 95 % half-width, so a half of it is one standard deviation; and the
    # centre of a window is off by half of what its length is: together a quarter.
    delay_sigma_s = (lag_sigma_s**2 + (profile.timing_spread * window_s / 4) ** 2) ** 0.5
    is_delay_known = True
    if buffer is not None and (profile.window_s is None or window_s > _MANY_PERIODS * period_s):
        is_delay_known = False
        window_s = _UNKNOWN_WINDOW_SHARE * period_s
        delay_sigma_s = _UNKNOWN_DELAY_SIGMA_SHARE * period_s
    elif buffer is not None:
        window_s = min(window_s, period_s)
    counter_s = period_s if profile.counter_period_s is None else profile.counter_period_s
    return ReadingTiming(
        step_s=step_s,
        held_s=max(step_s, period_s) if buffer is not None or profile.update_period_s else None,
        poll_s=typical_step_ns(fast) / NS_PER_S if fast is not None else step_s,
        period_s=period_s,
        window_s=window_s,
        delay_s=lag_s + window_s / 2 + (0.0 if buffer is not None else period_s / 2),
        delay_sigma_s=delay_sigma_s,
        timing_sigma_s=(step_s**2 / 12 + delay_sigma_s**2) ** 0.5,
        counter_s=counter_s,
        counter_lag_s=lag_s if counter_s else 0.0,
        counter_lag_sigma_s=_COUNTER_LAG_SIGMA_SHARE * lag_s if counter_s else 0.0,
        spread=profile.timing_spread,
        is_sampled=buffer is not None,
        is_delay_known=is_delay_known,
    )

"""Spans that the sensors hardly saw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.data import Caution, RunWarning, total
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.analyse.measured import MeasuredDevice
    from joulewise.analyse.stretch import Stretch
    from joulewise.record.marks import SpanTable

TOO_WIDE: Final = 0.2
"""A sampling error beyond this share of the energy says that the sensors hardly saw the span."""

_NAMED: Final = 5
_USEFUL: Final = 0.1
_SURELY_SHORT_S: Final = 1.0
_ASKED: Final = 0.9  # of a sensor's period: one that is asked about as often has no more to tell


def too_short(
    counted: Sequence[MeasuredDevice],
    spans: SpanTable,
    energy_j: NDArray[np.float64],
    sampling_j: NDArray[np.float64],
    rate_hz: float,
) -> Iterator[RunWarning]:
    """One warning for all of them; where a sensor failed, length is not to blame."""
    times_s = (spans.end_ns - spans.start_ns) / NS_PER_S
    with np.errstate(invalid="ignore"):
        short = sampling_j > TOO_WIDE * np.abs(energy_j)
    for measured in counted:
        short &= measured.clean[1:] & (spans.start_ns >= (measured.device.awake_ns or 0))
    if not short.any():
        return
    names, useful_s = {}, []
    for code in np.unique(spans.name[short]).tolist():
        mine = spans.name == code
        bad = mine & short
        share = bad.sum() / mine.sum()
        many = "all" if share == 1 else f"{100 * share:.0f} % of the"
        names[spans.names[code]] = f"{many} spans {spans.names[code]!r} ({_about(times_s[bad])})"
        useful_s.append(_useful_s(times_s[bad], energy_j[bad], sampling_j[bad]))
    only = next(iter(names)) if len(names) == 1 else None
    more = f" and those of {len(names) - _NAMED} more names" if len(names) > _NAMED else ""
    told = ", ".join(list(names.values())[:_NAMED]) + more
    yield _warning(told, max(useful_s), counted, rate_hz, only)


def without_length(spans: SpanTable) -> Iterator[RunWarning]:
    """Why a span has no energy: its marks lie at one moment, or it began where the trace ends."""
    is_empty = spans.end_ns <= spans.start_ns
    if not is_empty.any():
        return
    codes, counts = np.unique(spans.name[is_empty], return_counts=True)
    names = [spans.names[code] for code in codes.tolist()]
    told = [f"{count} of {name!r}" for name, count in zip(names, counts.tolist(), strict=True)]
    more = f" and those of {len(names) - _NAMED} more names" if len(names) > _NAMED else ""
    yield RunWarning(
        Caution.SPAN_TOO_SHORT,
        f"no energy is known of spans that have no length: {', '.join(told[:_NAMED])}{more}",
        "each began where it ended, or where the recording ends: the run's energy has it all",
        span=names[0] if len(names) == 1 else None,
    )


def too_short_run(
    counted: Sequence[MeasuredDevice], run: Stretch, rate_hz: float
) -> Iterator[RunWarning]:
    """In the shortest runs a sensor does not fail: there was no time for it to answer."""
    energies = [measured.uses[0].energy for measured in counted]
    whole = total(energy for energy in energies if energy)
    clean = run.time_s < _SURELY_SHORT_S or all(
        measured.clean[0] and run.start_ns >= (measured.device.awake_ns or 0)
        for measured in counted
    )
    if clean and whole and whole.error_sampling > TOO_WIDE * abs(whole.value):
        figures = ([run.time_s], [whole.value], [whole.error_sampling])
        times_s, energy_j, sampling_j = map(np.array, figures)
        useful_s = _useful_s(times_s, energy_j, sampling_j)
        yield _warning(f"the run ({_about(times_s)})", useful_s, counted, rate_hz, "run")


def _useful_s(
    times_s: NDArray[np.float64], energy_j: NDArray[np.float64], sampling_j: NDArray[np.float64]
) -> float:
    """From which length on spans have a useful error, by those that have not; 0 if unknown.

    The edges of a span cost about the same joules however long it lasts, so that its error falls as
    1 / length. The longest of these has more than ``TOO_WIDE``: it would have to be longer by more
    than ``TOO_WIDE / _USEFUL`` itself, whatever the others have on average.
    """
    power_w = float(energy_j.sum()) / max(float(times_s.sum()), 1e-9)
    if power_w <= 0:
        return 0.0
    typical_s = float(np.median(sampling_j)) / (_USEFUL * power_w)
    return max(typical_s, float(times_s.max()) * TOO_WIDE / _USEFUL)


def _warning(
    which: str, useful_s: float, counted: Sequence[MeasuredDevice], rate_hz: float, name: str | None
) -> RunWarning:
    enough = f"of {_about(useful_s)} and more" if useful_s else "that last longer"
    faster = "; a higher --rate may help" if _outpaced(counted, rate_hz) else ""
    return RunWarning(
        Caution.SPAN_TOO_SHORT,
        f"too short for the sensors, whose sampling error is above {100 * TOO_WIDE:.0f} %: {which}",
        f"spans {enough} have less than {100 * _USEFUL:.0f} % here{faster}",
        span=name,
    )


def _outpaced(counted: Sequence[MeasuredDevice], rate_hz: float) -> bool:
    """Whether some sensor has news more often than it is asked."""
    return any(
        period_s is not None and period_s * rate_hz < _ASKED
        for device in (measured.device for measured in counted)
        if device.has_sensor
        for period_s in (device.card.update_period_s, device.card.counter_period_s)
    )


def _about(times_s: NDArray[np.float64] | float) -> str:
    seconds = float(np.median(times_s))
    if seconds >= 1:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{1e3 * seconds:.1f} ms" if seconds < 0.01 else f"{1e3 * seconds:.0f} ms"

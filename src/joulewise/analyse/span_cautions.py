"""Spans that the sensors hardly saw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.data import Caution, RunWarning, total
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.analyse.measured import Measured
    from joulewise.analyse.stretch import Stretch
    from joulewise.record.marks import SpanTable

TOO_WIDE: Final = 0.2
"""A sampling error beyond this share of the energy says that the sensors hardly saw the span."""

_USEFUL: Final = 0.1


def too_short(
    counted: Sequence[Measured],
    spans: SpanTable,
    energy_j: NDArray[np.float64],
    sampling_j: NDArray[np.float64],
) -> Iterator[RunWarning]:
    """One warning for all spans of a name; where a sensor failed, length is not to blame."""
    times_s = (spans.end_ns - spans.start_ns) / NS_PER_S
    with np.errstate(invalid="ignore"):
        short = sampling_j > TOO_WIDE * np.abs(energy_j)
    for measured in counted:
        short &= measured.clean[1:]
    for code in np.unique(spans.name[short]).tolist():
        mine = spans.name == code
        bad = mine & short
        name = spans.names[code]
        share = bad.sum() / mine.sum()
        many = f"{'all' if share == 1 else f'{100 * share:.0f} % of the'} spans {name!r}"
        yield _warning(many, times_s[bad], energy_j[bad], sampling_j[bad], name)


def too_short_run(counted: Sequence[Measured], run: Stretch) -> Iterator[RunWarning]:
    energies = [measured.uses[0].energy for measured in counted]
    whole = total(energy for energy in energies if energy)
    clean = all(measured.clean[0] for measured in counted)
    if clean and whole and whole.error_sampling > TOO_WIDE * abs(whole.value):
        figures = ([run.time_s], [whole.value], [whole.error_sampling])
        times_s, energy_j, sampling_j = map(np.array, figures)
        yield _warning("the run", times_s, energy_j, sampling_j, "run")


def _warning(
    which: str,
    times_s: NDArray[np.float64],
    energy_j: NDArray[np.float64],
    sampling_j: NDArray[np.float64],
    name: str,
) -> RunWarning:
    # The edges of a span cost about the same joules however long it lasts.
    power_w = energy_j.sum() / max(times_s.sum(), 1e-9)
    useful_s = float(np.median(sampling_j)) / (_USEFUL * power_w) if power_w > 0 else None
    enough = f"of {_about(useful_s)} and more" if useful_s else "that last longer"
    return RunWarning(
        Caution.SPAN_TOO_SHORT,
        f"{which}: too short for the sensors at {_about(float(np.median(times_s)))}, "
        f"the sampling error is above {100 * TOO_WIDE:.0f} %",
        f"spans {enough} have less than {100 * _USEFUL:.0f} % here; a higher --rate may help",
        span=name,
    )


def _about(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{1e3 * seconds:.1f} ms" if seconds < 0.01 else f"{1e3 * seconds:.0f} ms"

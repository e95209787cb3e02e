"""What the whole run will take, foretold from its first epochs.

An epoch counts from its begin to the begin of the next, so that validation and checkpoints are
in it wherever the framework puts them. The first is left out where it stands apart (warm-up). The
rest of the run is so many epochs of the mean of the others; how far they may be off is Student's
interval for that, on top of a weak belief that epochs of one training differ by about 2 %, so
that two epochs that happen to be alike are no certainty. A drift that shows is expected to go on
for between nothing and as long again as it has been seen.

A program may train several times (two fits, the folds of a cross-validation). Each training has its
own epochs and its own number of them; the latest one is foretold, since nobody knows whether others
follow. Only the number that the user gave (``--epochs``) is that of all of them together.

All of it is arithmetic on a few numbers an epoch: :class:`Forecast` is told of energies and spans
as they come, and :meth:`Forecast.outlook` can be asked as often as one likes.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

from joulewise.data import Span, Unavailable
from joulewise.units import NS_PER_S

BELIEVED_SPREAD: Final = 0.02
BELIEVED_DEGREES: Final = 1
_KWH_J: Final = 3.6e6
_DRIFT_EPOCHS: Final = 4
_KEPT_POINTS: Final = 512
_KEPT_EPOCHS: Final = 256
_Z: Final = 1.959964
_STUDENT: Final = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764}


@dataclass(frozen=True)
class ForecastInterval:
    """The middle, and a 95 % interval around it."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class RunForecast:
    """What the whole run is expected to take, from its start to its last epoch's end.

    ``energy_j`` is None where no device could be read. ``costs`` has what was asked for per kWh
    (``gco2``, ``price``).
    """

    time_s: ForecastInterval
    energy_j: ForecastInterval | None
    costs: Mapping[str, ForecastInterval] = field(default_factory=dict)


class Forecaster:
    """What is kept of a run while it goes on, to tell what it will take.

    ``epochs`` is the number of epochs of all trainings where the user gave it; otherwise it is what
    the framework announces of the training under way. ``per_kwh`` gives the costs to foretell with
    the energy.
    """

    def __init__(
        self,
        start_ns: int,
        *,
        epochs: int | None = None,
        per_kwh: Mapping[str, float] | None = None,
    ) -> None:
        self._given = epochs
        self._total = epochs
        self._per_kwh = dict(per_kwh or {})
        self._start_ns = start_ns
        self._points = [(start_ns, 0.0)]
        self._begins_ns: list[int] = []
        self._begins_j: list[float] = []
        self._trainings = 0
        self._training_ns: int | None = None
        self._training_over = False
        self._last_pid = 0
        self._last_index: int | None = None
        self._begun = 0
        self._ended = 0

    @property
    def epochs(self) -> dict[str, int | None]:
        """How many are done, of how many, and of which training (from 0), as ``live.json`` has it.

        Where the user gave their number both are of all trainings.
        """
        return {"done": self._ended, "total": self._announced, "training": self._trainings}

    @property
    def _announced(self) -> int | None:
        """None also where the user's number has turned out to be too small."""
        is_passed = self._given is not None and self._begun > self._given
        return None if is_passed else self._total

    def energy(self, t_ns: int, energy_j: float) -> None:
        """How much the devices that count have drawn from the start up to that moment."""
        if t_ns <= self._points[-1][0]:
            return
        self._points.append((t_ns, energy_j))
        self._settle()
        if len(self._points) > 2 * _KEPT_POINTS:
            del self._points[:-_KEPT_POINTS]

    def spans(self, spans: Iterable[Span]) -> None:
        """What began or ended since last time, in order of their begins: trainings and epochs.

        Indices count from 0. A span is told of once or more often, by one rank or by several.
        """
        for span in spans:
            if span.name == "training":
                self._take_training(span)
            elif span.name == "epoch":
                if not self._begins_ns or span.start_ns > self._begins_ns[-1]:
                    self._begin(span)
                if span.closed and (span.pid, span.index) == (self._last_pid, self._last_index):
                    self._ended = self._begun

    def outlook(self, now_ns: int, gain_error: float = 0.0) -> RunForecast | Unavailable:
        """From what was told so far; ``gain_error`` is the relative half-width (95 %) of all."""
        total = self._announced
        if total is None:
            return Unavailable(
                "the number of epochs is not known"
                if self._given is None
                else f"there are more epochs than the {self._given} of --epochs",
                "joulewise run --epochs N says how many there are, in all trainings together",
            )
        left = total - self._begun + 1
        if left < 1 or self._ended >= total:
            return Unavailable("the last epoch is over")
        if self._training_over and self._given is None:  # stopped early
            return Unavailable("the training is over")
        if len(self._begins_ns) < 3:
            return Unavailable("it takes two whole epochs to tell")
        times_s = [(t_ns - self._start_ns) / NS_PER_S for t_ns in self._begins_ns]
        now_s = (now_ns - self._start_ns) / NS_PER_S
        series = [_differences(times_s)]
        if len(self._begins_j) == len(times_s):
            series.append(_differences(self._begins_j))
        first = int(any(_stands_apart(values) for values in series))
        time_s = _whole(times_s[-1], now_s, series[0][first:], left)
        if len(series) == 1:
            return RunForecast(time_s, None)
        before_j, now_j = self._begins_j[-1], self._points[-1][1]
        energy_j = _with_gain(_whole(before_j, now_j, series[1][first:], left), gain_error)
        return RunForecast(
            time_s, energy_j, {k: _cost(energy_j, v) for k, v in self._per_kwh.items()}
        )

    def _take_training(self, span: Span) -> None:
        is_first = self._training_ns is None and not self._begun
        is_known = self._training_ns is not None and span.start_ns <= self._training_ns
        # In one process they follow each other; of two at the same time the first is followed.
        if not is_known and (is_first or self._training_over or span.pid == self._last_pid):
            if not is_first:
                self._begin_training()
            self._training_ns, self._last_pid = span.start_ns, span.pid
        is_over = span.closed or span.end_ns > span.start_ns  # to its end, or broken off
        if is_over and (span.start_ns, span.pid) == (self._training_ns, self._last_pid):
            self._training_over = True

    def _begin_training(self) -> None:
        """What came before is past."""
        self._trainings += 1
        self._training_over = False
        self._last_index = None
        if self._given is None:
            self._begins_ns.clear()
            self._begins_j.clear()
            self._begun = self._ended = 0
            self._total = None

    def _begin(self, span: Span) -> None:
        index, last = span.index, self._last_index
        again = index is not None and last is not None and index <= last
        elsewhere = bool(self._begins_ns) and span.pid != self._last_pid
        if elsewhere and not self._training_over:
            another_training = again and index != last and self._ended == self._begun
            if index is None or (again and not another_training):
                return  # another rank of the same
        if again or (elsewhere and self._training_over):
            self._begin_training()
        was_under_way = self._last_index is not None
        self._last_pid, self._last_index = span.pid, index
        self._begun += 1
        if self._given is None:
            self._total = span.total
            if index is not None:  # a training that is taken up again does not begin at 0
                self._begun = index + 1
                self._ended = self._ended if was_under_way else index
        self._begins_ns.append(span.start_ns)
        self._settle()
        if len(self._begins_ns) > 2 * _KEPT_EPOCHS:
            del self._begins_ns[:_KEPT_EPOCHS], self._begins_j[:_KEPT_EPOCHS]

    def _settle(self) -> None:
        """The energies at begins that came before the last one that was told."""
        while len(self._points) > 1 and len(self._begins_j) < len(self._begins_ns):
            begin_ns = self._begins_ns[len(self._begins_j)]
            if begin_ns > self._points[-1][0]:
                return
            self._begins_j.append(self._energy_at(begin_ns))

    def _energy_at(self, t_ns: int) -> float:
        """Linear between what was told."""
        points = self._points
        at = min(max(bisect_right(points, t_ns, key=itemgetter(0)), 1), len(points) - 1)
        (t0, e0), (t1, e1) = points[at - 1], points[at]
        return e0 + (e1 - e0) * (t_ns - t0) / (t1 - t0)


def as_json(outlook: RunForecast | Unavailable) -> dict[str, Any]:
    if isinstance(outlook, Unavailable):
        return {"reason": outlook.reason, "fix": outlook.fix}
    energy_j = outlook.energy_j
    return {
        "time_s": vars(outlook.time_s),
        "energy_j": energy_j and vars(energy_j),
        **{name: vars(cost) for name, cost in outlook.costs.items()},
    }


def student(degrees: int) -> float:
    """The 97.5 % quantile of Student's distribution, within 0.2 %."""
    if degrees in _STUDENT:
        return _STUDENT[degrees]
    z, n = _Z, degrees
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def _whole(before: float, now: float, values: Sequence[float], left: int) -> ForecastInterval:
    """``before`` at the last boundary, and ``left`` more like ``values``."""
    n, mean = len(values), math.fsum(values) / len(values)
    spread, degrees = _spread(values)
    half = student(degrees) * spread * math.sqrt(1 / n + 1 / left)
    slope = _drift(values)
    if slope:
        # From the mean to the end of what was seen, then on for 0 to n epochs more.
        further = slope * math.fsum(min(j + 1, n) for j in range(left)) / left / 2
        mean = max(mean + slope * (n - 1) / 2 + further, min(values) / 2)
        half += abs(further)
    # The epoch under way takes at least what it has taken.
    late = max(now - before - mean, 0.0)
    value = before + left * mean + late
    return ForecastInterval(value, max(value - left * half, now), value + left * half)


def _with_gain(estimate: ForecastInterval, gain_error: float) -> ForecastInterval:
    gain = gain_error * estimate.value
    return ForecastInterval(
        estimate.value,
        max(estimate.value - math.hypot(estimate.value - estimate.low, gain), 0.0),
        estimate.value + math.hypot(estimate.high - estimate.value, gain),
    )


def _cost(energy_j: ForecastInterval, per_kwh: float) -> ForecastInterval:
    factor = per_kwh / _KWH_J
    return ForecastInterval(energy_j.value * factor, energy_j.low * factor, energy_j.high * factor)


def _differences(values: Sequence[float]) -> list[float]:
    return [b - a for a, b in pairwise(values)]


def _spread(values: Sequence[float], parameters: int = 1) -> tuple[float, int]:
    """Standard deviation, and its degrees of freedom, with what is believed beforehand."""
    mean = math.fsum(values) / len(values)
    return _believe(mean, math.fsum((x - mean) ** 2 for x in values), len(values) - parameters)


def _believe(mean: float, squares: float, degrees: int) -> tuple[float, int]:
    believed = BELIEVED_DEGREES * (BELIEVED_SPREAD * mean) ** 2
    degrees += BELIEVED_DEGREES
    return math.sqrt((believed + squares) / degrees), degrees


def _stands_apart(values: Sequence[float]) -> bool:
    """Whether the first is not like the others."""
    others = values[1:]
    spread, degrees = _spread(others)
    apart = abs(values[0] - math.fsum(others) / len(others))
    return apart > student(degrees) * spread * math.sqrt(1 + 1 / len(others))


def _drift(values: Sequence[float]) -> float:
    """The slope an epoch, where there are enough of them to show one; else 0."""
    n = len(values)
    if n < _DRIFT_EPOCHS:
        return 0.0
    middle, mean = (n - 1) / 2, math.fsum(values) / n
    along = n * (n * n - 1) / 12
    slope = math.fsum((i - middle) * x for i, x in enumerate(values)) / along
    squares = math.fsum((x - mean - slope * (i - middle)) ** 2 for i, x in enumerate(values))
    error = math.sqrt(squares / (n - 2) / along)
    return slope if abs(slope) > student(n - 2) * error else 0.0

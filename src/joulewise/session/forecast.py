"""Forecast of what the whole run will take, from its first epochs.

Method: the rest of the run is the number of epochs left times the mean of those so far. Its 95 %
interval is Student's prediction interval for that sum, with a weak prior that epochs of a training
differ by about 2 %, so that two epochs that happen to be alike are no certainty. A significant
linear drift is expected to go on for between nothing and as long again as it has been seen. The
first epoch is left out where it is an outlier (warm-up). An epoch lasts from its start to the start
of the next, so that validation and checkpoints are in it wherever the framework puts them.

A program may train several times (two fits, the folds of a cross-validation). Each training has its
own epochs and its own number of them; the forecast is for the latest one, since it is unknown
whether others follow. Only the number that the user gave (``--epochs``) is that of all together.

:class:`Forecaster` keeps a few numbers an epoch; ``forecast`` may be called as often as needed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

from joulewise.data import Span, Unavailable
from joulewise.data.runs import ForecastInterval, RunForecast
from joulewise.units import J_PER_KWH, NS_PER_S

# The prior: relative standard deviation of epochs, and how many degrees of freedom it is worth.
# Chosen: one degree is outweighed by the third epoch. Doubled spread: the interval after two epochs
# is nearly twice as wide, and hardly changes after ten.
PRIOR_SPREAD: Final = 0.02
PRIOR_DEGREES: Final = 1
# The fewest epochs that show a drift: a line takes two degrees of freedom, and two are left for its
# error. Doubled, a drift is noticed four epochs later.
_MIN_DRIFT_EPOCHS: Final = 4
# Chosen, to bound the memory of a long run. Doubled, it keeps twice as many, with the same forecast
# unless epochs drift.
_MAX_POINTS: Final = 512
_MAX_EPOCHS: Final = 256


class Forecaster:
    """Collects energies and epochs of a run, and forecasts what it will take.

    ``epochs`` is the number of epochs of all trainings together where the user gave it; None takes
    what the framework announces for the training under way. ``per_kwh`` are the costs per kWh to
    forecast with the energy.
    """

    def __init__(
        self,
        start_ns: int,
        *,
        epochs: int | None = None,
        per_kwh: Mapping[str, float] | None = None,
    ) -> None:
        self._epochs_given = epochs
        self._epochs_announced = epochs
        self._per_kwh = dict(per_kwh or {})
        self._start_ns = start_ns
        self._points = [(start_ns, 0.0)]
        self._epoch_starts_ns: list[int] = []
        self._epoch_starts_j: list[float] = []
        self._trainings = 0
        self._training_ns: int | None = None
        self._training_over = False
        self._last_pid = 0
        self._last_index: int | None = None
        self._epochs_begun = 0
        self._epochs_ended = 0

    @property
    def epochs(self) -> dict[str, int | None]:
        """How many are done, of how many, and in which training (from 0), as in ``live.json``.

        Where the user gave their number, both count the epochs of all trainings.
        """
        return {
            "done": self._epochs_ended,
            "total": self._epochs_expected,
            "training": self._trainings,
        }

    @property
    def _epochs_expected(self) -> int | None:
        """How many epochs there will be; None where the user's number has proved too small."""
        is_passed = self._epochs_given is not None and self._epochs_begun > self._epochs_given
        return None if is_passed else self._epochs_announced

    def add_energy(self, t_ns: int, energy_j: float) -> None:
        """Add the energy of the counted devices from the start until ``t_ns``."""
        if t_ns <= self._points[-1][0]:
            return
        self._points.append((t_ns, energy_j))
        self._add_start_energies()
        if len(self._points) > 2 * _MAX_POINTS:
            del self._points[:-_MAX_POINTS]

    def add_spans(self, spans: Iterable[Span]) -> None:
        """Add the trainings and epochs that began or ended since the last call, by their start.

        Indices count from 0. A span may be reported more than once, by one rank or by several.
        """
        for span in spans:
            if span.name == "training":
                self._add_training(span)
            elif span.name == "epoch":
                if not self._epoch_starts_ns or span.start_ns > self._epoch_starts_ns[-1]:
                    self._begin_epoch(span)
                if span.closed and (span.pid, span.index) == (self._last_pid, self._last_index):
                    self._epochs_ended = self._epochs_begun

    def forecast(self, now_ns: int, gain_error: float = 0.0) -> RunForecast | Unavailable:
        """The forecast at ``now_ns``; ``gain_error`` is a relative 95 % half-width of energies."""
        total = self._epochs_expected
        if total is None:
            return Unavailable(
                "the number of epochs is not known"
                if self._epochs_given is None
                else f"there are more epochs than the {self._epochs_given} of --epochs",
                "give the number of epochs of all trainings together: joulewise run --epochs N",
            )
        left = total - self._epochs_begun + 1
        if left < 1 or self._epochs_ended >= total:
            return Unavailable("the last epoch is over")
        if self._training_over and self._epochs_given is None:  # stopped early
            return Unavailable("the training is over")
        if len(self._epoch_starts_ns) < 3:
            return Unavailable("a forecast needs two complete epochs")
        times_s = [(t_ns - self._start_ns) / NS_PER_S for t_ns in self._epoch_starts_ns]
        now_s = (now_ns - self._start_ns) / NS_PER_S
        series = [_differences(times_s)]
        if len(self._epoch_starts_j) == len(times_s):
            series.append(_differences(self._epoch_starts_j))
        first = int(any(_is_outlier(values) for values in series))
        time_s = _forecast_total(times_s[-1], now_s, series[0][first:], left)
        if len(series) == 1:
            return RunForecast(time_s, None)
        before_j, now_j = self._epoch_starts_j[-1], self._points[-1][1]
        energy_j = _with_gain(_forecast_total(before_j, now_j, series[1][first:], left), gain_error)
        return RunForecast(
            time_s, energy_j, {k: _cost(energy_j, v) for k, v in self._per_kwh.items()}
        )

    def _add_training(self, span: Span) -> None:
        is_first = self._training_ns is None and not self._epochs_begun
        is_known = self._training_ns is not None and span.start_ns <= self._training_ns
        # In one process trainings follow each other; of two at the same time, the first counts.
        if not is_known and (is_first or self._training_over or span.pid == self._last_pid):
            if not is_first:
                self._begin_training()
            self._training_ns, self._last_pid = span.start_ns, span.pid
        is_over = span.closed or span.end_ns > span.start_ns  # completed, or interrupted
        if is_over and (span.start_ns, span.pid) == (self._training_ns, self._last_pid):
            self._training_over = True

    def _begin_training(self) -> None:
        """Forget the epochs of the training before."""
        self._trainings += 1
        self._training_over = False
        self._last_index = None
        if self._epochs_given is None:
            self._epoch_starts_ns.clear()
            self._epoch_starts_j.clear()
            self._epochs_begun = self._epochs_ended = 0
            self._epochs_announced = None

    def _begin_epoch(self, span: Span) -> None:
        index, last = span.index, self._last_index
        is_repeated = index is not None and last is not None and index <= last
        is_other_process = bool(self._epoch_starts_ns) and span.pid != self._last_pid
        if is_other_process and not self._training_over:
            another_training = (
                is_repeated and index != last and self._epochs_ended == self._epochs_begun
            )
            if index is None or (is_repeated and not another_training):
                return  # another rank of the same training
        if is_repeated or (is_other_process and self._training_over):
            self._begin_training()
        was_under_way = self._last_index is not None
        self._last_pid, self._last_index = span.pid, index
        self._epochs_begun += 1
        if self._epochs_given is None:
            self._epochs_announced = span.total
            if index is not None:  # a training that is resumed does not begin at 0
                self._epochs_begun = index + 1
                self._epochs_ended = self._epochs_ended if was_under_way else index
        self._epoch_starts_ns.append(span.start_ns)
        self._add_start_energies()
        if len(self._epoch_starts_ns) > 2 * _MAX_EPOCHS:
            del self._epoch_starts_ns[:_MAX_EPOCHS], self._epoch_starts_j[:_MAX_EPOCHS]

    def _add_start_energies(self) -> None:
        """Interpolate the energy at each epoch's start that the energies reach by now."""
        while len(self._points) > 1 and len(self._epoch_starts_j) < len(self._epoch_starts_ns):
            begin_ns = self._epoch_starts_ns[len(self._epoch_starts_j)]
            if begin_ns > self._points[-1][0]:
                return
            self._epoch_starts_j.append(self._energy_at(begin_ns))

    def _energy_at(self, t_ns: int) -> float:
        """Energy at a time, linear between the two points around it."""
        points = self._points
        at = min(max(bisect_right(points, t_ns, key=itemgetter(0)), 1), len(points) - 1)
        (t0, e0), (t1, e1) = points[at - 1], points[at]
        return e0 + (e1 - e0) * (t_ns - t0) / (t1 - t0)


def as_json(forecast: RunForecast | Unavailable) -> dict[str, Any]:
    if isinstance(forecast, Unavailable):
        return {"reason": forecast.reason, "fix": forecast.fix}
    energy_j = forecast.energy_j
    return {
        "time_s": vars(forecast.time_s),
        "energy_j": energy_j and vars(energy_j),
        **{name: vars(cost) for name, cost in forecast.costs.items()},
    }


def student(degrees: int) -> float:
    """The 97.5 % quantile of Student's t distribution."""
    from joulewise.analyse.student_t import student as student_quantile

    return float(student_quantile(degrees))


def _forecast_total(
    before: float, now: float, values: Sequence[float], left: int
) -> ForecastInterval:
    """Total: ``before`` at the start of the epoch under way, and ``left`` more like ``values``."""
    n, mean = len(values), math.fsum(values) / len(values)
    spread, degrees = _pooled_spread(values)
    half = student(degrees) * spread * math.sqrt(1 / n + 1 / left)
    slope = _significant_slope(values)
    if slope:
        # From the mean to the last epoch seen, then on for 0 to n epochs more.
        drift_ahead = slope * math.fsum(min(j + 1, n) for j in range(left)) / left / 2
        mean = max(mean + slope * (n - 1) / 2 + drift_ahead, min(values) / 2)
        half += abs(drift_ahead)
    # The epoch under way takes at least what it has taken by now.
    overrun = max(now - before - mean, 0.0)
    value = before + left * mean + overrun
    return ForecastInterval(value, max(value - left * half, now), value + left * half)


def _with_gain(estimate: ForecastInterval, gain_error: float) -> ForecastInterval:
    gain = gain_error * estimate.value
    return ForecastInterval(
        estimate.value,
        max(estimate.value - math.hypot(estimate.value - estimate.low, gain), 0.0),
        estimate.value + math.hypot(estimate.high - estimate.value, gain),
    )


def _cost(energy_j: ForecastInterval, per_kwh: float) -> ForecastInterval:
    factor = per_kwh / J_PER_KWH
    return ForecastInterval(energy_j.value * factor, energy_j.low * factor, energy_j.high * factor)


def _differences(values: Sequence[float]) -> list[float]:
    return [b - a for a, b in pairwise(values)]


def _pooled_spread(values: Sequence[float]) -> tuple[float, int]:
    """Standard deviation and its degrees of freedom, pooled with the prior."""
    mean = math.fsum(values) / len(values)
    return _with_prior(mean, math.fsum((x - mean) ** 2 for x in values), len(values) - 1)


def _with_prior(mean: float, squares: float, degrees: int) -> tuple[float, int]:
    prior = PRIOR_DEGREES * (PRIOR_SPREAD * mean) ** 2
    degrees += PRIOR_DEGREES
    return math.sqrt((prior + squares) / degrees), degrees


def _is_outlier(values: Sequence[float]) -> bool:
    """Whether the first value lies outside the 95 % prediction interval of the others."""
    others = values[1:]
    spread, degrees = _pooled_spread(others)
    apart = abs(values[0] - math.fsum(others) / len(others))
    return apart > student(degrees) * spread * math.sqrt(1 + 1 / len(others))


def _significant_slope(values: Sequence[float]) -> float:
    """Slope per epoch by least squares, where it differs from 0 at the 95 % level; else 0."""
    n = len(values)
    if n < _MIN_DRIFT_EPOCHS:
        return 0.0
    middle, mean = (n - 1) / 2, math.fsum(values) / n
    along = n * (n * n - 1) / 12  # sum of (i - middle)²
    slope = math.fsum((i - middle) * x for i, x in enumerate(values)) / along
    squares = math.fsum((x - mean - slope * (i - middle)) ** 2 for i, x in enumerate(values))
    error = math.sqrt(squares / (n - 2) / along)
    return slope if abs(slope) > student(n - 2) * error else 0.0

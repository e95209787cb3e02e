"""Follows a try while it runs: its epochs and its metric, and whether it may be ended early.

It is what :class:`joulewise.session.run.CommandWatch` describes. The cost so far is estimated from
live.json, which the recorder replaces every few seconds: energy is taken to grow on as it did.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final

from joulewise.data import Span
from joulewise.data.jobs import JobDefinition, training_cost
from joulewise.formatting import joules
from joulewise.optimise.recurring.target_progress import TargetProgress, follow_target
from joulewise.optimise.recurring.try_output import PrintedValues
from joulewise.store.files import read_regular
from joulewise.store.layout import LIVE, MARKS
from joulewise.store.logged_values import LoggedFollower, LoggedValue
from joulewise.store.spans import SpanFollower
from joulewise.units import NS_PER_S

# Chosen: an epoch takes seconds to hours, and a poll of its marks below a millisecond. Doubled, a
# hopeless try ends half a second later.
_POLL_S: Final = 0.5


class StopReason(str, Enum):
    """Why a try was ended before its command ended by itself."""

    REACHED = "it reached the target"
    BUDGET = "it had cost more than it may"
    MAX_EPOCHS = "it had run all its epochs"


@dataclass(frozen=True)
class TryLimits:
    """When a try is to be ended, besides after the job's number of epochs.

    ``budget`` is a cost in joules, above which it ends at the end of an epoch; None for never. With
    ``stop_at_target`` it ends when the target is reached.
    """

    budget: float | None
    max_power_w: float
    stop_at_target: bool = False


class TryWatch:
    """The watch of one try; ``begin`` tells it the run directory."""

    poll_s = _POLL_S

    def __init__(
        self,
        job: JobDefinition,
        limits: TryLimits,
        values: PrintedValues | None = None,
        now_ns: Callable[[], int] = monotonic_ns,
    ) -> None:
        self._job = job
        self._limits = limits
        self._values: PrintedValues | LoggedFollower | None = values
        self._now_ns = now_ns
        self._run: Path | None = None
        self._spans: SpanFollower | None = None
        self._epochs: dict[tuple[int, int], Span] = {}
        self._logged: list[LoggedValue] = []
        self._names: dict[str, None] = {}
        self._judged = 0
        self._readings: list[tuple[int, float]] = []  # of the energy so far
        self.progress = TargetProgress()
        self.stop: StopReason | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which the program logged anything."""
        return tuple(self._names)

    def begin(self, run: Path) -> None:
        self._run = run
        self._spans = SpanFollower(run / MARKS)
        self._values = self._values or LoggedFollower(run / MARKS)

    def check(self) -> str:
        """Why the command is to end now; empty while it may go on. Never raises."""
        try:
            return self._check()
        except Exception:  # noqa: BLE001  # a fault here must not reach the command
            return ""

    def update(self) -> TargetProgress:
        """Read what was marked and logged since the last time."""
        if self._spans is None or self._values is None:
            return self.progress
        return self._add(self._values.poll())

    def finish(self) -> TargetProgress:
        """Read the rest, once the command has ended."""
        if isinstance(self._values, PrintedValues):
            return self._add(self._values.finish())
        return self.update()

    def _add(self, values: Sequence[LoggedValue]) -> TargetProgress:
        spans = [span for span in self._spans.poll() if span.name == "epoch"] if self._spans else []
        for span in spans:
            self._epochs[span.pid, span.start_ns] = span
        for value in values:
            self._names[value.name] = None
        new = [value for value in values if value.name == self._job.target.metric]
        self._logged += new
        if spans or new:
            epochs = sorted(self._epochs.values(), key=lambda span: span.start_ns)
            self._logged.sort(key=lambda value: value.t_ns)
            self.progress = follow_target(epochs, self._logged, self._job.target)
        return self.progress

    def _check(self) -> str:
        if self.stop is not None:
            return ""
        progress = self.update()
        cost = None if self._run is None else self._estimate_cost(self._run)
        if progress.reached_ns is not None:
            if self._limits.stop_at_target:
                return self._end(StopReason.REACHED, self._describe_reached(progress))
            return ""
        most = self._job.max_epochs
        if progress.judged >= most:
            # The last one may be followed by a value, or by a model that is saved.
            is_over = progress.begun > most
            why = f"the target was missed in {most} epochs"
            return self._end(StopReason.MAX_EPOCHS, why) if is_over else ""
        if progress.judged == self._judged:
            return ""
        self._judged = progress.judged
        budget = self._limits.budget
        if budget is not None and cost is not None and cost > budget:
            return self._end(
                StopReason.BUDGET,
                f"after {progress.epochs} epochs the try has cost {joules(cost)}, and is not worth "
                f"more than {joules(budget)}",
            )
        return ""

    def _end(self, reason: StopReason, why: str) -> str:
        self.stop = reason
        return f"ending the command: {why}"

    def _describe_reached(self, progress: TargetProgress) -> str:
        return f"{self._job.target.text} was reached in epoch {progress.epochs_to_target}"

    def _estimate_cost(self, run: Path) -> float | None:
        """What the try has cost since its first epoch; None where nothing was measured yet."""
        try:
            live = json.loads(read_regular(run / LIVE))
            energy_j = _sum_counted(live["energy_j"], live["counted"])
            t_ns, start_ns = live["t_ns"], live["t_ns"] - round(live["time_s"] * NS_PER_S)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if energy_j is None or t_ns <= start_ns:
            return None
        if not self._readings:
            self._readings.append((start_ns, 0.0))
        if self._readings[-1][0] < t_ns:
            self._readings.append((t_ns, energy_j))
        now_ns, began_ns = self._now_ns(), self.progress.began_ns or start_ns
        spent_j = energy_j * (now_ns - start_ns) / (t_ns - start_ns)
        spent_j -= _interpolate(self._readings, began_ns)
        time_s = (now_ns - began_ns) / NS_PER_S
        return training_cost(self._job.eta, spent_j, time_s, self._limits.max_power_w)


def _interpolate(readings: Sequence[tuple[int, float]], t_ns: int) -> float:
    """The energy at a moment, linear between readings of the energy so far.

    After the last one, by the mean power up to there: an epoch may begin seconds after it.
    """
    for (start_ns, start_j), (end_ns, end_j) in pairwise(readings):
        if t_ns <= end_ns:
            return start_j + (end_j - start_j) * max(0, t_ns - start_ns) / (end_ns - start_ns)
    (first_ns, _), (last_ns, last_j) = readings[0], readings[-1]
    return last_j * (t_ns - first_ns) / (last_ns - first_ns)


def priced_devices(counted: Collection[str]) -> tuple[str, ...]:
    """The devices whose energy a job counts: its GPUs; where it has none, all that count."""
    gpus = tuple(key for key in counted if key.startswith("gpu"))
    return gpus or tuple(counted)


def _sum_counted(energy_j: Mapping[str, Any], counted: Collection[str]) -> float | None:
    """Joules of the priced devices; None where one of them was not read."""
    keys = priced_devices(counted)
    found = [energy for energy in map(energy_j.get, keys) if energy is not None]
    if not found or len(found) < len(keys):
        return None
    return float(sum(energy["value"] for energy in found))

"""When a training reached its target: from the epochs that it marks and the values that it logs.

The values that belong to an epoch are logged between its begin and the begin of the next one,
because frameworks validate inside an epoch or after it. At its end, the last value so far counts;
every value after that, until the next epoch, counts by itself. The target is reached at the first
value that meets it, and not before the end of its epoch. Where a program marks no epochs, each
value is one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isnan

from joulewise.data import Span
from joulewise.data.jobs import JobTarget
from joulewise.store.logged_values import LoggedValue


@dataclass(frozen=True)
class TargetProgress:
    """How far a training has come.

    - ``epochs``: whole ones; ``begun``: with the one that goes on
    - ``began_ns``: when the first one began, None where none is marked
    - ``judged``: those of which it is known whether they reached the target
    - ``reached_ns``: when it was reached, in epoch ``epochs_to_target`` (from 1); None before
    - ``best``: the best value so far, None where none was logged
    - ``windows_ns``: the whole epochs, each with what follows it until the next one begins
    """

    epochs: int = 0
    judged: int = 0
    reached_ns: int | None = None
    epochs_to_target: int | None = None
    best: float | None = None
    windows_ns: tuple[tuple[int, int], ...] = ()
    began_ns: int | None = None
    begun: int = 0


def follow_target(
    epochs: Sequence[Span], values: Sequence[LoggedValue], target: JobTarget
) -> TargetProgress:
    """The progress by all epochs and values so far; both in the order of their times."""
    best = _find_best(values, target)
    if not epochs:
        return _without_epochs(values, target, best)
    windows_ns, judged, reached_ns, epochs_to_target = [], 0, None, None
    times_ns = [one.t_ns for one in values]
    for number, epoch in enumerate(epochs, 1):
        is_last = number == len(epochs)
        next_ns = None if is_last else epochs[number].start_ns
        if not epoch.closed:
            continue
        first = bisect_left(times_ns, epoch.start_ns)
        theirs = values[first : None if next_ns is None else bisect_left(times_ns, next_ns)]
        windows_ns.append((epoch.start_ns, epoch.end_ns if next_ns is None else next_ns))
        judged += bool(theirs) or not is_last
        if reached_ns is None:
            reached_ns = _find_reached(theirs, epoch.end_ns, target)
            epochs_to_target = len(windows_ns) if reached_ns is not None else None
    return TargetProgress(
        len(windows_ns),
        judged,
        reached_ns,
        epochs_to_target,
        best,
        tuple(windows_ns),
        epochs[0].start_ns,
        len(epochs),
    )


def _without_epochs(
    values: Sequence[LoggedValue], target: JobTarget, best: float | None
) -> TargetProgress:
    ends_ns = [one.t_ns for one in values]
    first = next((n for n, one in enumerate(values) if target.is_reached(one.value)), None)
    return TargetProgress(
        len(values),
        len(values),
        None if first is None else ends_ns[first],
        None if first is None else first + 1,
        best,
        tuple(pairwise(ends_ns)),
        begun=len(values),
    )


def _find_reached(theirs: Iterable[LoggedValue], end_ns: int, target: JobTarget) -> int | None:
    """When an epoch that ended at ``end_ns`` reached the target by its values; None: it did not."""
    within = [one for one in theirs if one.t_ns <= end_ns]
    if within and target.is_reached(within[-1].value):
        return end_ns
    after = (one.t_ns for one in theirs if one.t_ns > end_ns and target.is_reached(one.value))
    return next(after, None)


def _find_best(values: Iterable[LoggedValue], target: JobTarget) -> float | None:
    known = [one.value for one in values if not isnan(one.value)]
    if not known:
        return None
    return max(known) if target.is_at_least else min(known)

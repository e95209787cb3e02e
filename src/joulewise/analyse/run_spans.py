"""The spans of a run: those that its recording has, their ends, and which a result holds.

A span whose end was not marked (the program was killed in it, or is in it now) lasts as long as its
program may have: to the end of its command, or of the recording.

Also summaries of many spans: counts, means and quantiles by name, and the steps of each epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from joulewise.analyse.chunks import Bools, Floats, Indices, Ints
from joulewise.analyse.damage import time_bounds_ns
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.data import QualityWarning, WarningCode
from joulewise.hooks.marks import NONE
from joulewise.store.manifest import Manifest
from joulewise.store.runs import KILLED
from joulewise.store.spans import SpanTable, read_spans
from joulewise.units import NS_PER_S

# The limits below bound the size of a result and the time that it takes. All are chosen; doubled,
# the results of programs with many spans are up to twice as large.
MAX_STEPS: Final = 1_000
MAX_SPANS: Final = 10_000
"""A result holds so many spans in all, those of the rarest names first, and no name in part.

Of the others it has a summary, and ``export`` has them all.
"""

MAX_NAMES: Final = 500
"""So many names have a summary, in the order in which they appear."""

SAMPLED_SPANS: Final = 20_000
"""The energies of a summary are of so many spans, drawn at random."""

TRAINING: Final = "training"

Figures = dict[str, "float | None"]


def read_sound_spans(run: Path, manifest: Manifest) -> SpanTable:
    """Every span of a run that lies within its recording, with a warning of the others."""
    spans = read_spans(run)
    low_ns, high_ns = time_bounds_ns(manifest)
    is_within = (spans.start_ns >= low_ns) & (spans.end_ns <= high_ns)
    if is_within.all():
        return spans
    outside = int((~is_within).sum())
    warning = QualityWarning(
        WarningCode.SPANS_LOST,
        f"{outside} of {len(spans)} spans were lost: their times are outside the run",
        "the energy of the whole run is not affected",
    )
    return replace(spans.where(is_within), warnings=(*spans.warnings, warning))


def end_open_spans(spans: SpanTable, manifest: Manifest, run: TimeInterval) -> SpanTable:
    """The same spans; those whose end was not marked last as long as their command, or the run."""
    is_open = ~spans.ended
    if not is_open.any():
        return spans
    end_ns = np.full(len(spans), run.end_ns)
    for command in manifest.commands:
        if command.end_ns is not None:
            end_ns[spans.pid == command.pid] = command.end_ns
    end_ns = np.where(is_open, np.maximum(end_ns, spans.end_ns), spans.end_ns)
    order = np.lexsort((-end_ns, spans.start_ns))  # an outer span before what it contains
    return replace(spans, end_ns=end_ns).where(order)


def spans_until(spans: SpanTable, end_ns: int) -> SpanTable:
    """The spans as they were at a time: those that had begun, open where they ended later."""
    spans = spans.where(spans.start_ns < end_ns)
    is_later = spans.end_ns > end_ns
    if not is_later.any():
        return spans
    return replace(
        spans,
        end_ns=np.minimum(spans.end_ns, end_ns),
        closed=spans.closed & ~is_later,
        ended=spans.ended & ~is_later,
    )


def is_cut_off(manifest: Manifest, state: str) -> bool:
    """Whether the recording ended before a command did, so that open spans may have gone on."""
    return state == KILLED and any(command.end_ns is None for command in manifest.commands)


@dataclass(frozen=True)
class SpanSelection:
    """Which spans of a run are measured, and which of these its result holds one by one.

    ``codes`` are the names that have a summary. ``is_listed`` has one element for each span of
    ``measured``.
    """

    codes: Ints
    measured: SpanTable
    is_listed: Bools

    @property
    def listed(self) -> SpanTable:
        return self.measured.where(self.is_listed)


def select_spans(spans: SpanTable, codes: Ints, few_steps: int | None) -> SpanSelection:
    """All spans of the rarer names, and of the others enough for a summary.

    ``codes`` are the names in the order in which they appear. With ``few_steps`` so many spans of
    the frequent names are measured, which follow each other in the middle of the run, and no step
    is listed; else ``SAMPLED_SPANS`` of them, drawn at random.
    """
    codes = codes[:MAX_NAMES]
    max_steps = MAX_STEPS if few_steps is None else 0
    counts = np.bincount(spans.name, minlength=len(spans.names))
    few = [
        code for code in codes.tolist() if spans.names[code] != "step" or counts[code] <= max_steps
    ]
    rarest = np.array(sorted(few, key=lambda code: counts[code]), np.int64)
    is_listed_name, has_summary = np.zeros((2, len(spans.names)), bool)
    is_listed_name[rarest[np.cumsum(counts[rarest]) <= MAX_SPANS]] = True
    has_summary[codes] = True
    is_listed = is_listed_name[spans.name]
    others = np.flatnonzero(~is_listed & has_summary[spans.name])
    if few_steps is not None:
        others = others[max(len(others) - few_steps, 0) // 2 :][:few_steps]
    elif len(others) > SAMPLED_SPANS:
        others = np.random.default_rng(0).choice(others, SAMPLED_SPANS, replace=False)
    rows = np.sort(np.concatenate([np.flatnonzero(is_listed), others]))
    return SpanSelection(codes, spans.where(rows), is_listed[rows])


def names_in_order(spans: SpanTable) -> Ints:
    """The codes of the names, as they first appear."""
    codes, first = np.unique(spans.name, return_index=True)
    return np.asarray(codes[np.argsort(first)])


def by_name(
    spans: SpanTable, seen: SpanTable, energy_j: Floats, codes: Ints
) -> dict[str, dict[str, Any]]:
    """The summary of each of these names.

    Energies are of those in ``seen``, counts and times of all. A span that was cut off is none of
    its kind: it counts as unfinished and is in no figure.
    """
    summaries = {}
    trainings = spans.named(TRAINING)
    closed = np.flatnonzero(seen.closed)
    by_code = zip(
        codes.tolist(), _by_code(spans.name, codes), _by_code(seen.name[closed], codes), strict=True
    )
    for code, positions, measured in by_code:
        of_name = spans.where(positions)
        summaries[spans.names[code]] = {
            "count": int(of_name.closed.sum()),
            "announced": _announced(of_name, trainings),
            "unfinished": int((~of_name.closed).sum()),
            "time_s": figures(_times_s(of_name)[of_name.closed]),
            "energy_j": figures(energy_j[closed[measured]]),
        }
    return summaries


def _announced(of_name: SpanTable, trainings: SpanTable) -> int | None:
    """How many of them the program announced, in all its trainings; None where it did not.

    ``total`` is up to which index a training counts: one that goes on where another ended (Keras'
    ``initial_epoch``) announces only what is left. Outside of trainings, and where several have no
    marks of their own, one begins where the index does not grow.
    """
    if not (of_name.total != NONE).any():
        return None
    owner = _owners(of_name, trainings)
    order = np.lexsort((of_name.start_ns, owner, of_name.pid))
    pid, owner, index = of_name.pid[order], owner[order], of_name.index[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (pid[1:] != pid[:-1]) | (owner[1:] != owner[:-1])
    begins[1:] |= (index[1:] <= index[:-1]) & (index[1:] != NONE)
    first = np.flatnonzero(begins)
    totals = np.maximum.reduceat(of_name.total[order], first)
    counts = np.diff(np.append(first, len(order)))
    up_to = np.where(index[first] == NONE, 0, index[first])
    return int(np.where(totals == NONE, counts, np.maximum(totals - up_to, 0)).sum())


def _owners(spans: SpanTable, trainings: SpanTable) -> Ints:
    """The position of the training of the same process in which each of them began; -1 is none."""
    owner = np.full(len(spans), -1, np.int64)
    for pid in np.unique(trainings.pid).tolist():
        theirs = np.flatnonzero(trainings.pid == pid)
        of_name = np.flatnonzero(spans.pid == pid)
        at = np.searchsorted(trainings.start_ns[theirs], spans.start_ns[of_name], side="right") - 1
        last = theirs[np.maximum(at, 0)]
        inside = (at >= 0) & (spans.start_ns[of_name] < trainings.end_ns[last])
        owner[of_name[inside]] = last[inside]
    return owner


def _by_code(names: Ints, codes: Ints) -> list[Indices]:
    """The positions of each code, found by one sort however many there are."""
    order = np.argsort(names, kind="stable")
    first = np.searchsorted(names[order], codes)
    end = np.searchsorted(names[order], codes, side="right")
    return [order[a:b] for a, b in zip(first.tolist(), end.tolist(), strict=True)]


def steps_by_epoch(spans: SpanTable, seen: SpanTable, energy_j: Floats) -> list[dict[str, Any]]:
    """The steps of each epoch; those of no epoch stand under a null index.

    Each training counts its epochs from 0, so it is named, too; null where there is no mark of it.
    """
    trainings = spans.named(TRAINING)
    epochs, steps = spans.named("epoch"), spans.where(spans.closed).named("step")
    seen, energy_j = seen.where(seen.closed), energy_j[seen.closed]
    times_s = _times_s(steps)
    all_by_epoch = _by_epoch(steps, epochs)
    is_step = seen.is_named("step")
    step_j, some_by_epoch = energy_j[is_step], _by_epoch(seen.where(is_step), epochs)
    owners = _owners(epochs, trainings)
    return [
        {
            "training": _index(trainings, int(owners[epoch]) if epoch >= 0 else -1),
            "epoch": _index(epochs, epoch),
            "count": len(of_name),
            "time_s": figures(times_s[of_name]),
            "energy_j": figures(step_j[some_by_epoch.get(epoch, [])]),
        }
        for epoch, of_name in all_by_epoch.items()
    ]


def _index(spans: SpanTable, position: int) -> int | None:
    """The index of a span, None where it has none."""
    return None if position < 0 or spans.index[position] == NONE else int(spans.index[position])


def figures(values: Floats) -> Figures:
    """Mean, standard deviation and quantiles of those values that there are."""
    values = values[np.isfinite(values)]
    if not len(values):
        return dict.fromkeys(("mean", "std", "min", "median", "p95", "max"))
    values = np.sort(values)
    # numpy's own quantiles cost more than all the rest where values are few.
    last = len(values) - 1
    median, high = np.interp([0.5 * last, 0.95 * last], np.arange(last + 1), values).tolist()
    deviation = float(values.std(ddof=1)) if len(values) > 1 else None
    return {
        "mean": float(values.mean()),
        "std": deviation,
        "min": float(values[0]),
        "median": median,
        "p95": high,
        "max": float(values[-1]),
    }


def _times_s(spans: SpanTable) -> Floats:
    return np.asarray((spans.end_ns - spans.start_ns) / NS_PER_S)


def _by_epoch(steps: SpanTable, epochs: SpanTable) -> dict[int, Indices]:
    """The positions of each epoch's steps, by that of the epoch; -1 is none."""
    if not len(steps):
        return {}
    middle_ns = (steps.start_ns + steps.end_ns) // 2
    owner = np.searchsorted(epochs.start_ns, middle_ns, side="right") - 1
    if len(epochs):
        owner[middle_ns > epochs.end_ns[owner]] = -1
    order = np.argsort(owner, kind="stable")
    owners, first = np.unique(owner[order], return_index=True)
    return dict(zip(owners.tolist(), np.split(order, first[1:]), strict=True))

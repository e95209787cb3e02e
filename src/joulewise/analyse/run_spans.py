"""The spans of a run: those that its recording has, their ends, and which a result holds.

A span whose end was not marked (the program was killed in it, or is in it now) lasts as long as its
program may have: to the end of its command, or of the recording.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from joulewise.analyse.chunks import Bools, Ints
from joulewise.analyse.damage import time_bounds_ns
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.data import QualityWarning, WarningCode
from joulewise.store.manifest import Manifest
from joulewise.store.runs import KILLED
from joulewise.store.spans import SpanTable, read_spans

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

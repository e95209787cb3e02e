"""Spans without a mark of their end: the program was killed in one, or is in it now.

Such a span lasts as long as its program may have: to the end of its command, or of the recording.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from joulewise.record.store import KILLED

if TYPE_CHECKING:
    from joulewise.analyse.stretch import Stretch
    from joulewise.record.manifest import Manifest
    from joulewise.record.marks import SpanTable


def end_open_spans(spans: SpanTable, manifest: Manifest, run: Stretch) -> SpanTable:
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
    """The spans as they were at a moment: those that had begun, open where they ended later."""
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

"""Moments at which a program may have changed its load: the edges of the run and of its spans.

Between two readings of a sensor, the energy is divided where such a moment lies. All energies of
one run have to be computed with the same moments, or one span has several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.analyse.stretch import Stretch
    from joulewise.data import RunResult, Span
    from joulewise.record.marks import SpanTable


def load_marks(run: Stretch | Span, spans: SpanTable) -> NDArray[np.int64]:
    """In nanoseconds, ascending."""
    return np.unique(np.concatenate([[run.start_ns, run.end_ns], spans.start_ns, spans.end_ns]))


def load_marks_of_result(result: RunResult) -> NDArray[np.int64]:
    """Of those spans that a result has one by one."""
    spans = [result.run.span, *(one.span for one in result.spans)]
    return np.unique([[span.start_ns, span.end_ns] for span in spans])

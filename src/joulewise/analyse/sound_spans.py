"""The spans of a run without those that damage has made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from joulewise.analyse.damage import time_bounds_ns
from joulewise.data import Caution, RunWarning
from joulewise.record.manifest import Manifest
from joulewise.record.marks import SpanTable, read_spans


def read_sound_spans(run: Path, manifest: Manifest) -> SpanTable:
    """Every span of a run that lies within its recording; a warning tells of others."""
    spans = read_spans(run)
    low_ns, high_ns = time_bounds_ns(manifest)
    is_within = (spans.start_ns >= low_ns) & (spans.end_ns <= high_ns)
    if is_within.all():
        return spans
    outside = int((~is_within).sum())
    warning = RunWarning(
        Caution.SPANS_LOST,
        f"{outside} of {len(spans)} spans were lost: their times are outside the run",
        "the energy of the whole run is not affected",
    )
    return replace(spans.where(is_within), warnings=(*spans.warnings, warning))

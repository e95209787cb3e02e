"""The energy of devices between any moments of a run that has ended, beside those of its spans."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from joulewise.analyse.attribution import merge_parts, read_sightings
from joulewise.analyse.device_energy import measure
from joulewise.analyse.energy.load_steps import load_marks
from joulewise.data import RunResult, Use
from joulewise.store.manifest import read_manifest
from joulewise.store.spans import SpanTable, read_spans
from joulewise.store.trace import open_device_stream


def measure_windows(
    run: Path,
    result: RunResult,
    windows_ns: Sequence[tuple[int, int]],
    keys: Collection[str],
    spans: SpanTable | None = None,
) -> list[dict[str, Use]]:
    """The use of the devices with these keys in each window (CLOCK_MONOTONIC).

    ``spans`` are those of the run, where the caller has read them.
    """
    manifest = read_manifest(run)
    sightings = merge_parts(manifest, read_sightings(run))
    marks_ns = load_marks(result.run.span, read_spans(run) if spans is None else spans)
    edges_ns, wanted = np.array(windows_ns, np.int64).reshape(-1, 2), np.arange(len(windows_ns))
    streams = partial(open_device_stream, run)
    uses: list[dict[str, Use]] = [{} for _ in windows_ns]
    for device in manifest.devices:
        if device.info.key not in keys:
            continue
        measured = [Use(None)] * len(windows_ns)
        if device.sources and windows_ns:
            found = measure(streams, device, edges_ns, wanted, sightings, marks_ns=marks_ns)
            measured = list(found.uses)
        for one, use in zip(uses, measured, strict=True):
            one[device.info.key] = use
    return uses

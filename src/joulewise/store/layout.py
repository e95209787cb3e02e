"""What lies where in a run directory.

::

    <store>/<id>/
        run.json                  the manifest (see ``manifest``), replaced as a whole
        result.json               what ``show`` tells, once it has been computed
        trace/gpu0.arrows         while recording; then gpu0.parquet
        trace/gpu0.buffer.arrows  the driver's own samples of power
        trace/gpu0.buffer.sm_clock_mhz.arrows  and of other quantities, a file for each
        trace/gpu0.slow.arrows    utilisation, clocks, temperature and the like
        processes.jsonl           who used which device, a line for each change
        misses.jsonl              deadlines that the recorder did not meet
        marks/<pid>-<start>.marks begin and end of spans, a file for each process (see ``hooks``)
        marks/<pid>-<time>.frameworks.json  the frameworks that a process imported (``hooks``)
        checksums.json            by which damage to these files is found (see ``checksums``)
        checksums.log             while recording: the same of what was written since
        live.json                 while recording: joules so far and the outlook
        .reserve                  while recording: room for the last run.json on a full disk
    <store>/sweeps/               the sweeps that runs belong to (see ``sweep.store``)
    <store>/.index.sqlite         for quick lists; can be deleted at any time (see ``index``)
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Final

from joulewise.data import Quantity

FORMAT: Final = 1
SWEEPS: Final = "sweeps"
INDEX: Final = ".index.sqlite"
MANIFEST: Final = "run.json"
RESULT: Final = "result.json"
TRACE: Final = "trace"
MARKS: Final = "marks"
PROCESSES: Final = "processes.jsonl"
MISSES: Final = "misses.jsonl"
LIVE: Final = "live.json"
CHECKSUMS: Final = "checksums.json"
CHECKSUM_LOG: Final = "checksums.log"
RESERVE: Final = ".reserve"
STREAM: Final = ".arrows"
PACKED: Final = ".parquet"


SAMPLED: Final = (
    Quantity.GPU_UTILISATION,
    Quantity.MEMORY_UTILISATION,
    Quantity.ENCODER_UTILISATION,
    Quantity.DECODER_UTILISATION,
    Quantity.SM_CLOCK,
    Quantity.MEMORY_CLOCK,
)
"""What a driver keeps samples of besides power (the other types of nvmlDeviceGetSamples)."""


class StreamKind(str, Enum):
    """How a series came about. Each is a file of its own: their times have nothing in common.

    ``FAST`` has ``t_ns`` (when the device was asked), ``power_w`` and ``energy_j``; ``BUFFER``
    has ``t_ns`` (the driver's time of the sample, on our clock) and ``power_w``, and the other
    ``BUFFER_…`` have the one quantity that they are named for; ``SLOW`` has ``t_ns`` and a column
    for every other quantity, by its name. A column that the device lacks is absent; a value that
    could not be read is null in the file and NaN to a reader.
    """

    FAST = ""
    BUFFER = ".buffer"
    SLOW = ".slow"
    BUFFER_GPU_UTILISATION = f".buffer.{Quantity.GPU_UTILISATION.value}"
    BUFFER_MEMORY_UTILISATION = f".buffer.{Quantity.MEMORY_UTILISATION.value}"
    BUFFER_ENCODER_UTILISATION = f".buffer.{Quantity.ENCODER_UTILISATION.value}"
    BUFFER_DECODER_UTILISATION = f".buffer.{Quantity.DECODER_UTILISATION.value}"
    BUFFER_SM_CLOCK = f".buffer.{Quantity.SM_CLOCK.value}"
    BUFFER_MEMORY_CLOCK = f".buffer.{Quantity.MEMORY_CLOCK.value}"


def buffer_lane(quantity: Quantity) -> StreamKind:
    """The lane of the driver's own samples of a quantity."""
    return (
        StreamKind.BUFFER if quantity is Quantity.POWER else StreamKind(f".buffer.{quantity.value}")
    )


def lane_path(run: Path, key: str, lane: StreamKind, suffix: str) -> Path:
    return run / TRACE / f"{key}{lane.value}{suffix}"

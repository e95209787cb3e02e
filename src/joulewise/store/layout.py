"""The files of a run directory.

::

    <store>/<id>/
        run.json                  the manifest (see ``manifest``), replaced as a whole
        tuning.json               of `tune`: its state or outcome, replaced as a whole
        result.json               what ``show`` shows, once it has been computed
        trace/gpu0.arrows         while recording; then gpu0.parquet
        trace/gpu0.buffer.arrows  the driver's own samples of power
        trace/gpu0.buffer.sm_clock_mhz.arrows  and of other quantities, a file for each
        trace/gpu0.slow.arrows    utilisation, clocks, temperature and the like
        processes.jsonl           who used which device, a line for each change
        misses.jsonl              deadlines that the recorder did not meet
        marks/<pid>-<start>.marks begin and end of spans, a file for each process (see ``hooks``)
        marks/<pid>-<time>.frameworks.json  the frameworks that a process imported (``hooks``)
        checksums.json            to find damage to these files (see ``checksums``)
        checksums.log             while recording: the same of what was written since
        live.json                 while recording: joules so far and the forecast
        .reserve                  while recording: space for the final run.json on a full disk
        marks/<pid>-<time>.memory  the error for lack of memory that ended a process (``hooks``)
    <store>/jobs.sqlite           recurring jobs, unless they are elsewhere (``optimise.recurring``)
    <store>/.untold-tries/        outcomes of tries that the store of jobs could not be told
    <store>/sweeps/               the sweeps that runs belong to (see ``sweep.stored_sweeps``)
    <store>/.index.sqlite         for quick lists; can be deleted at any time (see ``index``)
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Final

from joulewise.data import Quantity

FORMAT: Final = 1
"""Version of run.json; a file of a later one is refused with a hint to update."""

SWEEPS: Final = "sweeps"
INDEX: Final = ".index.sqlite"
MANIFEST: Final = "run.json"
RESULT: Final = "result.json"
TRACE: Final = "trace"
MARKS: Final = "marks"
PROCESSES: Final = "processes.jsonl"
ENDED: Final = "ended"  # in it: a process that has ended, from the driver's accounting
SIMULATION: Final = "the simulation itself"  # in it: the process that makes the simulated load
MISSES: Final = "misses.jsonl"
LIVE: Final = "live.json"
TUNING: Final = "tuning.json"
CHECKSUMS: Final = "checksums.json"
CHECKSUM_LOG: Final = "checksums.log"
RESERVE: Final = ".reserve"
TUNING_RESERVE: Final = ".tuning-reserve"
STREAM: Final = ".arrows"
PACKED: Final = ".parquet"

BUFFERED_QUANTITIES: Final = (
    Quantity.GPU_UTILISATION,
    Quantity.MEMORY_UTILISATION,
    Quantity.ENCODER_UTILISATION,
    Quantity.DECODER_UTILISATION,
    Quantity.SM_CLOCK,
    Quantity.MEMORY_CLOCK,
)
"""What a driver buffers samples of besides power (the other types of nvmlDeviceGetSamples)."""


class StreamKind(str, Enum):
    """How a device's stream is recorded; the value is the middle of its file's name.

    - ``FAST``: ``t_ns`` (when the device was read), ``power_w`` and ``energy_j``
    - ``BUFFER``: ``t_ns`` (the driver's time of the sample, on our clock) and ``power_w``
    - ``BUFFER_…``: the same of the one other quantity that it is named for
    - ``SLOW``: ``t_ns`` and a column for every other quantity, by its name

    Each is a file of its own, because their times differ. A column that the device lacks is
    absent; a value that could not be read is null in the file and NaN to a reader.
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


def buffer_stream_kind(quantity: Quantity) -> StreamKind:
    """The stream of the driver's own samples of a quantity."""
    is_power = quantity is Quantity.POWER
    return StreamKind.BUFFER if is_power else StreamKind(f".buffer.{quantity.value}")


def stream_path(run: Path, key: str, kind: StreamKind, suffix: str) -> Path:
    """The file of one stream of the device with that key; ``suffix`` is STREAM or PACKED."""
    return run / TRACE / f"{key}{kind.value}{suffix}"

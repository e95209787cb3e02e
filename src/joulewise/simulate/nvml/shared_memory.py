"""The memory that simulated GPUs share with every NVML client, seen from Python.

``shim/layout.h`` is parsed into numpy types, so that Python and C use one declaration. Readers are
kept consistent by a sequence lock (seqlock): the writer makes a GPU's ``sequence`` odd while it
writes, and a reader starts again where it was odd or has changed.
"""

from __future__ import annotations

import bisect
import ctypes
import mmap
import os
import re
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from joulewise.errors import SimulationError, UsageError
from joulewise.simulate.model import BoardUnit, ControlSettings
from joulewise.simulate.nvml import identity
from joulewise.simulate.nvml.faults import KINDS, LIBRARY_ABSENT, InjectedFault, Latency
from joulewise.simulate.timeline import PIECE, Timeline
from joulewise.units import MW_PER_W

_SOURCE: Final = (Path(__file__).parent / "shim" / "layout.h").read_text(encoding="utf-8")
_FIELD: Final = re.compile(r"^ +(?:_Atomic )?(?:struct )?(\w+) (\w+)(?:\[(\w+)\])?;$", re.MULTILINE)
_STRUCT: Final = re.compile(r"^struct (\w+) \{\n(.*?)^\};$", re.MULTILINE | re.DOTALL)
_PLAIN: Final[dict[str, Any]] = {
    "int64_t": np.int64,
    "uint64_t": np.uint64,
    "uint32_t": np.uint32,
    "double": np.float64,
    "float": np.float32,
}

CONSTANTS: Final = {
    name.removeprefix("JW_"): int(value, 0)
    for name, value in re.findall(r"^#define (JW_\w+) (\w+)$", _SOURCE, re.MULTILINE)
}


def _parse_layout() -> dict[str, np.dtype[Any]]:
    types: dict[str, np.dtype[Any]] = {}
    for struct, body in _STRUCT.findall(_SOURCE):
        fields: list[Any] = []
        for kind, name, length in _FIELD.findall(body):
            size = CONSTANTS.get(length.removeprefix("JW_")) or int(length or 0)
            if kind == "char":
                fields.append((name, f"S{size}"))
            else:
                plain = types.get(kind) or np.dtype(_PLAIN[kind])
                fields.append((name, plain, (size,)) if size else (name, plain))
        types[struct] = np.dtype(fields, align=True)
    return types


TYPES: Final = _parse_layout()
HEADER: Final = TYPES["jw_header"]
GPU: Final = TYPES["jw_gpu"]


_HERE: Final = Path(__file__).parent
_MEMORY: Final = Path("/dev/shm")  # noqa: S108  # the file below it has a random name
_FOREVER_NS: Final = np.iinfo(np.int64).max
_RING: Final = CONSTANTS["RING"]  # pieces per GPU
_HOST_RING: Final = CONSTANTS["HOST_RING"]
_WORDS: Final = PIECE.itemsize // 8  # of 64 bits, in a piece
# Fields that are 0 again after the driver was unloaded.
_RESET_FIELDS: Final = (
    "sm_lock",
    "memory_lock",
    "application_clocks",
    "compute_mode",
    "accounting",
    "accounting_clear",
)


def shim_path() -> Path:
    """The path of the library that clients load; SimulationError where it was not built."""
    path = _HERE / "lib" / "libnvidia-ml.so.1"
    if path.exists():
        return path
    root = _HERE.parents[3]
    package = f"-e {root}" if (root / "setup.py").exists() else "joulewise"
    raise SimulationError(
        "the simulated NVML library was not built: no C compiler when joulewise was installed",
        "install one (apt install gcc), then: "
        f"{sys.executable} -m pip install --force-reinstall --no-deps --no-cache-dir {package}",
    )


class AccountedProcess(NamedTuple):
    """A process's record in accounting mode: ``struct jw_accounted``, field by field."""

    pid: int
    running: bool
    busy_pct: int
    memory_pct: int
    memory_b: int
    start_ns: int
    time_ns: int


class SharedGpuMemory:
    """The simulated GPUs as clients see them. One process writes the pieces, any may read them."""

    def __init__(self, path: str, memory: mmap.mmap, *, owner: bool) -> None:
        self.path = path
        self._memory = memory
        self._owner = owner
        self._header: Any = np.frombuffer(memory, HEADER, 1)
        count = int(self._header["gpus"][0]) or (len(memory) - HEADER.itemsize) // GPU.itemsize
        self._gpus: Any = np.frombuffer(memory, GPU, count, HEADER.itemsize)
        self._columns: dict[str, Any] = {name: self._gpus[name] for name in GPU.names or ()}
        self._rings = [_ring(memory, gpu) for gpu in range(count)]
        self._times = [ring.cast("q") for ring in self._rings]
        self._fence = ctypes.CDLL(str(shim_path())).jw_fence

    @classmethod
    def create(
        cls,
        units: Sequence[BoardUnit],
        *,
        latency: Latency,
        faults: Sequence[InjectedFault],
        start_ns: int,
        socket_name: str = "",
        folder: Path = _MEMORY,
        as_root: bool = False,
        accounting: bool = False,
    ) -> SharedGpuMemory:
        """Create the memory for ``units``; :meth:`close` removes it again.

        Only root may set a control, or any user where ``as_root``. ``accounting`` is whether
        accounting mode is on at first.
        """
        _check_count("GPUs to simulate", len(units), CONSTANTS["MAX_GPUS"])
        _check_count("faults", len(faults), CONSTANTS["FAULTS"])
        path = folder / f"joulewise-sim-{os.getpid()}-{secrets.token_hex(4)}"
        shared = cls(str(path), _allocate(path, len(units)), owner=True)
        header = shared._header[0]
        header["header_size"], header["gpu_size"] = HEADER.itemsize, GPU.itemsize
        header["gpus"], header["as_root"] = len(units), as_root
        header["wall_offset_ns"] = time.time_ns() - time.monotonic_ns()
        *by_class, header["pcie_wait_ns"] = astuple(latency)
        header["latency_ns"] = by_class
        header["contention_seed"] = units[0].seed % 2**64
        header["socket"] = socket_name.encode()
        _write_faults(header["faults"], [f for f in faults if f.gpu is None], start_ns)
        for index, unit in enumerate(units):
            gpu = shared._gpus[index]
            for name, value in identity.unit_fields(unit, index).items():
                gpu[name] = value
            gpu["modules"] = sum(other.board.module is not None for other in units)
            gpu["module_index"] = sum(other.board.module is not None for other in units[:index])
            _write_faults(gpu["faults"], [f for f in faults if f.gpu in {None, index}], start_ns)
            shared.reset(index, 0.0)
            gpu["accounting"] = accounting
        header["magic"] = CONSTANTS["MAGIC"]
        return shared

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> SharedGpuMemory:
        """The memory that another process created."""
        with Path(path).open("r+b") as file:
            return cls(os.fspath(path), mmap.mmap(file.fileno(), 0), owner=False)

    def publish(self, gpu: int, timeline: Timeline) -> None:
        """Replace everything from the timeline's first piece on, as far as the ring has room."""
        pieces = np.ascontiguousarray(timeline.pieces[:_RING])
        if not len(pieces):
            return
        column, times, ring = self._columns, self._times[gpu], self._rings[gpu]
        first, end = int(column["first"][gpu]), int(column["end"][gpu])
        start = first + bisect.bisect_left(
            range(first, end),
            int(pieces["t_ns"][0]),
            key=lambda number: times[number % _RING * _WORDS],
        )
        raw = pieces.view(np.uint8).data
        at = start % _RING * PIECE.itemsize
        until = at + len(raw)
        end = start + len(pieces)
        with self._writing(gpu):
            ring[at:until] = raw[: len(ring) - at]
            ring[: max(0, until - len(ring))] = raw[len(ring) - at :]
            column["end"][gpu], column["first"][gpu] = end, max(first, end - _RING)
            if column["faults"]["count"][gpu]:
                _note_resets(column["faults"][gpu], timeline)

    def publish_host(self, gpu: int, t_ns: int, power_w: float, energy_j: float) -> None:
        """The power of the module's CPU and memory from ``t_ns`` on, and their energy before it."""
        column = self._columns
        with self._writing(gpu):
            end = int(column["host_end"][gpu])
            column["host"][gpu, end % _HOST_RING] = (t_ns, energy_j, power_w)
            column["host_end"][gpu] = end + 1

    def controls(self, gpu: int) -> ControlSettings:
        """What clients have set. Application clocks are an upper bound, which a lock overrides."""
        column = self._columns
        memory_mhz, sm_mhz = _pair(column["application_clocks"][gpu]) or (0.0, 0.0)
        sm_lock_mhz = _pair(column["sm_lock"][gpu])
        memory_lock_mhz = _pair(column["memory_lock"][gpu])
        if sm_mhz:
            lowest_mhz = float(column["memory_clock_mhz"][gpu].min())
            sm_lock_mhz = sm_lock_mhz or (float(column["sm_min_mhz"][gpu]), sm_mhz)
            memory_lock_mhz = memory_lock_mhz or (lowest_mhz, memory_mhz)
        limit_w = int(column["limit_mw"][gpu]) / MW_PER_W
        return ControlSettings(limit_w, sm_lock_mhz, memory_lock_mhz)

    def persistence(self, gpu: int) -> bool:
        return bool(self._gpus["persistence"][gpu])

    def reset(self, gpu: int, energy_j: float) -> None:
        """Unload the driver: default limit, no locks or accounting, a counter from 0 on."""
        column = self._columns
        with self._writing(gpu):
            column["limit_mw"][gpu] = column["limit_default_mw"][gpu]
            for name in _RESET_FIELDS:
                column[name][gpu] = 0
            column["counter_base_j"][gpu] = energy_j

    def count_from(self, gpu: int, energy_j: float) -> None:
        """Let the counter begin where the GPU had drawn ``energy_j``."""
        with self._writing(gpu):
            self._columns["counter_base_j"][gpu] = energy_j

    def set_processes(self, gpu: int, processes: Sequence[tuple[int, int]]) -> None:
        """Set the processes that use the GPU: (pid, bytes of its memory)."""
        column = self._columns
        shown = processes[: CONSTANTS["PROCESSES"]]
        with self._writing(gpu):
            for index, process in enumerate(shown):
                column["process"][gpu, index] = process
            column["processes"][gpu] = len(shown)

    def accounting(self, gpu: int) -> bool:
        """Whether accounting mode is on."""
        return bool(self._columns["accounting"][gpu])

    def take_accounting_clear(self, gpu: int) -> bool:
        """Whether a client has asked to clear the records since the last call."""
        is_requested = bool(self._columns["accounting_clear"][gpu])
        if is_requested:
            self._columns["accounting_clear"][gpu] = 0
        return is_requested

    def set_accounted(self, gpu: int, processes: Sequence[AccountedProcess]) -> None:
        """Set the records of accounting mode, the oldest first."""
        column = self._columns
        rows = np.array(processes, TYPES["jw_accounted"])
        with self._writing(gpu):
            column["accounted"][gpu, : len(rows)] = rows
            column["accounted_processes"][gpu] = len(rows)

    def freeze(self, now_ns: int) -> None:
        """Stop the clients' clock at ``now_ns``; 0 lets it run again."""
        self._header["frozen_ns"] = now_ns

    def close(self) -> None:
        """Unmap the memory; its creator also removes it."""
        if self._owner:
            Path(self.path).unlink(missing_ok=True)
        for view in (*self._times, *self._rings):
            view.release()
        del self._header, self._gpus, self._columns
        self._memory.close()

    @contextmanager
    def _writing(self, gpu: int) -> Iterator[None]:
        """The writer's side of the seqlock."""
        sequence = self._columns["sequence"]
        sequence[gpu] += 1
        self._fence()
        yield
        self._fence()
        sequence[gpu] += 1


def _note_resets(faults: Any, timeline: Timeline) -> None:
    """Keep the energy at a counter reset, which the ring will have forgotten when it is read."""
    for fault in faults["entries"][: faults["count"]]:
        is_reset = fault["kind"] == CONSTANTS["FAULT_COUNTER_RESET"]
        if is_reset and fault["start_ns"] >= timeline.pieces["t_ns"][0]:
            fault["energy_j"] = timeline.energy_at(fault["start_ns"])


def _ring(memory: mmap.mmap, gpu: int) -> memoryview:
    assert GPU.fields  # noqa: S101  # a structure has fields
    start = HEADER.itemsize + gpu * GPU.itemsize + GPU.fields["ring"][1]
    return memoryview(memory)[start : start + _RING * PIECE.itemsize]


def _check_count(what: str, count: int, most: int) -> None:
    if count > most:
        raise UsageError(f"{count} {what} are too many", f"at most {most} are possible")


def _allocate(path: Path, gpus: int) -> mmap.mmap:
    size = HEADER.itemsize + gpus * GPU.itemsize
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise _no_memory(path, error) from error
    try:
        os.fchmod(descriptor, 0o666)  # as a driver's device node: any user's program may open it
        os.posix_fallocate(descriptor, 0, size)  # fails now, not with SIGBUS at some later write
        return mmap.mmap(descriptor, size)
    except OSError as error:
        path.unlink()
        raise _no_memory(path, error) from error
    finally:
        os.close(descriptor)


def _no_memory(path: Path, error: OSError) -> SimulationError:
    return SimulationError(
        f"no shared memory in {path.parent}: {error.strerror}",
        f"free some space: df -h {path.parent} (in a container: --shm-size=64m)",
    )


def _write_faults(table: Any, faults: Sequence[InjectedFault], start_ns: int) -> None:
    active = [fault for fault in faults if fault.kind != LIBRARY_ABSENT]
    table["count"] = len(active)
    for entry, fault in zip(table["entries"], active, strict=False):
        entry["kind"] = KINDS.index(fault.kind) + 1
        entry["start_ns"] = start_ns + fault.start_ns
        entry["end_ns"] = _FOREVER_NS if fault.end_ns is None else start_ns + fault.end_ns
        entry["amount"], entry["code"] = fault.amount, fault.code
        entry["call"] = fault.call.encode()


def _pair(packed: Any) -> tuple[float, float] | None:
    value = int(packed)
    return (float(value >> 32), float(value & 0xFFFFFFFF)) if value else None

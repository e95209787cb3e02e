"""A run in virtual time, written into the store as a recorder would have left it."""

from __future__ import annotations

import json
import platform
import time
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from joulewise.analyse.kept import write_result
from joulewise.analyse.lanes import ArrayLane
from joulewise.analyse.run import analyse
from joulewise.command.alive import boot_id
from joulewise.data import RunResult
from joulewise.hooks import marks as written
from joulewise.record.checksums import write_final_checksums
from joulewise.record.compact import write_packed
from joulewise.record.layout import MARKS, PACKED, PROCESSES, STREAM, TRACE, Lane, lane_path
from joulewise.record.manifest import (
    CommandRecord,
    Manifest,
    RecordedDevice,
    RecorderRecord,
    working_directory,
    write_manifest,
)
from joulewise.record.mark_files import RECORD
from joulewise.record.marks import SpanTable
from joulewise.record.rows import typecode
from joulewise.record.streams import schema, write_stream
from joulewise.simulate import sensor
from joulewise.simulate.poll import ALL, FAST, poll
from joulewise.simulate.timeline import Timeline
from joulewise.sweep.virtual_end import cut
from joulewise.units import NS_PER_S, NS_PER_US

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.simulate.virtual import VirtualRun

    Columns = dict[str, NDArray[Any]]

HOST: Final = "simulated"
_LATE_NS: Final = 150_000  # what a thread that sleeps wakes up late by, in the mean
_SLOW_HZ: Final = 1.0
_SLOW: Final = tuple(quantity for quantity in ALL if quantity not in FAST)
_SPANS: Final = ("training", "epoch", "validation", "step")
_FEW_ROWS: Final = 4_096  # to pack fewer takes longer than their room is worth
_STEPS: Final = 64  # so many of a run's are looked at one by one


@dataclass(frozen=True)
class VirtualRecord:
    """What is recorded of a run that was played, up to ``end_ns``; it is seeded by ``seed``."""

    played: VirtualRun
    device: RecordedDevice
    rate_hz: float
    seed: int
    end_ns: int
    exit_code: int = 0

    @property
    def start_ns(self) -> int:
        return int(self.played.spans["run"].start_ns[0])

    @cached_property
    def timeline(self) -> Timeline:
        return cut(self.played, self.end_ns)

    @cached_property
    def lanes(self) -> dict[Lane, Columns]:
        played, timeline = self.played, self.timeline
        slow = poll(played.unit, timeline, self._due_ns(_SLOW_HZ), _SLOW)
        same = np.ones(len(slow["t_ns"]))
        slow["enforced_limit_w"] = same * played.knobs.limit_w
        slow["memory_used_b"] = same * played.workload.step.memory_b
        lanes = {
            Lane.FAST: poll(played.unit, timeline, self._due_ns(self.rate_hz), FAST),
            Lane.BUFFER: self._samples(),
            Lane.SLOW: slow,
        }
        return {
            lane: {name: each.astype(typecode(name), copy=False) for name, each in columns.items()}
            for lane, columns in lanes.items()
        }

    @cached_property
    def spans(self) -> SpanTable:
        """As they are read back: what had begun at the end is not closed."""
        told = [self.played.spans[name] for name in _SPANS]
        begun = [int(np.searchsorted(each.start_ns, self.end_ns)) for each in told]
        start_ns = np.concatenate([each.start_ns[:n] for each, n in zip(told, begun, strict=True)])
        end_ns = np.concatenate([each.end_ns[:n] for each, n in zip(told, begun, strict=True)])
        name = np.repeat(np.arange(len(_SPANS)), begun)
        index = np.concatenate([np.arange(n) for n in begun])
        index[name == _SPANS.index("training")] = written.NONE
        total = np.full(len(name), written.NONE)
        total[name == _SPANS.index("epoch")] = self.played.workload.epochs
        pid = np.zeros(len(name), np.int64)
        closed = end_ns <= self.end_ns
        last_ns = max(start_ns.max(initial=0), end_ns[closed].max(initial=0))  # a sign of life
        end_ns = np.where(closed, end_ns, last_ns)
        order = np.lexsort((-end_ns, start_ns))
        return SpanTable(
            _SPANS,
            name[order],
            index[order],
            start_ns[order],
            end_ns[order],
            pid[order],
            total[order],
            closed[order],
            closed[order],
        )

    def _due_ns(self, rate_hz: float) -> NDArray[np.int64]:
        due_ns = np.arange(self.timeline.start_ns, self.timeline.end_ns, NS_PER_S / rate_hz)
        late_ns = np.random.default_rng(self.seed).exponential(_LATE_NS, len(due_ns))
        return np.asarray(due_ns + late_ns).astype(np.int64)

    def _samples(self) -> Columns:
        """The driver's own, none of them lost, at its times in whole microseconds."""
        unit, timeline = self.played.unit, self.timeline
        bounds_ns = np.array([timeline.start_ns, timeline.end_ns])
        first, last = sensor.last_power_tick(unit, bounds_ns)
        ticks = np.arange(first + 1, last + 1)
        return {
            "t_ns": sensor.power_tick_ns(unit, ticks) // NS_PER_US * NS_PER_US,
            "power_w": sensor.power_at_ticks(unit, timeline, ticks, sensor.INSTANT),
        }


def write(run: Path, record: VirtualRecord, **about: Any) -> RunResult:
    """Fill the directory of a run; ``about`` is what its manifest says besides.

    What is written can be simulated again, so none of it waits for the disk. The manifest comes
    last: without one, there is no run.
    """
    (run / TRACE).mkdir()
    (run / MARKS).mkdir()
    for lane, columns in record.lanes.items():
        table = pa.Table.from_pydict(columns, schema=schema(tuple(columns)))
        where = partial(lane_path, run, record.device.info.key, lane)
        if table.num_rows > _FEW_ROWS:
            write_packed(where(PACKED), [table])
        else:
            write_stream(where(STREAM), table)
    (run / MARKS / f"0-{record.start_ns}.marks").write_bytes(_marks(record))
    (run / PROCESSES).write_text(_processes(record), "utf-8")
    write_final_checksums(run, durable=False)
    manifest = _manifest(run, record, **about)
    write_manifest(run, manifest, durable=False)
    lanes = {lane: ArrayLane(columns) for lane, columns in record.lanes.items()}
    result = analyse(
        run,
        manifest,
        lanes=lambda _, lane: lanes.get(lane),
        spans=record.spans,
        few_steps=_STEPS,
    )
    write_result(run, result, durable=False)
    return result


def _manifest(
    run: Path,
    record: VirtualRecord,
    *,
    arguments: tuple[str, ...],
    recorder: RecorderRecord,
    **about: Any,
) -> Manifest:
    """It begins when it is simulated, and lasts as long as it does in virtual time."""
    timeline, key = record.timeline, record.device.info.key
    now_ns = time.time_ns()
    command = CommandRecord(0, arguments, record.start_ns, record.end_ns, record.exit_code)
    lanes = {f"{key}{lane.value}": _kept(each) for lane, each in record.lanes.items()}
    return Manifest(
        id=run.name,
        commands=(command,),
        rate_hz=record.rate_hz,
        wall_start_ns=now_ns,
        monotonic_start_ns=timeline.start_ns,
        devices=(record.device,),
        recorder=replace(recorder, lanes=lanes, saved_wall_ns=now_ns),
        state="complete",
        wall_end_ns=now_ns + timeline.end_ns - timeline.start_ns,
        monotonic_end_ns=timeline.end_ns,
        exit_code=record.exit_code,
        **about,
    )


def made_here() -> dict[str, Any]:
    """What all manifests say that this process writes."""
    return {
        "cwd": working_directory(),
        "boot_id": boot_id(),
        "recorder": RecorderRecord.of_this_process(),
        "host": {"name": HOST, "simulated_on": platform.node()},
    }


def _kept(columns: Columns) -> dict[str, Any]:
    t_ns, news = columns["t_ns"], columns.get("power_w", columns["t_ns"])
    changes = int(np.count_nonzero(np.diff(news)))
    lasted_s = max(int(t_ns[-1] - t_ns[0]), 1) / NS_PER_S
    return {
        "rows": len(t_ns),
        "new_values": changes + 1,
        "effective_hz": round(changes / lasted_s, 4),
        "rate_hz": round((len(t_ns) - 1) / lasted_s, 4),
        "missed": 0,
    }


def _marks(record: VirtualRecord) -> bytes:
    """As the program's hooks would have left them."""
    magic, clock, spans = written.MAGIC, written.CLOCK_MONOTONIC, record.spans
    header = (magic, written.HEADER, written.VERSION, 0, record.start_ns, 0, 0, 1, 0, clock, 0)
    names = [
        written.NAME_FORM.pack(magic, written.NAME, 0, code, name.encode())
        for code, name in enumerate(spans.names)
    ]
    marks = np.zeros(len(spans), RECORD)
    marks["magic"] = magic
    marks["kind"] = np.where(spans.closed, written.WHOLE, written.BEGIN)
    marks["t_ns"] = np.where(spans.closed, spans.end_ns, spans.start_ns)
    for column in ("name", "start_ns", "index", "total"):
        marks[column] = getattr(spans, column)
    return b"".join([written.HEADER_FORM.pack(*header), *names, marks.tobytes()])


def _processes(record: VirtualRecord) -> str:
    workload, key = record.played.workload, record.device.info.key
    holder = {
        "pid": 0,
        "name": f"{workload.name} (simulated)",
        "memory_b": workload.step.memory_b,
        "kind": "compute",
        "ours": True,
    }
    lines = [
        {"t_ns": record.start_ns, "device": key, "processes": [holder]},
        {"t_ns": record.end_ns, "device": key, "processes": []},
    ]
    return "".join(f"{json.dumps(line)}\n" for line in lines)

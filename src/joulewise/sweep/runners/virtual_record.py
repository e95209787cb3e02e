"""A run in virtual time, written into the store as a recorder would have left it.

When a run in virtual time is ended early, as one that goes on would be.
"""

from __future__ import annotations

import json
import platform
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from joulewise.analyse.chunks import ArrayLane
from joulewise.analyse.run_result import analyse
from joulewise.analyse.stored_result import write_result
from joulewise.data import RunResult
from joulewise.data.sweeps import Planned
from joulewise.hooks import marks as written
from joulewise.process.linux import boot_id
from joulewise.simulate import sensor
from joulewise.simulate.sensor import ALL, FAST, poll
from joulewise.simulate.timeline import Timeline, join
from joulewise.simulate.virtual import VirtualRun
from joulewise.store.arrow_stream import schema, typecode, write_stream
from joulewise.store.checksums import write_final_checksums
from joulewise.store.layout import MARKS, PACKED, PROCESSES, STREAM, TRACE, StreamKind, lane_path
from joulewise.store.manifest import (
    CommandRecord,
    Manifest,
    RecordedDevice,
    RecorderRecord,
    working_directory,
    write_manifest,
)
from joulewise.store.parquet import write_packed
from joulewise.store.spans import RECORD, SpanTable
from joulewise.sweep.runners.early_stop import STEP, UNSTEADY_STEPS, Why
from joulewise.sweep.runners.runner import Hopeless
from joulewise.sweep.trial import GPU
from joulewise.units import NS_PER_S, NS_PER_US


def ending(
    played: VirtualRun, planned: Planned, timeout_s: float | None, hopeless: Hopeless | None
) -> tuple[int, Why | None]:
    """The moment at which it ends, and why if not by itself."""
    run = played.spans["run"]
    start_ns, end_ns = int(run.start_ns[0]), int(run.end_ns[0])
    ends: list[tuple[int, Why | None]] = [(end_ns, None)]
    if timeout_s is not None:
        ends.append((start_ns + round(timeout_s * NS_PER_S), Why.TOO_LONG))
    if planned.look_s is not None:
        ends += [(t_ns, Why.ENOUGH) for t_ns in _seen_ns(played, planned.look_s)]
    if hopeless is not None:
        ends += [(t_ns, Why.DOMINATED) for t_ns in _given_up_ns(played, hopeless)]
    return min(ends, key=lambda end: end[0])


def cut(played: VirtualRun, end_ns: int) -> Timeline:
    """What the board did if the run was ended then: it idles with clocks up for a moment."""
    whole, idle = played.timeline, played.unit.board.idle
    if end_ns >= played.spans["run"].end_ns[0]:
        return whole
    part = whole.between(whole.start_ns, end_ns)
    after = part.pieces[-1:].copy()
    after["t_ns"], after["energy_j"], after["power_w"] = (
        end_ns,
        part.energy_at(end_ns),
        idle.clocks_up_w,
    )
    after["busy"] = after["memory_busy"] = after["throttle"] = 0
    return Timeline(join([part.pieces, after]), end_ns + round(idle.hold_s * NS_PER_S))


def _seen_ns(played: VirtualRun, look_s: float) -> Iterator[int]:
    """When there were so many seconds of steady steps, if ever."""
    ends_ns = played.spans[STEP].end_ns
    if len(ends_ns) > UNSTEADY_STEPS:
        wanted_ns = ends_ns[UNSTEADY_STEPS - 1] + round(look_s * NS_PER_S)
        yield from ends_ns[int(np.searchsorted(ends_ns, wanted_ns)) :][:1].tolist()


def _given_up_ns(played: VirtualRun, hopeless: Hopeless) -> Iterator[int]:
    """When a look once a second first finds it hopeless, which it then stays, if ever."""
    run, timeline = played.spans["run"], played.timeline
    looks_ns = np.arange(run.start_ns[0], run.end_ns[0], NS_PER_S)
    drawn_j = played.unit.gain * (timeline.energy_at(looks_ns) - timeline.energy_at(looks_ns[0]))

    def is_hopeless(look: int) -> bool:
        return hopeless(float(look), {GPU: float(drawn_j[look])})

    first = bisect_left(range(len(looks_ns)), True, key=is_hopeless)
    yield from looks_ns[first:][:1].tolist()


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
    def lanes(self) -> dict[StreamKind, Columns]:
        played, timeline = self.played, self.timeline
        slow = poll(played.unit, timeline, self._due_ns(_SLOW_HZ), _SLOW)
        same = np.ones(len(slow["t_ns"]))
        slow["enforced_limit_w"] = same * played.knobs.limit_w
        slow["memory_used_b"] = same * played.workload.step.memory_b
        lanes = {
            StreamKind.FAST: poll(played.unit, timeline, self._due_ns(self.rate_hz), FAST),
            StreamKind.BUFFER: self._samples(),
            StreamKind.SLOW: slow,
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
        open_stream=lambda _, lane: lanes.get(lane),
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

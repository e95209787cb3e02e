"""A run in virtual time, written into the store as a recorder would have left it."""

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

from joulewise.analyse.chunks import ArrayStream
from joulewise.analyse.run_result import analyse
from joulewise.analyse.stored_result import write_result
from joulewise.data import RunResult
from joulewise.data.sweeps import Planned
from joulewise.hooks import marks as written
from joulewise.process.linux import boot_id
from joulewise.simulate import sensor
from joulewise.simulate.sensor import ALL_QUANTITIES, POWER_AND_ENERGY, poll
from joulewise.simulate.timeline import Timeline, join
from joulewise.simulate.virtual import VirtualRun
from joulewise.store.arrow_stream import schema, typecode, write_stream
from joulewise.store.checksums import write_final_checksums
from joulewise.store.layout import MARKS, PACKED, PROCESSES, STREAM, TRACE, StreamKind, stream_path
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
from joulewise.sweep.runners.early_stop import STEP, UNSTEADY_STEPS, EndReason
from joulewise.sweep.runners.runner import IsHopeless
from joulewise.sweep.trial import GPU
from joulewise.units import NS_PER_S, NS_PER_US

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Columns = dict[str, NDArray[Any]]

HOST: Final = "simulated"
_LATE_NS: Final = 150_000  # by which a sleeping thread wakes up late, on average
_SLOW_HZ: Final = 1.0
_SLOW: Final = tuple(quantity for quantity in ALL_QUANTITIES if quantity not in POWER_AND_ENERGY)
_SPANS: Final = ("training", "epoch", "validation", "step")
_PACKED_ROWS: Final = 4_096  # packing fewer as Parquet takes longer than the space is worth
_STEPS: Final = 64  # the number of steps of a run that are analysed one by one


def find_end(
    played: VirtualRun, planned: Planned, timeout_s: float | None, is_hopeless: IsHopeless | None
) -> tuple[int, EndReason | None]:
    """When a run ends, and why; None where the command ends by itself.

    It is ended early by the same rules as a run on this machine.
    """
    run = played.spans["run"]
    start_ns, end_ns = int(run.start_ns[0]), int(run.end_ns[0])
    ends: list[tuple[int, EndReason | None]] = [(end_ns, None)]
    if timeout_s is not None:
        ends.append((start_ns + round(timeout_s * NS_PER_S), EndReason.TOO_LONG))
    if planned.look_s is not None:
        ends += [(t_ns, EndReason.ENOUGH) for t_ns in _probed_ns(played, planned.look_s)]
    if is_hopeless is not None:
        ends += [(t_ns, EndReason.DOMINATED) for t_ns in _dominated_ns(played, is_hopeless)]
    return min(ends, key=lambda end: end[0])


def _truncate(played: VirtualRun, end_ns: int) -> Timeline:
    """What the board did if the run ended at ``end_ns``: it idles, for a while at high clocks."""
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


def _probed_ns(played: VirtualRun, look_s: float) -> Iterator[int]:
    """When there were ``look_s`` seconds of steady steps; nothing where there never were."""
    ends_ns = played.spans[STEP].end_ns
    if len(ends_ns) > UNSTEADY_STEPS:
        wanted_ns = ends_ns[UNSTEADY_STEPS - 1] + round(look_s * NS_PER_S)
        yield from ends_ns[int(np.searchsorted(ends_ns, wanted_ns)) :][:1].tolist()


def _dominated_ns(played: VirtualRun, is_hopeless: IsHopeless) -> Iterator[int]:
    """When a check once a second first finds the run hopeless; nothing where it never does.

    Time and energy only grow, so a hopeless run stays so: a bisection finds the first second.
    """
    run, timeline = played.spans["run"], played.timeline
    checks_ns = np.arange(run.start_ns[0], run.end_ns[0], NS_PER_S)
    drawn_j = played.unit.gain * (timeline.energy_at(checks_ns) - timeline.energy_at(checks_ns[0]))

    def is_hopeless_at(second: int) -> bool:
        return is_hopeless(float(second), {GPU: float(drawn_j[second])})

    first = bisect_left(range(len(checks_ns)), True, key=is_hopeless_at)
    yield from checks_ns[first:][:1].tolist()


@dataclass(frozen=True)
class VirtualRecord:
    """What a recorder reads of a simulated run up to ``end_ns``; ``seed`` is of its delays."""

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
        return _truncate(self.played, self.end_ns)

    @cached_property
    def streams(self) -> dict[StreamKind, Columns]:
        """The columns of every recorded file, as a recorder would have written them."""
        played, timeline = self.played, self.timeline
        slow = poll(played.unit, timeline, self._due_ns(_SLOW_HZ), _SLOW)
        same = np.ones(len(slow["t_ns"]))
        slow["enforced_limit_w"] = same * played.controls.limit_w
        slow["memory_used_b"] = same * played.workload.step.memory_b
        streams = {
            StreamKind.FAST: poll(
                played.unit, timeline, self._due_ns(self.rate_hz), POWER_AND_ENERGY
            ),
            StreamKind.BUFFER: self._samples(),
            StreamKind.SLOW: slow,
        }
        return {
            kind: {name: array.astype(typecode(name), copy=False) for name, array in table.items()}
            for kind, table in streams.items()
        }

    @cached_property
    def spans(self) -> SpanTable:
        """The spans as they are read back; those still open at the end are not closed."""
        played = [self.played.spans[name] for name in _SPANS]
        begun = [int(np.searchsorted(spans.start_ns, self.end_ns)) for spans in played]
        start_ns, end_ns = (
            np.concatenate([getattr(s, end)[:n] for s, n in zip(played, begun, strict=True)])
            for end in ("start_ns", "end_ns")
        )
        name = np.repeat(np.arange(len(_SPANS)), begun)
        index = np.concatenate([np.arange(n) for n in begun])
        index[name == _SPANS.index("training")] = written.NONE
        total = np.full(len(name), written.NONE)
        total[name == _SPANS.index("epoch")] = self.played.workload.epochs
        pid = np.zeros(len(name), np.int64)
        closed = end_ns <= self.end_ns
        last_ns = max(start_ns.max(initial=0), end_ns[closed].max(initial=0))
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
        """The driver's buffer of power samples, none of them lost, at whole microseconds."""
        unit, timeline = self.played.unit, self.timeline
        bounds_ns = np.array([timeline.start_ns, timeline.end_ns])
        first, last = sensor.last_power_tick(unit, bounds_ns)
        ticks = np.arange(first + 1, last + 1)
        return {
            "t_ns": sensor.power_tick_ns(unit, ticks) // NS_PER_US * NS_PER_US,
            "power_w": sensor.power_at_ticks(unit, timeline, ticks, sensor.INSTANT),
        }


def write(run: Path, record: VirtualRecord, **about: Any) -> RunResult:
    """Fill the directory of a run and analyse it; ``about`` are further fields of its manifest.

    Nothing waits for the disk, since the run can be simulated again. The manifest is written last:
    without one, there is no run.
    """
    (run / TRACE).mkdir()
    (run / MARKS).mkdir()
    for kind, columns in record.streams.items():
        table = pa.Table.from_pydict(columns, schema=schema(tuple(columns)))
        where = partial(stream_path, run, record.device.info.key, kind)
        if table.num_rows > _PACKED_ROWS:
            write_packed(where(PACKED), [table])
        else:
            write_stream(where(STREAM), table)
    (run / MARKS / f"0-{record.start_ns}.marks").write_bytes(_marks(record))
    (run / PROCESSES).write_text(_processes(record), "utf-8")
    write_final_checksums(run, durable=False)
    manifest = _manifest(run, record, **about)
    write_manifest(run, manifest, durable=False)
    streams = {kind: ArrayStream(columns) for kind, columns in record.streams.items()}
    result = analyse(
        run,
        manifest,
        open_stream=lambda _, kind: streams.get(kind),
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
    """The manifest of a run that begins now, and lasts as long as it does in virtual time."""
    timeline, key = record.timeline, record.device.info.key
    now_ns = time.time_ns()
    command = CommandRecord(0, arguments, record.start_ns, record.end_ns, record.exit_code)
    streams = {f"{key}{kind.value}": _summarise(each) for kind, each in record.streams.items()}
    return Manifest(
        id=run.name,
        commands=(command,),
        rate_hz=record.rate_hz,
        wall_start_ns=now_ns,
        monotonic_start_ns=timeline.start_ns,
        devices=(record.device,),
        recorder=replace(recorder, lanes=streams, saved_wall_ns=now_ns),
        state="complete",
        wall_end_ns=now_ns + timeline.end_ns - timeline.start_ns,
        monotonic_end_ns=timeline.end_ns,
        exit_code=record.exit_code,
        **about,
    )


def describe_host() -> dict[str, Any]:
    """The fields that all manifests which this process writes have in common."""
    return {
        "cwd": working_directory(),
        "boot_id": boot_id(),
        "recorder": RecorderRecord.of_this_process(),
        "host": {"name": HOST, "simulated_on": platform.node()},
    }


def _summarise(columns: Columns) -> dict[str, Any]:
    """What a recorder says of one of its files."""
    t_ns, values = columns["t_ns"], columns.get("power_w", columns["t_ns"])
    changes = int(np.count_nonzero(np.diff(values)))
    lasted_s = max(int(t_ns[-1] - t_ns[0]), 1) / NS_PER_S
    return {
        "rows": len(t_ns),
        "new_values": changes + 1,
        "effective_hz": round(changes / lasted_s, 4),
        "rate_hz": round((len(t_ns) - 1) / lasted_s, 4),
        "missed": 0,
    }


def _marks(record: VirtualRecord) -> bytes:
    """The marks of the spans, as the hooks in a program would have written them."""
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
    """The processes on the GPU: the simulated training, from its start to its end."""
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

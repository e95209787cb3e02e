"""Run directories made of known courses of power, as the recorder would have written them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from joulewise.data import DeviceInfo, Kind, SensorProfile, Source, Unavailable
from joulewise.hooks.marks import Marks
from joulewise.store.arrow_stream import schema
from joulewise.store.layout import MARKS, PROCESSES, STREAM, TRACE, StreamKind, stream_path
from joulewise.store.manifest import (
    CommandRecord,
    Manifest,
    RecordedDevice,
    RecorderRecord,
    write_manifest,
)

S = 10**9
START = 1_000 * S
PID = 4242
KINDS = {kind.value: kind for kind in Kind}


def device(key, *, measured=("power_w", "energy_j"), source=Source.MEASURED, **changed):
    kind = KINDS[key.rstrip("0123456789")]
    info = {"vendor": "nvidia" if kind is Kind.GPU else "", "contains": ()}
    info |= {name: changed.pop(name) for name in tuple(changed) if name in info}
    card = (
        SensorProfile(0.02, 0.01, 0.005, 0.02)
        if kind is Kind.GPU
        else SensorProfile(0.1, gain_sigma=0.3)
    )
    defaults = {
        "info": DeviceInfo(key, kind, f"made-up {key}", f"uid-{key}", **info),
        "sources": dict.fromkeys(measured, source),
        "card": card,
        "maximum_w": 300.0 if kind is Kind.GPU else None,
        "unavailable": None if measured else Unavailable("it is lost", "reset it"),
    }
    return RecordedDevice(**{**defaults, **changed})


@dataclass
class MadeRun:
    """Ten seconds of one command unless told otherwise; a device's power is ``power_w(t_s)``."""

    path: Path
    devices: list = field(default_factory=list)
    seconds: float = 10.0
    lead_s: float = 1.0
    tail_s: float = 0.5
    hz: float = 50.0
    notes: list = field(default_factory=list)

    def __post_init__(self):
        (self.path / TRACE).mkdir(parents=True)
        (self.path / MARKS).mkdir()

    def times_s(self, hz):
        return np.arange(-self.lead_s, self.seconds + self.tail_s, 1 / hz)

    def fast(self, recorded, power_w, *, lost=(), counter_lost=(), until_s=np.inf):
        """Both lanes of a device: ``lost`` and ``counter_lost`` are stretches without an answer."""
        self.devices.append(recorded)
        t_s = self.times_s(self.hz)
        t_s = t_s[t_s <= until_s]
        watts = np.array([power_w(t) for t in t_s], float)
        joules = 5_000 + np.concatenate([[0], np.cumsum(watts[1:] * np.diff(t_s))])
        columns = {"t_ns": START + np.round(t_s * S).astype(np.int64)}
        # The counter was read with the reading before: it counts up to the time of the row.
        for name, values in (("energy_j", joules), ("power_w", watts)):
            if name in recorded.sources:
                gone = lost if name == "power_w" else (*lost, *counter_lost)
                unread = [(t_s >= start_s) & (t_s < end_s) for start_s, end_s in gone]
                columns[name] = np.where(
                    np.any([np.zeros(len(t_s), bool), *unread], axis=0), np.nan, values
                )
        self.lane(recorded.info.key, StreamKind.FAST, columns)
        return self

    def slow(self, key, offset_s=0.0, **columns):
        """One row a second; a column is a function of the time."""
        t_s = self.times_s(1.0) + offset_s
        result = {name: np.array([value(t) for t in t_s], float) for name, value in columns.items()}
        t_ns = START + np.round(t_s * S).astype(np.int64)
        self.lane(key, StreamKind.SLOW, {"t_ns": t_ns, **result})
        return self

    def lane(self, key, lane, columns):
        shape = schema(tuple(columns))
        arrays = [
            pa.array(values.astype(field.type.to_pandas_dtype()), from_pandas=True)
            for field, values in zip(shape, columns.values(), strict=True)
        ]
        with pa.ipc.new_stream(stream_path(self.path, key, lane, STREAM), shape) as stream:
            stream.write_batch(pa.record_batch(arrays, schema=shape))

    def processes(self, key, *sightings):
        """``(t_s, [(pid, name, ours), …])`` for each change."""
        with (self.path / PROCESSES).open("a") as file:
            for t_s, held in sightings:
                listed = [{"pid": pid, "name": name, "ours": ours} for pid, name, ours in held]
                result = {"t_ns": START + round(t_s * S), "device": key, "processes": listed}
                file.write(json.dumps(result) + "\n")
        return self

    def spans(self, *spans):
        """``(name, index, start_s, end_s)``, in any order."""
        marks = Marks(self.path / MARKS)
        for name, index, start_s, end_s in spans:
            marks.whole(name, START + round(start_s * S), START + round(end_s * S), index)
        return self

    def write(self, **changed):
        end_ns = START + round(self.seconds * S)
        command = CommandRecord(PID, ("python", "train.py"), START, end_ns, 0, 1.5)
        before_ns, after_ns = round(self.lead_s * S), round(self.tail_s * S)
        defaults = {
            "id": self.path.name,
            "commands": (command,),
            "cwd": "/home/me",
            "rate_hz": self.hz,
            "wall_start_ns": 1_800_000_000 * S,
            "monotonic_start_ns": START - before_ns,
            "wall_end_ns": 1_800_000_000 * S + end_ns - START + before_ns + after_ns,
            "monotonic_end_ns": end_ns + after_ns,
            "boot_id": "made-up",
            "devices": tuple(self.devices),
            "recorder": RecorderRecord(4243, 1, 0.2),
            "state": "complete",
            "exit_code": 0,
            "notes": tuple(self.notes),
        }
        write_manifest(self.path, Manifest(**{**defaults, **changed}))
        return self.path

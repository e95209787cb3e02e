"""Damage to the files of a run: which devices it concerns, and rows that are impossible.

Checksums tell which files are not as they were written (``record.checksums``), and readers then
take what lies before the damage. A run of an earlier version has no checksums, and one that was
killed may have none of its last write: there rows are left out whose times are out of order or
outside the run. Either way the energy of the device is a lower bound, and a warning names the file.

Values that no such device can have count as not read in a file without a checksum, whether they
are a sensor's fault or a flipped bit; another warning says so. The energy is then no lower bound:
the counter, or the readings around them, tell of that time. In a file whose checksum is right,
values are what the sensor gave, and stay unless they are infinite.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from joulewise.analyse.chunks import ArrayStream, Bools, ChunkReader, Columns, Floats, Indices, Ints
from joulewise.data import QualityWarning, Quantity, RunResult, WarningCode
from joulewise.store.arrow_stream import TIME
from joulewise.store.checksums import (
    damaged_files,
    find_damage,
    is_verified,
    read_checksums,
)
from joulewise.store.layout import CHECKSUM_LOG, CHECKSUMS, MARKS, MISSES, PROCESSES, StreamKind
from joulewise.store.manifest import Manifest, RecordedDevice
from joulewise.store.runs import RECORDING, status
from joulewise.store.trace import find_stream_damage, open_device_stream, stream_file
from joulewise.units import NS_PER_S

HINT: Final = "restore the file from a copy if there is one; what is missing is not zero"

# A row is read within the recording; a recorder that was stopped for a moment writes the last ones
# a little after it noted its end. Chosen; more would let more of what a flipped bit makes pass.
_AROUND_NS: Final = 10 * NS_PER_S
# A driver's buffer holds samples of a minute; those of a device that slept may be older (chosen).
_BUFFERED_NS: Final = 3_600 * NS_PER_S
# A recorder saves run.json every 30 s: one that was killed wrote no row much later than that.
_SAVED_NS: Final = 120 * NS_PER_S

# Readings are means over 20 ms and more, and pass the limit of a board by tens of percent, not by
# three times. For a board without a known limit it is more than any node draws.
_MAX_OVER_FACTOR: Final = 3.0
_MAX_W: Final = 100_000.0
# Of any other quantity: joules since the driver was loaded, bytes, bits.
_MAX_VALUE: Final = 1e15
# Of utilisations, with a rounding; a fan may turn faster than its 100 % (NVML).
_MAX_PCT: Final = 100.0 * 1.01
_TEMPERATURES_C: Final = (-100.0, 300.0)
# Of the narrower type of columns, float32.
_MAX_FINITE: Final = float(np.finfo(np.float32).max)
_IMPLAUSIBLE_HINT: Final = (
    "nothing if they are few: the energy counter, or the readings around them, cover that time; "
    "otherwise see the driver's log"
)

_Limits = Mapping[str, tuple[float, float]]
"""By column the least and the greatest value that can be."""


@dataclass(frozen=True)
class FileDamage:
    """A file of a run of which a part cannot be used; of a stream also whose it is."""

    file: str
    reason: str
    device: str | None = None
    stream: StreamKind | None = None

    @property
    def is_of_energy(self) -> bool:
        """Whether joules of its device come from it."""
        return self.stream is StreamKind.FAST

    @property
    def message(self) -> str:
        return f"{self.file} is damaged: {self.reason}"

    @property
    def warning(self) -> QualityWarning:
        """Of a result that is computed from what is left."""
        return QualityWarning(
            WarningCode.DAMAGED, f"{self.message}; {self._effect}", HINT, self.device
        )

    @property
    def _effect(self) -> str:
        if self.is_of_energy:
            return "the energy is that of the rest, and a lower bound"
        if self.stream is not None:
            return "the sensor readings in it are missing or incomplete"
        effects = {
            PROCESSES: "which GPUs the command used may be wrong",
            MISSES: "deadlines that the recorder missed may be unknown",
            CHECKSUMS: "damage to other files may not be found",
            CHECKSUM_LOG: "damage to other files may not be found",
        }
        return effects.get(self.file, "spans and logged figures in it may be missing")


def note_damaged_marks(run: Path, result: RunResult) -> RunResult:
    """The result with a warning for each file of marks that was damaged since it was stored.

    Logged figures are read from these files whenever they are shown.
    """
    known = {warning.message for warning in result.warnings}
    names = (name for name in read_checksums(run).files if name.startswith(f"{MARKS}/"))
    bounds = (find_damage(run, run / name) for name in names)
    found = (FileDamage(each.file, each.reason).warning for each in bounds if each is not None)
    new = tuple(warning for warning in found if warning.message not in known)
    return replace(result, warnings=(*result.warnings, *new)) if new else result


def is_about_marks(warning: QualityWarning) -> bool:
    """Whether a warning of damage is of a file of marks, so that spans may be missing."""
    return f"{MARKS}/" in warning.message


@dataclass(frozen=True)
class ImplausibleReadings:
    """Values in a file of a stream that no such device can have; by column how many."""

    file: str
    device: str
    stream: StreamKind
    counts: Mapping[str, int]

    @property
    def message(self) -> str:
        counts = ", ".join(f"{count} of {name}" for name, count in self.counts.items())
        return f"{self.file} has values that are impossible for the device: {counts}"

    @property
    def warning(self) -> QualityWarning:
        return QualityWarning(
            WarningCode.IMPLAUSIBLE,
            f"{self.message}; they count as not read",
            _IMPLAUSIBLE_HINT,
            self.device,
        )


@dataclass(frozen=True)
class _OpenedStream:
    """``time_fault`` says what is wrong with times, ``implausible`` counts values by column."""

    rows: ChunkReader | None
    time_fault: str = ""
    implausible: Mapping[str, int] = field(default_factory=dict)


class SoundStreams:
    """Opens the streams of a run (an ``OpenStream``) without what is damaged or cannot be."""

    def __init__(self, run: Path, manifest: Manifest) -> None:
        self._run, self._manifest = run, manifest
        self._devices = {device.info.key: device for device in manifest.devices}
        self._opened: dict[tuple[str, StreamKind], _OpenedStream] = {}

    def __call__(self, key: str, stream: StreamKind) -> ChunkReader | None:
        return self._open(key, stream).rows

    def find_damage(self) -> tuple[FileDamage, ...]:
        """Of all files of the run; each is read once for it."""
        found = [
            damage
            for key, stream in self._streams()
            if (damage := self.find_stream_damage(key, stream)) is not None
        ]
        streams = {damage.file for damage in found}
        others = (damage for damage in damaged_files(self._run) if damage.file not in streams)
        return (*found, *(FileDamage(bounds.file, bounds.reason) for bounds in others))

    def find_implausible(self) -> tuple[ImplausibleReadings, ...]:
        """In all streams of the run."""
        return tuple(
            ImplausibleReadings(self._file_name(key, stream), key, stream, counts)
            for key, stream in self._streams()
            if (counts := self._open(key, stream).implausible)
        )

    def find_warnings(self) -> tuple[QualityWarning, ...]:
        """What a result says of damaged files and implausible readings."""
        damage = (bounds.warning for bounds in self.find_damage())
        return (*damage, *(bounds.warning for bounds in self.find_implausible()))

    def find_stream_damage(self, key: str, stream: StreamKind) -> FileDamage | None:
        damage = find_stream_damage(
            self._run,
            key,
            stream,
            is_ended=_has_ended_in_order(self._manifest),
            rows=_written_rows(self._manifest, key, stream),
        )
        if damage is not None:
            return FileDamage(damage.file, damage.reason, key, stream)
        reason = self._open(key, stream).time_fault
        return FileDamage(self._file_name(key, stream), reason, key, stream) if reason else None

    def is_damaged(self, key: str) -> bool:
        """Whether joules of the device rest on a damaged file."""
        return self.find_stream_damage(key, StreamKind.FAST) is not None

    def _streams(self) -> Iterator[tuple[str, StreamKind]]:
        for key, device in self._devices.items():
            if device.sources:
                yield from ((key, stream) for stream in StreamKind)

    def _file_name(self, key: str, stream: StreamKind) -> str:
        return stream_file(self._run, key, stream).relative_to(self._run).as_posix()

    def _open(self, key: str, stream: StreamKind) -> _OpenedStream:
        if (key, stream) not in self._opened:
            rows = open_device_stream(self._run, key, stream)
            self._opened[key, stream] = (
                _OpenedStream(None) if rows is None else self._without_impossible(rows, key, stream)
            )
        return self._opened[key, stream]

    def _without_impossible(self, rows: ChunkReader, key: str, stream: StreamKind) -> _OpenedStream:
        bounds_ns: tuple[int, int] | None = None
        if is_verified(self._run, stream_file(self._run, key, stream)):
            limits: _Limits = {
                name: (-_MAX_FINITE, _MAX_FINITE) for name in rows.columns if name != TIME
            }
        else:
            low_ns, high_ns = time_bounds_ns(self._manifest)
            is_buffer = stream not in {StreamKind.FAST, StreamKind.SLOW}
            bounds_ns = (low_ns - _BUFFERED_NS if is_buffer else low_ns, high_ns)
            limits = _limits(rows.columns, self._devices.get(key))
        names = (TIME, *limits)
        if all(_is_possible(chunk, bounds_ns, limits) for chunk in _linked(rows, names)):
            return _OpenedStream(rows)
        chunks = list(rows.chunks(rows.columns))
        columns = {
            name: np.concatenate([bounds[name] for bounds in chunks]) for name in rows.columns
        }
        return _cleaned(columns, bounds_ns, limits)


def time_bounds_ns(manifest: Manifest) -> tuple[int, int]:
    """Between which times (CLOCK_MONOTONIC) all that was recorded of a run lies."""
    starts_ns = [command.start_ns for command in manifest.commands]
    low_ns = min([manifest.monotonic_start_ns, *starts_ns]) - _AROUND_NS
    ends_ns = [command.end_ns for command in manifest.commands if command.end_ns is not None]
    if manifest.monotonic_end_ns is not None:
        return low_ns, max([manifest.monotonic_end_ns, *ends_ns]) + _AROUND_NS
    recorder = manifest.recorder
    is_clock_set = any(note.get("code") == WarningCode.CLOCK_SET.value for note in manifest.notes)
    if status(manifest) == RECORDING or recorder is None or is_clock_set:
        return low_ns, int(np.iinfo(np.int64).max)
    saved_ns = manifest.monotonic_start_ns + recorder.saved_wall_ns - manifest.wall_start_ns
    return low_ns, max([saved_ns, *starts_ns, *ends_ns]) + _SAVED_NS


def _has_ended_in_order(manifest: Manifest) -> bool:
    """Whether the recorder wrote all that it read: then a file cannot end in the middle."""
    codes = {note.get("code") for note in manifest.notes}
    cut = {WarningCode.RECORDER_ENDED.value, WarningCode.NOT_STORED.value}
    return manifest.state != RECORDING and not codes & cut


def _written_rows(manifest: Manifest, key: str, stream: StreamKind) -> int | None:
    written = manifest.recorder.lanes if manifest.recorder else {}
    rows = written.get(f"{key}{stream.value}", {}).get("rows")
    return rows if isinstance(rows, int) else None


def _limits(columns: tuple[str, ...], device: RecordedDevice | None) -> _Limits:
    """From what to what the values of each column can be."""
    most_w = device.maximum_w if device is not None else None
    watts = (0.0, _MAX_OVER_FACTOR * most_w if most_w else _MAX_W)
    limits = {}
    for name in columns:
        if name.endswith("_w"):
            limits[name] = watts
        elif name == Quantity.TEMPERATURE.value:
            limits[name] = _TEMPERATURES_C
        elif name == Quantity.ENERGY.value:
            limits[name] = (-_MAX_VALUE, _MAX_VALUE)  # a counter begins anywhere
        elif name != TIME:
            is_share = name.endswith("_pct") and name != Quantity.FAN.value
            limits[name] = (0.0, _MAX_PCT if is_share else _MAX_VALUE)
    return limits


def _linked(rows: ChunkReader, names: tuple[str, ...]) -> Iterator[Columns]:
    """The chunks of a stream, each with the last row of the one before it."""
    last: Columns = {}
    for chunk in rows.chunks(names):
        yield {
            name: np.concatenate([last[name], values]) if last else values
            for name, values in chunk.items()
        }
        last = {name: values[-1:] for name, values in chunk.items()}


def _is_possible(chunk: Columns, bounds_ns: tuple[int, int] | None, limits: _Limits) -> bool:
    """Whether all rows are possible; with ``bounds_ns`` of None, times are known to be right."""
    t_ns = chunk[TIME]
    if not len(t_ns):
        return True
    if bounds_ns is not None:
        low_ns, high_ns = bounds_ns
        if t_ns[0] < low_ns or t_ns[-1] > high_ns or (t_ns[1:] < t_ns[:-1]).any():
            return False
    return not any(_impossible(chunk[name], limits[name]).any() for name in limits)


def _impossible(values: Floats, limits: tuple[float, float]) -> Bools:
    """Which values cannot be; NaN is what was not read."""
    low, high = limits
    return np.asarray((values < low) | (values > high))


def _cleaned(columns: Columns, bounds_ns: tuple[int, int] | None, limits: _Limits) -> _OpenedStream:
    """The rows in order and within the run, NaN for values that cannot be; and what was found."""
    rows, time_fault = len(columns[TIME]), ""
    if bounds_ns is not None:
        t_ns = columns[TIME]
        within = np.flatnonzero((t_ns >= bounds_ns[0]) & (t_ns <= bounds_ns[1]))
        keep = within[longest_ascent(t_ns[within])]
        columns = {name: values[keep] for name, values in columns.items()}
        if dropped := rows - len(keep):
            time_fault = f"{dropped} of {rows} rows have times out of order or outside the run"
    else:
        columns = dict(columns)
    implausible = {}
    for name, bounds in limits.items():
        is_wrong = _impossible(columns[name], bounds)
        if is_wrong.any():
            columns[name] = np.where(is_wrong, np.nan, columns[name])
            implausible[name] = int(is_wrong.sum())
    stream = ArrayStream(columns) if len(columns[TIME]) else None
    return _OpenedStream(stream, time_fault, implausible)


def longest_ascent(values: Ints) -> Indices:
    """The positions of a longest subsequence that never descends (patience sorting).

    What is left out is the least that has to be: one row whose time is wrong goes, and not all
    rows after it.
    """
    if not (values[1:] < values[:-1]).any():
        return np.arange(len(values))
    tails: list[int] = []
    at: list[int] = []
    before = np.full(len(values), -1, np.intp)
    for i, value in enumerate(values.tolist()):
        rank = bisect_right(tails, value)
        before[i] = at[rank - 1] if rank else -1
        tails[rank : rank + 1], at[rank : rank + 1] = [value], [i]
    chosen = [at[-1]]
    while before[chosen[-1]] >= 0:
        chosen.append(int(before[chosen[-1]]))
    return np.array(chosen[::-1], np.intp)

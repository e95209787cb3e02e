"""The streams, spans and logged figures of a run as tables of one shape, a piece at a time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from joulewise.analyse.chunks import Array, Bools, Floats, OpenStream
from joulewise.analyse.damage import SoundStreams
from joulewise.analyse.device_energy import bounded_energy
from joulewise.analyse.energy.load_steps import load_marks
from joulewise.analyse.energy.windows import WindowEnergy, gain_error, source_of
from joulewise.analyse.run_spans import end_open_spans, is_cut_off, read_sound_spans
from joulewise.analyse.time_intervals import TimeInterval
from joulewise.data import Energy, RunResult, Source, Span, Use
from joulewise.hooks.marks import NONE
from joulewise.store.arrow_stream import schema as lane_schema
from joulewise.store.layout import StreamKind
from joulewise.store.logged_values import LoggedValue
from joulewise.store.manifest import Manifest, RecordedDevice
from joulewise.store.spans import SpanTable
from joulewise.units import NS_PER_S

# Rows of one piece of a table: bounds the memory of an export (chosen).
_ROWS: Final = 1 << 16
_POWER: Final = (StreamKind.FAST, StreamKind.BUFFER)
_SUMMED: Final = ("energy_j", "error_sampling_j", "error_gain_j")
_WATTS: Final = ("mean_w", "peak_w", "counter_j", "integral_j")  # as in a Use
_NAME: Final = pa.dictionary(pa.int32(), pa.string())
_SPAN: Final = (
    ("name", _NAME),
    ("index", pa.int64()),
    ("start_s", pa.float64()),
    ("end_s", pa.float64()),
    ("pid", pa.int64()),
    ("closed", pa.bool_()),
)
_ENERGY: Final = tuple((name, pa.float64()) for name in _SUMMED)
_ORIGIN: Final = (("source", _NAME), ("at_least", pa.bool_()))
LOGGED: Final = pa.schema(
    [
        ("t_s", pa.float64()),
        ("t_ns", pa.int64()),
        ("name", _NAME),
        ("value", pa.float64()),
        ("epoch", pa.int64()),
    ]
)
SPANS: Final = pa.schema([*_SPAN, *_ENERGY, *_ORIGIN])
SPAN_DEVICES: Final = pa.schema(
    [*_SPAN, ("device", _NAME), *_ENERGY, *((name, pa.float64()) for name in _WATTS), *_ORIGIN]
)
Pieces = tuple[pa.Schema, Iterable[pa.Table]]
Figures = dict[str, "Array"]
"""Columns of equal length; NaN, and None of a source, is what is not known."""


def stream_table(
    open_stream: OpenStream, devices: Sequence[RecordedDevice], stream: StreamKind, origin_ns: int
) -> Pieces:
    """One stream of some devices, one after the other; ``t_s`` counts from ``origin_ns``."""
    keys = {device.info.key: _lane_source(device, stream) for device in devices}
    readers = {key: reader for key in keys if (reader := open_stream(key, stream))}
    columns = dict.fromkeys(name for reader in readers.values() for name in reader.columns)
    recorded = lane_schema(tuple(columns) or ("t_ns",))
    shape = pa.schema([("t_s", pa.float64()), ("device", _NAME), *recorded, ("source", _NAME)])

    def pieces() -> Iterator[pa.Table]:
        for key, reader in readers.items():
            for chunk in reader.chunks(reader.columns):
                t_s = (chunk["t_ns"] - origin_ns) / NS_PER_S
                cells = {"t_s": t_s, "device": _alike(key, len(t_s)), **chunk}
                cells["source"] = _alike(keys[key], len(t_s))
                yield _table(cells, shape, len(t_s))

    return shape, pieces()


def _lane_source(device: RecordedDevice, stream: StreamKind) -> str:
    """Power and energy may be modelled; whatever else a device tells is from a sensor."""
    read = Source.SIMULATED if device.is_simulated else Source.MEASURED
    return (read if stream is StreamKind.SLOW else next(iter(device.sources.values()), read)).value


def logged_table(logged: Sequence[LoggedValue], origin_ns: int) -> Pieces:
    """Each figure that the program logged; one that is not finite is null."""
    t_ns = np.array([each.t_ns for each in logged], np.int64)
    values = np.array([each.value for each in logged], np.float64)
    cells = {
        "t_s": (t_ns - origin_ns) / NS_PER_S,
        "t_ns": t_ns,
        "name": pa.array([each.name for each in logged], pa.string()).dictionary_encode(),
        "value": pa.array(values, mask=~np.isfinite(values)),
        "epoch": pa.array([each.epoch for each in logged], pa.int64()),
    }
    return LOGGED, [_table(cells, LOGGED, len(logged))] if logged else []


def span_table(
    run: Path, manifest: Manifest, result: RunResult, *, spans: SpanTable | None = None
) -> Pieces:
    """Every span once, with the energy of all devices that count.

    Spans that the result has are as it says, so that one span has one energy; a result has no more
    than some of thousands. ``at_least`` is true of every energy that does not stand for all of its
    span, also of one that is not known at all. Who has just read the ``spans`` passes them.
    """

    def pieces() -> Iterator[pa.Table]:
        span_figures = _open_figures(run, manifest, result, spans)
        if span_figures is None:
            return
        total = _Total(len(span_figures.spans))
        for device in manifest.devices:
            if device.info.key in result.counted:
                total.add(span_figures.of_device(device))
        yield from _span_rows(span_figures, SPANS, {}, span_figures.of_total(total))

    return SPANS, pieces()


def span_device_table(
    run: Path,
    manifest: Manifest,
    result: RunResult,
    only: Collection[str] = (),
    *,
    spans: SpanTable | None = None,
) -> Pieces:
    """Every span on every device that counts, one device after the other, as in :func:`span_table`.

    There is no total among the rows and no device that the total leaves out, so that they may be
    added up. ``only`` names the devices that are wanted instead, whether they count or not.
    """
    wanted = only or result.counted
    devices = [one for one in manifest.devices if one.info.key in wanted]

    def pieces() -> Iterator[pa.Table]:
        span_figures = _open_figures(run, manifest, result, spans)
        if span_figures is None:
            return
        for device in devices:
            figures = span_figures.of_device(device)
            key = {"device": device.info.key}
            yield from _span_rows(span_figures, SPAN_DEVICES, key, figures)

    return SPAN_DEVICES, pieces()


def _open_figures(
    run: Path, manifest: Manifest, result: RunResult, spans: SpanTable | None
) -> _SpanFigures | None:
    """None where nothing was marked."""
    whole = result.run.span
    read = read_sound_spans(run, manifest) if spans is None else spans
    ended = end_open_spans(read, manifest, TimeInterval(whole.start_ns, whole.end_ns))
    return _SpanFigures(run, manifest, result, ended) if len(ended) else None


class _SpanFigures:
    """The figures of all spans of a run: from its result, and computed where it has none."""

    def __init__(self, run: Path, manifest: Manifest, result: RunResult, spans: SpanTable) -> None:
        self._open_stream, self.spans = SoundStreams(run, manifest), spans
        self.origin_ns = result.run.span.start_ns
        stored = {_identity(one.span): one for one in result.spans}
        # No name is there in part, and of those with a million spans there are none.
        likely = np.flatnonzero(spans.is_named(*{one.span.name for one in result.spans}))
        matching = [stored.get(_identity(span)) for span in spans.where(likely)]
        self._stored = [one for one in matching if one is not None]
        self._is_stored = np.zeros(len(spans), bool)
        self._is_stored[likely] = [one is not None for one in matching]
        rest = spans.where(~self._is_stored)
        self._windows_ns = np.column_stack([rest.start_ns, rest.end_ns])
        self._goes_on = ~rest.ended & is_cut_off(manifest, result.state)
        self._marks_ns = load_marks(result.run.span, spans)

    def of_device(self, device: RecordedDevice) -> Figures:
        key = device.info.key
        uses = [one.devices.get(key, Use(None)) for one in self._stored]
        known = {
            **_energy_columns([use.energy for use in uses]),
            **{name: _floats(getattr(use, name) for use in uses) for name in _WATTS},
        }
        return self._merged(known, self._computed(device))

    def of_total(self, total: _Total) -> Figures:
        known = _energy_columns([one.total for one in self._stored])
        computed = total.figures()
        return self._merged(known, {name: computed[name][~self._is_stored] for name in known})

    def _computed(self, device: RecordedDevice) -> Figures:
        if not device.sources or not len(self._windows_ns):
            return _unread(len(self._windows_ns))
        fast, buffer = (self._open_stream(device.info.key, stream) for stream in _POWER)
        is_bound = self._goes_on | self._open_stream.is_damaged(device.info.key)
        parts = []
        for start in range(0, len(self._windows_ns), _ROWS):
            part = slice(start, start + _ROWS)
            energy, _, at_least = bounded_energy(
                device, fast, buffer, self._windows_ns[part], self._marks_ns
            )
            parts.append(_columns(energy, device, at_least | is_bound[part]))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _merged(self, known: Figures, computed: Figures) -> Figures:
        merged = {}
        for name, values in computed.items():
            merged[name] = np.empty(len(self.spans), values.dtype)
            merged[name][self._is_stored] = known[name]
            merged[name][~self._is_stored] = values
        return merged


class _Total:
    """Sums the figures of devices; null where none is known."""

    def __init__(self, spans: int) -> None:
        self._sums = np.zeros((3, spans))
        self._sources = np.full(spans, "", object)
        self._at_least = np.zeros(spans, bool)

    def add(self, figures: Figures) -> None:
        energy_j, sampling_j, gain_j = (figures[name] for name in _SUMMED)
        known, matching = np.isfinite(energy_j), figures["source"]
        self._sums += np.where(known, [energy_j, sampling_j**2, gain_j**2], 0.0)
        same = (self._sources == "") | (self._sources == matching)
        merged = np.where(same, matching, Source.MIXED.value)
        self._sources = np.where(known, merged, self._sources)
        self._at_least |= figures["at_least"]

    def figures(self) -> Figures:
        unknown, sources = self._sources == "", self._sources.copy()
        sources[unknown] = None
        sums = np.where(unknown, np.nan, self._sums)
        parts = (sums[0], np.sqrt(sums[1]), np.sqrt(sums[2]))
        return {
            **dict(zip(_SUMMED, parts, strict=True)),
            "source": sources,
            "at_least": self._at_least | unknown,
        }


def _identity(span: Span) -> tuple[object, ...]:
    """What one span has in the result and among the marks; an open one ends later and later."""
    end_ns = span.end_ns if span.closed else None
    return span.name, span.index, span.pid, span.start_ns, end_ns


def _energy_columns(energies: Sequence[Energy | None]) -> Figures:
    return {
        "energy_j": _floats(None if one is None else one.value for one in energies),
        "error_sampling_j": _floats(
            None if one is None else one.error_sampling for one in energies
        ),
        "error_gain_j": _floats(None if one is None else one.error_gain for one in energies),
        "source": np.array([one and one.source.value for one in energies], object),
        "at_least": np.array([one is None or one.at_least for one in energies], bool),
    }


def _floats(values: Iterable[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _unread(rows: int) -> Figures:
    return {**_energy_columns([None] * rows), **{name: np.full(rows, np.nan) for name in _WATTS}}


def _columns(energy: WindowEnergy, device: RecordedDevice, at_least: Bools) -> Figures:
    counter, power = (source_of(device, counted=counted).value for counted in (True, False))
    known = np.isfinite(energy.energy_j)
    sources = np.where(np.isfinite(energy.counter_j), counter, power).astype(object)
    sources[~known] = None
    return {
        "energy_j": energy.energy_j,
        "error_sampling_j": np.where(known, energy.error_sampling_j, np.nan),
        "error_gain_j": gain_error(device) * np.abs(energy.energy_j),
        **{name: np.where(known, getattr(energy, name), np.nan) for name in _WATTS},
        "source": sources,
        "at_least": at_least | ~known,
    }


def _span_rows(
    span_figures: _SpanFigures, shape: pa.Schema, words: Mapping[str, str], figures: Figures
) -> Iterator[pa.Table]:
    """``words`` are the same in every row."""
    spans, origin_ns = span_figures.spans, span_figures.origin_ns
    names = pa.array(spans.names, pa.string())
    for start in range(0, len(spans), _ROWS):
        part = slice(start, start + _ROWS)
        part_spans = spans.where(np.arange(start, min(start + _ROWS, len(spans))))
        rows = len(part_spans)
        cells = {
            "name": pa.DictionaryArray.from_arrays(part_spans.name.astype(np.int32), names),
            "index": pa.array(part_spans.index, mask=part_spans.index == NONE),
            "start_s": (part_spans.start_ns - origin_ns) / NS_PER_S,
            "end_s": (part_spans.end_ns - origin_ns) / NS_PER_S,
            "pid": part_spans.pid,
            "closed": part_spans.closed,
            **{name: _alike(word, rows) for name, word in words.items()},
            **{name: values[part] for name, values in figures.items()},
        }
        yield _table(cells, shape, rows)


def _alike(text: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([text], pa.string()))


def _table(cells: dict[str, Any], shape: pa.Schema, rows: int) -> pa.Table:
    """What could not be read, and what a device lacks, is null."""
    arrays = [
        pa.array(cells[field.name], field.type, from_pandas=True)
        if field.name in cells
        else pa.nulls(rows, field.type)
        for field in shape
    ]
    return pa.Table.from_arrays(arrays, schema=shape)

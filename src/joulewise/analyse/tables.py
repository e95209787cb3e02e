"""A run's lanes and spans as tables of one shape, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from joulewise.analyse.energy import WindowEnergy, gain_error, source_of, window_energy
from joulewise.analyse.unread import across_faults
from joulewise.data import Source
from joulewise.hooks.marks import NONE
from joulewise.record.layout import Lane
from joulewise.record.manifest import RecordedDevice
from joulewise.record.marks import SpanTable
from joulewise.record.streams import schema as lane_schema
from joulewise.record.trace import open_lane
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROWS: Final = 1 << 16
_POWER: Final = (Lane.FAST, Lane.BUFFER)
_SUMMED: Final = ("energy_j", "error_sampling_j", "error_gain_j")
_NAME: Final = pa.dictionary(pa.int32(), pa.string())
SPANS: Final = pa.schema(
    [
        ("name", _NAME),
        ("index", pa.int64()),
        ("start_s", pa.float64()),
        ("end_s", pa.float64()),
        ("pid", pa.int64()),
        ("closed", pa.bool_()),
        ("device", _NAME),
        ("energy_j", pa.float64()),
        ("error_sampling_j", pa.float64()),
        ("error_gain_j", pa.float64()),
        ("mean_w", pa.float64()),
        ("peak_w", pa.float64()),
        ("counter_j", pa.float64()),
        ("integral_j", pa.float64()),
        ("source", _NAME),
    ]
)
Pieces = tuple[pa.Schema, Iterable[pa.Table]]


def lane_table(run: Path, keys: Sequence[str], lane: Lane, origin_ns: int) -> Pieces:
    """One lane of some devices, one after the other; ``t_s`` counts from ``origin_ns``."""
    readers = {key: reader for key in keys if (reader := open_lane(run, key, lane))}
    columns = dict.fromkeys(name for reader in readers.values() for name in reader.columns)
    told = lane_schema(tuple(columns) or ("t_ns",))
    shape = pa.schema([("t_s", pa.float64()), ("device", _NAME), *told])

    def pieces() -> Iterator[pa.Table]:
        for key, reader in readers.items():
            for chunk in reader.chunks(reader.columns):
                t_s = (chunk["t_ns"] - origin_ns) / NS_PER_S
                cells = {"t_s": t_s, "device": _alike(key, len(t_s)), **chunk}
                yield _table(cells, shape, len(t_s))

    return shape, pieces()


def span_table(
    run: Path,
    devices: Sequence[RecordedDevice],
    spans: SpanTable,
    origin_ns: int,
    counted: Sequence[str] = (),
) -> Pieces:
    """Every span on some devices, one after the other, and the total of those that count."""

    def pieces() -> Iterator[pa.Table]:
        windows_ns = np.column_stack([spans.start_ns, spans.end_ns])
        sums = np.zeros((3, len(spans)))
        sources = np.full(len(spans), "", object)
        for device in devices:
            if not device.sources or not len(spans):
                continue
            figures = _figures(run, device, windows_ns)
            yield from _span_rows(spans, origin_ns, device.info.key, figures)
            if device.info.key in counted:
                energy_j, sampling_j, gain_j = (figures[name] for name in _SUMMED)
                sums += [energy_j, sampling_j**2, gain_j**2]
                mine = figures["source"]
                same = (sources == "") | (sources == mine)
                sources = np.where(same, mine, Source.MIXED.value)
        if counted and len(spans):
            # As in a result: no total where one that counts could not be read.
            parts = (sums[0], np.sqrt(sums[1]), np.sqrt(sums[2]))
            sources[np.isnan(sums[0])] = None
            total = {**dict(zip(_SUMMED, parts, strict=True)), "source": sources}
            yield from _span_rows(spans, origin_ns, "total", total)

    return SPANS, pieces()


def _figures(
    run: Path, device: RecordedDevice, windows_ns: NDArray[np.int64]
) -> dict[str, NDArray[Any]]:
    fast, buffer = (open_lane(run, device.info.key, lane) for lane in _POWER)
    parts = []
    for start in range(0, len(windows_ns), _ROWS):
        part_ns = windows_ns[start : start + _ROWS]
        told = window_energy(device, fast, buffer, part_ns)
        told, _ = across_faults(told, fast, np.maximum(part_ns, device.awake_ns or 0))
        parts.append(_columns(told, device))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _columns(told: WindowEnergy, device: RecordedDevice) -> dict[str, NDArray[Any]]:
    counter, power = (source_of(device, counted=counted).value for counted in (True, False))
    known = np.isfinite(told.energy_j)
    sources = np.where(np.isfinite(told.counter_j), counter, power).astype(object)
    sources[~known] = None
    return {
        "energy_j": told.energy_j,
        "error_sampling_j": np.where(known, told.error_sampling_j, np.nan),
        "error_gain_j": gain_error(device) * np.abs(told.energy_j),
        "mean_w": told.mean_w,
        "peak_w": told.peak_w,
        "counter_j": told.counter_j,
        "integral_j": told.integral_j,
        "source": sources,
    }


def _span_rows(
    spans: SpanTable,
    origin_ns: int,
    device: str,
    figures: dict[str, NDArray[Any]],
) -> Iterator[pa.Table]:
    names = pa.array(spans.names, pa.string())
    for start in range(0, len(spans), _ROWS):
        part = slice(start, start + _ROWS)
        some = spans.where(np.arange(start, min(start + _ROWS, len(spans))))
        rows = len(some)
        cells = {
            "name": pa.DictionaryArray.from_arrays(some.name.astype(np.int32), names),
            "index": pa.array(some.index, mask=some.index == NONE),
            "start_s": (some.start_ns - origin_ns) / NS_PER_S,
            "end_s": (some.end_ns - origin_ns) / NS_PER_S,
            "pid": some.pid,
            "closed": some.closed,
            "device": _alike(device, rows),
            **{name: values[part] for name, values in figures.items()},
        }
        yield _table(cells, SPANS, rows)


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

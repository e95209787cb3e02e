"""A run's lanes and spans as tables of one shape, a piece at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from joulewise.analyse.energy import WindowEnergy, window_energy
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

_Z95: Final = 1.96
_ROWS: Final = 1 << 16
_POWER: Final = (Lane.FAST, Lane.BUFFER)
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
        sources = set()
        for device in devices:
            if not device.sources or not len(spans):
                continue
            fast, buffer = (open_lane(run, device.info.key, lane) for lane in _POWER)
            parts = [
                _figures(
                    window_energy(device, fast, buffer, windows_ns[start : start + _ROWS]), device
                )
                for start in range(0, len(spans), _ROWS)
            ]
            figures = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            source = _source(device)
            yield from _span_rows(spans, origin_ns, device.info.key, figures, source)
            if device.info.key in counted:
                energy_j, sampling_j, gain_j = list(figures.values())[:3]
                sums += [energy_j, sampling_j**2, gain_j**2]
                sources.add(source)
        if sources:
            total = {
                "energy_j": sums[0],
                "error_sampling_j": np.sqrt(sums[1]),
                "error_gain_j": np.sqrt(sums[2]),
            }
            source = sources.pop() if len(sources) == 1 else Source.MIXED.value
            yield from _span_rows(spans, origin_ns, "total", total, source)

    return SPANS, pieces()


def _figures(told: WindowEnergy, device: RecordedDevice) -> dict[str, NDArray[np.float64]]:
    return {
        "energy_j": told.energy_j,
        "error_sampling_j": told.error_sampling_j,
        "error_gain_j": _Z95 * device.card.gain_sigma * np.abs(told.energy_j),
        "mean_w": told.mean_w,
        "peak_w": told.peak_w,
        "counter_j": told.counter_j,
        "integral_j": told.integral_j,
    }


def _source(device: RecordedDevice) -> str:
    return (device.sources.get("energy_j") or next(iter(device.sources.values()))).value


def _span_rows(
    spans: SpanTable,
    origin_ns: int,
    device: str,
    figures: dict[str, NDArray[np.float64]],
    source: str,
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
            "source": _alike(source, rows),
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

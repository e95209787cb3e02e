"""The tables of a run's figures: records for the drawing, and the same as people read it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.report.tables import Column, Table
from joulewise.units import digits, prefixed

if TYPE_CHECKING:
    from numpy.typing import NDArray

Record = Mapping[str, float | str | None]
_SOME: Final = 3
_NOTHING: Final = digits(0.0)
_PREFIXES: Final = {"G": 1e9, "M": 1e6, "k": 1e3, "m": 1e-3}


def record_table(title: str, columns: Mapping[str, Column], records: Iterable[Record]) -> Table:
    """Each field of the records that has a column is a cell; the others are for the drawing."""
    told = tuple(records)
    rows = tuple(tuple(_cell(record.get(name)) for name in columns) for record in told)
    return Table(title, tuple(columns.values()), rows, told)


def columns_as_records(columns: Mapping[str, NDArray[Any]], **same: float | str) -> list[Record]:
    """A record for each place in arrays of one length."""
    names = list(columns)
    lists = [[finite(value) for value in columns[name].tolist()] for name in names]
    return [{**same, **dict(zip(names, row, strict=True))} for row in zip(*lists, strict=True)]


def thinned_records(columns: Mapping[str, NDArray[Any]], **same: float | str) -> list[Record]:
    """The same of readings, with six digits: no pixel shows more, and a page is half as large."""
    told = {name: np.array([float(f"{v:.6g}") for v in vs]) for name, vs in columns.items()}
    return columns_as_records(told, **same)


def finite(value: float | None) -> float | None:
    """None is what is not a number."""
    return None if value is None or not math.isfinite(value) else value


def known(records: Iterable[Record], *names: str) -> list[Record]:
    """Those in which all of these are."""
    return [record for record in records if all(record.get(name) is not None for name in names)]


def _cell(value: float | str | None) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) else digits(value)


def spread(values: Sequence[float], unit: str) -> str:
    """``14.8 kJ (standard deviation 0.03 kJ)``: the mean, and how far some of them scatter.

    Not written with ±, which everywhere is the half-width of a 95 % interval.
    """
    number, _, prefixed_unit = prefixed(mean(values), unit).rpartition(" ")
    per_unit = _PREFIXES.get(prefixed_unit.removesuffix(unit), 1.0)
    apart = digits(stdev(values) / per_unit) if len(values) >= _SOME else _NOTHING
    scatter = "" if apart == _NOTHING else f" (standard deviation {apart} {prefixed_unit})"
    return f"{number} {prefixed_unit}{scatter}"


def listed(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))

"""Tables of figures: one record for each mark, which the drawing and the reader share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from joulewise.metrics.result import Interval
from joulewise.report.settings_text import change
from joulewise.report.tables import Column, Table
from joulewise.report.views.sweep_tables import bounds
from joulewise.units import digits, prefixed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.analyse.curves.series import Average

Record = Mapping[str, float | str | None]

_TITLES: Final = {
    "t_s": "time",
    "mean_w": "mean power",
    "power_w": "mean power",
    "peak_w": "highest",
    "low": "lowest",
    "low_w": "lowest",
    "high": "highest",
    "high_w": "highest",
    "highest_w": "highest reading",
    "held_pct": "time at the limit",
    "power_limit_w": "limit",
    "error_j": "error (95 %)",
    "low_j": "low (95 %)",
    "high_j": "high (95 %)",
    "sigma_w": "std. dev.",
    "sigma_j": "std. dev.",
    "sigma_hz": "std. dev.",
    "least": "minimum",
    "q1": "lower quartile",
    "q3": "upper quartile",
    "most": "maximum",
    "time_ratio": "time vs ref.",
    "energy_ratio": "energy vs ref.",
    "pareto": "Pareto front",
    "preferred_by": "best by",
    "ratio": "vs ref.",
    "temperature_max_c": "highest",
    "sm_clock_mhz": "SM clock",
    "gpu_utilisation_pct": "utilisation",
    "held_down": "clocks reduced by",
    "memory_used_max_gib": "highest",
    "pcie_tx_mb_s": "PCIe sent",
    "pcie_rx_mb_s": "PCIe received",
    "load_max_pct": "highest",
    "lane": "stream",
    "rows": "readings",
    "count": "readings",
    "counted": "what",
    "cv_pct": "CV",
    "effective_hz": "new values",
    "longest_s": "longest interval",
    "interval_ms": "interval from",
    "end_ms": "to",
}
"""Headings of fields whose name, without its unit, is not a heading already."""

# Units by the suffix of a field's name; the longer of two suffixes comes first.
_UNITS: Final = {
    "_mb_s": "MB/s",
    "_j": "J",
    "_w": "W",
    "_s": "s",
    "_ms": "ms",
    "_pct": "%",
    "_hz": "Hz",
    "_mhz": "MHz",
    "_c": "°C",
    "_gib": "GiB",
    "_px": "px",
}
_MIN_FOR_DEVIATION: Final = 3  # values: the deviation of two says nothing that both do not
_ZERO: Final = digits(0.0)
_PREFIXES: Final = {"G": 1e9, "M": 1e6, "k": 1e3, "m": 1e-3}
# Significant digits of a thinned record: a plot of 1000 px shows three, and a page is half as large
# as with all 17.
_THINNED_DIGITS: Final = 6


def record_table(
    title: str,
    fields: str,
    records: Iterable[Mapping[str, Any]],
    *,
    titles: Mapping[str, str | Column] | None = None,
    **formats: Callable[[Any], str],
) -> Table:
    """A table with a row for each record and a column for each field, such as ``"t_s mean_w"``.

    Headings and units come from the names of the fields, except for ``titles``; texts are
    left-aligned. Other fields of the records are for the drawing only. ``formats`` turn values of
    a field into text; without one, a number has the digits of :func:`joulewise.units.digits`, and
    an Interval, which is three fields of the record, is a ratio that is shown as a change.
    """
    records, names = tuple(records), fields.split()
    columns = tuple(_column(name, (titles or {}).get(name), records) for name in names)
    rows = tuple(
        tuple(_cell(record.get(name), formats.get(name)) for name in names) for record in records
    )
    return Table(title, columns, rows, tuple(map(_expand_intervals, records)))


def _expand_intervals(record: Mapping[str, Any]) -> Record:
    expanded: dict[str, float | str | None] = {}
    for name, value in record.items():
        expanded |= bounds(name, value) if isinstance(value, Interval) else {name: value}
    return expanded


def _column(field: str, title: str | Column | None, records: Sequence[Mapping[str, Any]]) -> Column:
    if isinstance(title, Column):
        return title
    suffix = next((suffix for suffix in _UNITS if field.endswith(suffix)), "")
    title = title or _TITLES.get(field) or field.removesuffix(suffix).replace("_", " ")
    is_text = any(isinstance(record.get(field), str) for record in records)
    return Column(title, _UNITS.get(suffix, ""), right=not is_text)


def _cell(value: Any, form: Callable[[Any], str] | None) -> str | None:
    if value is None:
        return None
    if form is not None:
        return form(value)
    if isinstance(value, Interval):
        return change(value)
    return digits(value) if isinstance(value, float) else str(value)


def yes_or_empty(flag: int) -> str:
    """For fields that are 1 or 0."""
    return "yes" if flag else ""


def to_records(columns: Mapping[str, NDArray[Any]], **constant: float | str) -> list[Record]:
    """A record for each index of arrays of one length; None for what is not finite."""
    lists = [[finite(value) for value in values.tolist()] for values in columns.values()]
    return [
        {**constant, **dict(zip(columns, row, strict=True))} for row in zip(*lists, strict=True)
    ]


def to_thinned_records(
    columns: Mapping[str, NDArray[Any]], **constant: float | str
) -> list[Record]:
    """The same with six significant digits, for curves of hundreds of points."""
    rounded = {
        name: np.array([float(f"{value:.{_THINNED_DIGITS}g}") for value in values])
        for name, values in columns.items()
    }
    return to_records(rounded, **constant)


def average_columns(average: Average, field: str) -> dict[str, NDArray[Any]]:
    """Mean, standard deviation and band (mean ± deviation, not below 0) of curves over time.

    ``field`` names the mean, such as ``energy_j``; its unit is the suffix of the other fields.
    """
    unit = field.rpartition("_")[2]
    deviation = np.nan_to_num(average.sigma)
    return {
        "t_s": average.t_s,
        field: average.mean,
        f"sigma_{unit}": average.sigma,
        f"low_{unit}": np.maximum(average.mean - deviation, 0.0),
        f"high_{unit}": average.mean + deviation,
        "runs": average.count,
    }


def finite(value: float | None) -> float | None:
    """The value, or None where it is not a finite number."""
    return None if value is None or not math.isfinite(value) else value


def with_fields(records: Iterable[Record], *names: str) -> list[Record]:
    """The records in which none of these fields is None."""
    return [record for record in records if all(record.get(name) is not None for name in names)]


def mean_and_deviation(values: Sequence[float], unit: str) -> str:
    """``14.8 kJ (standard deviation 0.03 kJ)``; of fewer than three values only the mean.

    Not written with ±, which everywhere else is the half-width of a 95 % interval.
    """
    number, _, prefixed_unit = prefixed(mean(values), unit).rpartition(" ")
    per_unit = _PREFIXES.get(prefixed_unit.removesuffix(unit), 1.0)
    enough = len(values) >= _MIN_FOR_DEVIATION
    deviation = digits(stdev(values) / per_unit) if enough else _ZERO
    scatter = "" if deviation == _ZERO else f" (standard deviation {deviation} {prefixed_unit})"
    return f"{number} {prefixed_unit}{scatter}"


def join_words(words: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))

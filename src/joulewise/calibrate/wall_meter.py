"""The log of a wall meter: a CSV file with a column of times and one of watts, in any order."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Readings that a log needs; chosen: a line with a drift has three parameters.
FEWEST: Final = 20
_FORM_HINT: Final = "it needs two columns, such as: time,power_w"
# Unix times in ns, us, ms and s: the least number of each unit (the year 2001), and its seconds.
# Anything below is time since boot.
_UNIX: Final = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3), (1e9, 1.0))


@dataclass(frozen=True)
class Meter:
    """Power at the wall, at times of the monotonic clock, as far as the meter's clock is right."""

    t_s: NDArray[np.float64]
    power_w: NDArray[np.float64]


def read_meter(path: Path, wall_ahead_s: float, *, fewest: int = FEWEST) -> Meter:
    """Read a log of at least ``fewest`` readings; ``wall_ahead_s`` is wall less monotonic clock.

    Times are ISO 8601 (local where they name no zone), unix (s, ms, us or ns), or seconds of the
    monotonic clock (nanoseconds in a column whose name ends in ``_ns``).
    """
    rows = _rows(path)
    first, *rest = rows
    header = first if _number(first[1][-1]) is None else None
    names = [cell.strip().lower() for cell in header[1]] if header else []
    time_at = _column(names, ("time", "date", "stamp", "t_s", "t_ns", "monotonic"), 0)
    power_at = _column(names, ("power", "watt"), 1 if time_at == 0 else 0)
    name = names[time_at] if names else ""
    moments: list[tuple[float, float]] = []
    for line, cells in rest if header else rows:
        if len(cells) <= max(time_at, power_at):
            raise _wrong(path, line, "has too few columns")
        power_text, time_text = cells[power_at].strip(), cells[time_at].strip()
        if not power_text:
            continue
        power_w, t_s = _number(power_text), _parse_time(time_text, name, wall_ahead_s)
        if power_w is None:
            raise _wrong(path, line, f"has no power: {power_text[:20]!r}")
        if t_s is None:
            raise _wrong(path, line, f"has no time: {time_text[:30]!r}")
        moments.append((t_s, power_w))
    if len(moments) < fewest:
        few = f"{path} has {len(moments)} readings, too few"
        raise UsageError(few, f"log {fewest} or more while the GPU is loaded and while it is not")
    table = np.array(sorted(moments)).reshape(-1, 2)
    table = table[np.diff(table[:, 0], prepend=-math.inf) > 0]
    return Meter(table[:, 0], table[:, 1])


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    try:
        text = path.read_text("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "name the meter's CSV") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a text file", _FORM_HINT) from None
    lines = [(n, s) for n, s in enumerate(text.splitlines(), 1) if s.strip() and s[0] != "#"]
    if not lines:
        raise UsageError(f"{path} is empty", _FORM_HINT)
    separator = next((c for c in ";\t" if c in lines[0][1]), ",")
    rows = [(n, next(csv.reader([s], delimiter=separator))) for n, s in lines]
    if len(rows[0][1]) < 2:
        raise _wrong(path, rows[0][0], "has one column")
    return rows


def _column(names: Sequence[str], words: Sequence[str], otherwise: int) -> int:
    matching = (i for i, name in enumerate(names) if any(word in name for word in words))
    return next(matching, otherwise)


def _parse_time(text: str, name: str, wall_ahead_s: float) -> float | None:
    number = _number(text)
    if number is None:
        try:
            moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError:
            return None
        return moment.timestamp() - wall_ahead_s
    if name.endswith("_ns") and ("monotonic" in name or name == "t_ns"):
        return number / 1e9
    for least, seconds in _UNIX:
        if number >= least:
            return number * seconds - wall_ahead_s
    return number


def _number(text: str) -> float | None:
    try:
        value = float(text.strip().lower().removesuffix("w").replace(",", "."))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _wrong(path: Path, line: int, what: str) -> UsageError:
    return UsageError(f"{path}, line {line}: it {what}", _FORM_HINT)

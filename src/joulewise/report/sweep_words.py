"""Settings and ratios as a person says them."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Final

from joulewise.data.sweeps import CPU_LIMIT, MEM_CLOCK, POWER_LIMIT, SM_CLOCK, Setting, Value
from joulewise.metrics.result import Interval
from joulewise.report.figures import one_line

AXES: Final = {
    POWER_LIMIT: ("limit", "W"),
    SM_CLOCK: ("SM clock", "MHz"),
    MEM_CLOCK: ("memory clock", "MHz"),
    CPU_LIMIT: ("CPU limit", "W"),
}
"""What knobs are called, and their units."""

COUNTED: Final = {"gpu": "GPU", "node": "node", "wall": "wall"}
"""What boundaries are called."""

_PARTS: Final = {"gpu": "GPU", "rest": "CPU and memory"}
"""What the parts of a run's energy are called."""

_LONGEST: Final = 40
_LONGEST_SETTING: Final = 120


def setting_words(setting: Setting) -> str:
    """``150 W, SM 1200 MHz, batch_size 32``, whatever the command's own words are."""
    return one_line(str(setting), _LONGEST_SETTING)


def value_words(name: str, value: Value) -> str:
    """The value alone, for a column that has a heading."""
    if name not in AXES:
        return one_line(str(value), _LONGEST)
    return "unlocked" if value is None else f"{value:g}"


def simulated_words(parts: Collection[str]) -> str:
    """``GPU simulated``; empty of what was measured."""
    names = [name for part, name in _PARTS.items() if part in parts]
    return f"{', '.join(names)} simulated" if names else ""


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def settings_counted(settings: Collection[Setting], reference: Setting) -> str:
    """``7 settings``, and the reference where it is none of them."""
    beside = "" if reference in settings else " and the reference"
    return f"{counted(len(settings), 'setting')}{beside}"


def change(ratio: Interval | None) -> str | None:
    """A ratio to the reference as what is more or less: ``-26.4 % ± 0.3``."""
    if ratio is None:
        return None
    if not math.isfinite(ratio.mean):
        return "ruled out"
    percent = f"{100 * (ratio.mean - 1):+.1f} %"
    half = half_width(ratio)
    return percent if half is None else f"{percent} ± {100 * half:.1f}"


def more_or_less(ratio: Interval | None, what: str) -> str:
    """``12.3 ± 1.1 % less energy``; nothing where it is not known."""
    if ratio is None:
        return ""
    half = half_width(ratio)
    error = "" if half is None else f" ± {100 * half:.1f}"
    return f"{100 * abs(ratio.mean - 1):.1f}{error} % {'less' if ratio.mean < 1 else 'more'} {what}"


def half_width(interval: Interval) -> float | None:
    if interval.low is None or interval.high is None:
        return None
    return max(interval.high - interval.mean, interval.mean - interval.low)

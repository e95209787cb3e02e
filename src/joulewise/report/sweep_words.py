"""Settings and ratios as a person says them."""

from __future__ import annotations

import math
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

_PREFIXES: Final = {SM_CLOCK: "SM ", MEM_CLOCK: "memory ", CPU_LIMIT: "CPU "}
_LONGEST: Final = 40


def setting_words(setting: Setting) -> str:
    """``150 W, SM 1200 MHz, batch_size 32``."""
    return ", ".join(_words(name, value) for name, value in setting.values)


def value_words(name: str, value: Value) -> str:
    """The value alone, for a column that has a heading."""
    if name not in AXES:
        return one_line(str(value), _LONGEST)
    return "unlocked" if value is None else f"{value:g}"


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def change(ratio: Interval | None) -> str | None:
    """A ratio to the reference as what is more or less: ``-26.4 % ± 0.3``."""
    if ratio is None:
        return None
    if not math.isfinite(ratio.mean):
        return "ruled out"
    percent = f"{100 * (ratio.mean - 1):+.1f} %"
    half = half_width(ratio)
    return percent if half is None else f"{percent} ± {100 * half:.1f}"


def half_width(interval: Interval) -> float | None:
    if interval.low is None or interval.high is None:
        return None
    return max(interval.high - interval.mean, interval.mean - interval.low)


def _words(name: str, value: Value) -> str:
    if name not in AXES:
        return f"{name} {value_words(name, value)}"
    prefix = _PREFIXES.get(name, "")
    if value is None:
        return f"{prefix}as it is" if name in {POWER_LIMIT, CPU_LIMIT} else f"{prefix}unlocked"
    return f"{prefix}{value:g} {AXES[name][1]}"

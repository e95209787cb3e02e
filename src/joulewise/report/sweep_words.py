"""A setting as a person says it."""

from __future__ import annotations

from typing import Final

from joulewise.data.sweeps import CPU_LIMIT, MEM_CLOCK, POWER_LIMIT, SM_CLOCK, Setting, Value
from joulewise.report.figures import one_line

AXES: Final = {
    POWER_LIMIT: ("limit", "W"),
    SM_CLOCK: ("SM clock", "MHz"),
    MEM_CLOCK: ("memory clock", "MHz"),
    CPU_LIMIT: ("CPU limit", "W"),
}
"""What knobs are called, and their units."""

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


def _words(name: str, value: Value) -> str:
    if name not in AXES:
        return f"{name} {value_words(name, value)}"
    prefix = _PREFIXES.get(name, "")
    if value is None:
        return f"{prefix}as it is" if name in {POWER_LIMIT, CPU_LIMIT} else f"{prefix}unlocked"
    return f"{prefix}{value:g} {AXES[name][1]}"

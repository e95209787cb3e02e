"""What a lease is asked for, checked before a guardian hears of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real

from joulewise.data import Knob
from joulewise.devices import Device
from joulewise.errors import UsageError

Named = Device | str | int


def settings(given: Mapping[Knob, object]) -> dict[Knob, float]:
    """Those that are given, as numbers."""
    asked = {knob: _number(knob, value) for knob, value in given.items() if value is not None}
    if not asked:
        raise UsageError("a lease of nothing", "name a setting, such as power_limit_w=150")
    return asked


def devices(given: Named | Iterable[Named]) -> list[Device | str]:
    """Devices and names of devices; a number is a GPU's."""
    named = [given] if isinstance(given, str) or not isinstance(given, Iterable) else given
    asked = [_device(each) for each in named]
    if not asked:
        raise UsageError("a lease of no device", 'name one, such as "gpu0"')
    return asked


def _number(knob: Knob, value: object) -> float:
    if not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value):
        return float(value)
    unit = "watts" if knob.unit == "W" else knob.unit
    raise UsageError(f"{knob.value}={value!r} is no number", f"give {unit}, as a number")


def _device(each: object) -> Device | str:
    if not isinstance(each, bool) and isinstance(each, Integral):
        return f"gpu{each}"
    if isinstance(each, str | Device):
        return each
    raise UsageError(f"{each!r} is no device", 'name it by its key, such as "gpu0"')

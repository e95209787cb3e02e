"""What a knob takes, and from whom, in the same words for every device."""

from __future__ import annotations

import os

from joulewise.command.installed import program
from joulewise.data import KnobInfo, Unavailable
from joulewise.errors import OutOfRangeError


def check_in_range(device_key: str, info: KnobInfo, value: float) -> None:
    """Raise unless the knob takes ``value``; NaN is in no range."""
    inside = info.minimum <= value <= info.maximum
    if inside and (info.choices is None or value in info.choices):
        return
    knob = info.knob
    hint = f"it takes {info.minimum:g} to {info.maximum:g} {knob.unit}"
    if info.choices is not None and inside:
        below = max(choice for choice in info.choices if choice < value)
        above = min(choice for choice in info.choices if choice > value)
        hint += f", in steps: try {below:g} or {above:g}"
    raise OutOfRangeError(f"{device_key}'s {knob.label} cannot be {value:g} {knob.unit}", hint)


def for_root_only() -> bool | Unavailable:
    """A driver has no way to ask whether it would obey, and to try is to write."""
    if os.geteuid() == 0:
        return True
    return Unavailable("the driver lets only root turn it", by_root_or_the_service())


def by_root_or_the_service() -> str:
    return (
        f"run `sudo -E {program()} …`, or have an administrator set up the guard service: "
        "`joulewise guard --group NAME --unit` prints its systemd unit"
    )

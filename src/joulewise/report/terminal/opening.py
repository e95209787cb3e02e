"""The line before a command starts: devices, rate and run. Loaded by the front process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from joulewise.formatting import one_line
from joulewise.session.request import Ready
from joulewise.units import digits

# Characters of the line (chosen: one line of most terminals; doubled, it wraps in them).
_WIDTH: Final = 100
# Characters of a CPU's name and of other devices', tried in turn: a GPU's name matters more.
_LONGEST: Final = ((80, 80), (30, 80), (20, 80), (20, 30), (20, 20))


def opening(ready: Ready) -> str:
    """``8 x Tesla V100 (measured), …; 10 Hz; run ID``: equal devices are counted."""
    joins = "joining run" if ready.joined else "run"
    rate = f"{float(digits(ready.rate_hz)):g} Hz"  # without the zeros at its end
    line = f"{_devices(ready.devices)}; {rate}; {joins} {ready.run.name}"
    return (
        f"{line}, without its own {', '.join(ready.ignored_options)}"
        if ready.ignored_options
        else line
    )


def _devices(devices: Sequence[tuple[str, str, str]]) -> str:
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key, name, source in devices:
        alike[name, source].append(key)
    parts: list[str] = []
    # The longest names that fit on the line; else as many devices as fit.
    for cpu, other in _LONGEST:
        parts = [
            _part(keys, one_line(name, cpu if keys[0].startswith("cpu") else other), source)
            for (name, source), keys in alike.items()
        ]
        if len(", ".join(parts)) <= _WIDTH:
            return ", ".join(parts) or "no device that can be read"
    return _first(parts)


def _part(keys: Sequence[str], name: str, source: str) -> str:
    which = keys[0] if len(keys) == 1 else f"{len(keys)} x"
    return f"{which} {name} ({source or 'cannot be read'})"


def _first(parts: Sequence[str]) -> str:
    """As many devices as fit, and how many more there are."""
    lines = (
        f"{', '.join(parts[:number])} and {len(parts) - number} more"
        for number in range(len(parts) - 1, 0, -1)
    )
    return next(line for line in lines if len(line) <= _WIDTH)

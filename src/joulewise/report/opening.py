"""The one line before a command starts: what is measured, how, and under which name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from joulewise.session.request import Ready


def opening(ready: Ready) -> str:
    """Devices of one model and source as one, such as ``gpu0-7 Tesla V100 (measured)``."""
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key, name, source in ready.devices:
        alike[name, source].append(key)
    parts = [
        f"{_keys(keys)} {name} ({source or 'cannot be read'})"
        for (name, source), keys in alike.items()
    ]
    what = ", ".join(parts) or "no device that can be read"
    joins = "joining run" if ready.joined else "run"
    return f"{what}; {ready.rate_hz:g} Hz; {joins} {ready.run.name}"


def _keys(keys: Sequence[str]) -> str:
    if len(keys) < 3:
        return ", ".join(keys)
    kind = keys[0].rstrip("0123456789")
    numbers = sorted(int(key.removeprefix(kind)) for key in keys)
    whole = numbers == list(range(numbers[0], numbers[-1] + 1))
    return f"{keys[0]}-{numbers[-1]}" if whole else ", ".join(keys)

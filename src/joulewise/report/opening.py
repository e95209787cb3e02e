"""The one line before a command starts: what is measured, how, and under which name."""

from __future__ import annotations

from collections import defaultdict

from joulewise.session.request import Ready


def opening(ready: Ready) -> str:
    """Devices of one model and source as one, such as ``8 x Tesla V100 (measured)``."""
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key, name, source in ready.devices:
        alike[name, source].append(key)
    parts = [
        f"{keys[0] if len(keys) == 1 else f'{len(keys)} x'} {name} ({source or 'cannot be read'})"
        for (name, source), keys in alike.items()
    ]
    what = ", ".join(parts) or "no device that can be read"
    joins = "joining run" if ready.joined else "run"
    line = f"{what}; {ready.rate_hz:g} Hz; {joins} {ready.run.name}"
    return f"{line}, without its own {', '.join(ready.unheeded)}" if ready.unheeded else line

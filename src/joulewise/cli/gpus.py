"""GPUs by their numbers, as verbs take them."""

from __future__ import annotations

from joulewise.errors import UsageError


def numbers(gpus: str | None) -> tuple[int, ...]:
    if gpus is None:
        return ()
    parts = [part.strip().removeprefix("gpu") for part in gpus.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UsageError(f"{gpus!r} names no GPUs", "give their numbers, as in: --gpu 0,1")
    return tuple(int(part) for part in parts)

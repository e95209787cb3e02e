"""Which GPUs to simulate, from a text such as ``v100x2,a100``."""

from __future__ import annotations

from joulewise.errors import UsageError, did_you_mean

MOST = 64  # as in layout.h


def parse(text: str, boards: tuple[str, ...]) -> tuple[str, ...]:
    """One key of ``boards`` for each GPU, in order."""
    counts = [_count(part.strip(), boards) for part in text.split(",")]
    total = sum(count for _, count in counts)
    if total > MOST:
        raise UsageError(f"{total} GPUs are too many to simulate", f"ask for at most {MOST}")
    return tuple(key for key, count in counts for _ in range(count))


def _count(part: str, boards: tuple[str, ...]) -> tuple[str, int]:
    if part in boards:
        return part, 1
    key, _, count = part.rpartition("x")
    if key in boards and count.isascii() and count.isdigit() and int(count) > 0:
        return key, int(count)
    near = did_you_mean(part, boards) or did_you_mean(key, boards)
    raise UsageError(
        f"no such GPU to simulate: {part!r}",
        f"{near}take one of {', '.join(boards)}; "
        f"two of one kind are {boards[0]}x2, a mix is {boards[0]},{boards[-1]}",
    )

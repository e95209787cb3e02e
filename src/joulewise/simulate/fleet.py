"""Which GPUs to simulate, from a text such as ``v100x2,a100``."""

from __future__ import annotations

from joulewise.errors import UsageError


def parse(text: str, boards: tuple[str, ...]) -> tuple[str, ...]:
    """One key of ``boards`` for each GPU, in order."""
    return tuple(key for part in text.split(",") for key in _expand(part.strip(), boards))


def _expand(part: str, boards: tuple[str, ...]) -> list[str]:
    if part in boards:
        return [part]
    key, _, count = part.rpartition("x")
    if key in boards and count.isascii() and count.isdigit() and int(count) > 0:
        return [key] * int(count)
    raise UsageError(
        f"no such GPU to simulate: {part!r}",
        f"take one of {', '.join(boards)}; two of one kind are {boards[0]}x2, a mix is "
        f"{boards[0]},{boards[-1]}",
    )

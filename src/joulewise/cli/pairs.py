"""NAME=VALUE on the command line."""

from __future__ import annotations

from collections.abc import Sequence

from joulewise.errors import UsageError


def pairs(option: str, given: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name.strip() or not equals:
            raise UsageError(f"{option} {text!r} has no NAME=", f"as in: {option} batch_size=32")
        if name.strip() in found:
            raise UsageError(f"{option} {name.strip()} is given twice", "name all values in one")
        found[name.strip()] = value
    return found

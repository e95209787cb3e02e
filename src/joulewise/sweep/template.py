"""The command's own parameters, put into it in place of their names: ``--batch-size {batch_size}``.

Only a name in braces is such a place, so that braces of the command's own stay as they are: those
of JSON (``{"a": 1}``), of the shell (``${HOME}``, ``{a,b}``), and of ``find`` (``{}``). Where a
name in braces must stay, the braces are doubled: ``{{print}}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from joulewise.errors import UsageError

_PLACE: Final = re.compile(r"(?<![${])(?P<open>\{+)(?P<name>[A-Za-z_]\w*)(?P<close>\}+)", re.ASCII)


def render(text: str, values: Mapping[str, str]) -> str:
    """The text with each ``{name}`` replaced, and one pair of doubled braces taken away."""

    def put(found: re.Match[str]) -> str:
        opened, name, closed = found["open"], found["name"], found["close"]
        if not _is_escaped(found):
            return f"{opened[1:]}{values[name]}{closed[1:]}"
        return f"{opened[1:]}{name}{closed[1:]}"

    return _PLACE.sub(put, text)


def names_in(text: str) -> set[str]:
    """The names that have a place in it."""
    return {found["name"] for found in _PLACE.finditer(text) if not _is_escaped(found)}


def check_places(texts: Iterable[str], axes: Iterable[str]) -> None:
    """Whether every place has an axis, and every axis a place."""
    known, used = list(axes), set[str]()
    for text in texts:
        for name in sorted(names_in(text)):
            if name not in known:
                there = f"there are {', '.join(known)}" if known else "there are none"
                raise UsageError(
                    f"no values for {{{name}}} in {text!r}",
                    f"give some: --set {name}=A,B ({there}); to keep the braces: {{{{{name}}}}}",
                )
            used.add(name)
    for name in known:
        if name not in used:
            raise UsageError(
                f"the command never sees {name}",
                f"put {{{name}}} where its value belongs, as in: -- python train.py {{{name}}}",
            )


def _is_escaped(found: re.Match[str]) -> bool:
    return min(len(found["open"]), len(found["close"])) > 1

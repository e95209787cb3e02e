"""Secrets in a command's arguments, which nobody wants in a file that is passed around."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MASK: Final = "***"

# What the name of an option ends with if a secret follows: --token, --hf-api-key, DB_PASSWORD=.
_WORD: Final = (
    r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|credentials?|(?:api|access|auth|secret|private)"
    r"[-_]?key|apikey|auth|authorization|bearer)"
)
_NAMES_SECRET: Final = re.compile(rf"(?:^|[-_.]){_WORD}$", re.IGNORECASE)
# A language model's tokens are none.
_NAMES_TOKEN: Final = re.compile(
    r"(?:pad|eos|bos|unk|mask|sep|cls|special|stop|start|end|image|video|audio|text|per|max|num"
    r"|min|new|next|decoder|placeholder)[-_]?token$",
    re.IGNORECASE,
)
_WORDS: Final = re.compile(r"""(?:"[^"]*"|'[^']*'|[^\s"'])+""")
_OPTION: Final = re.compile(r"^(?P<name>-{0,2}[A-Za-z][\w.\-]*)=(?P<value>.+)$", re.DOTALL)
_FLAG: Final = re.compile(r"^--?[A-Za-z][\w.\-]*$")
_SHAPES: Final = (
    re.compile(r"\bhf_[A-Za-z0-9]{16,}"),
    re.compile(r"\bsk-[A-Za-z0-9_\-]{16,}"),
    re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,})"),
    re.compile(r"\bglpat-[\w\-]{16,}"),
    re.compile(r"\bxox[abprs]-[\w\-]{10,}"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\bAIza[\w\-]{30,}"),
    re.compile(r"\beyJ[\w\-]{8,}\.[\w\-]{8,}\.[\w\-]*"),
)
_URL: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.\-]*://)[^/\s@]+@", re.IGNORECASE)
_HEADER: Final = re.compile(
    r"(?P<name>\b(?:proxy-)?authorization|x-[\w-]*(?:key|token)|cookie)(?P<colon>\s*:\s*).+",
    re.IGNORECASE | re.DOTALL,
)
_QUERY: Final = re.compile(rf"(?P<name>[?&](?:[\w\-]*[-_.])?{_WORD}=)[^&\s]+", re.IGNORECASE)


def mask(arguments: Iterable[str]) -> tuple[str, ...]:
    """The arguments with every secret in them replaced by ``***``."""
    masked: list[str] = []
    hide_next = False
    for argument in arguments:
        masked.append(MASK if hide_next and not _FLAG.match(argument) else _masked(argument))
        hide_next = bool(_FLAG.match(argument) and _names_secret(argument))
    return tuple(masked)


def _names_secret(name: str) -> bool:
    return bool(_NAMES_SECRET.search(name)) and not _NAMES_TOKEN.search(name)


def _masked(argument: str) -> str:
    option = _OPTION.match(argument)
    if option and _names_secret(option["name"]):
        return f"{option['name']}={MASK}"
    argument = _URL.sub(rf"\g<scheme>{MASK}@", argument)
    argument = _HEADER.sub(rf"\g<name>\g<colon>{MASK}", argument)
    argument = _QUERY.sub(rf"\g<name>{MASK}", argument)
    for shape in _SHAPES:
        argument = shape.sub(MASK, argument)
    return _masked_within(argument)


def _masked_within(line: str) -> str:
    """An argument that is itself a command line, as a shell's is."""
    words = _WORDS.findall(line)
    if len(words) < 2:
        return line
    masked = iter(mask(words))
    return _WORDS.sub(lambda _: next(masked), line)

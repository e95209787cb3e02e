"""Our data classes as plain JSON values, and back.

Reading is msgspec's: by the annotations of the classes, strictly. Writing is not. It would leave
out the fields that an older file lacked and that have a default, and it refuses the surrogates
(PEP 383) in names that are not UTF-8.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

_T = TypeVar("_T")
_PLAIN: Final = {str, int, bool, type(None)}


def encode(value: Any) -> Any:
    """Plain values: dataclasses as objects, enums as their values, and NaN and infinity as null.

    A class with a form of its own (``as_json``, ``from_json``) has that.
    """
    kind: Any = type(value)
    if kind in _PLAIN:  # as most are
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Enum):
        return value.value
    if hasattr(value, "as_json"):
        return value.as_json()
    if dataclasses.is_dataclass(value):
        return {name: encode(getattr(value, name)) for name in _field_names(kind)}
    if isinstance(value, Mapping):
        return {str(encode(key)): encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    return value


def decode(kind: type[_T], payload: Any) -> _T:
    """An object of that type from plain JSON values; a ValueError names the first that is wrong.

    Types are strict: only an integer may stand for a float. Keys that a class does not have are
    ignored, so that a file of a newer joulewise can be read.
    """
    return msgspec.convert(payload, kind, dec_hook=_decode_own_form)


def _decode_own_form(kind: Any, payload: Any) -> Any:
    return kind.from_json(payload)


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))

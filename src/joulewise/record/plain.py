"""Our frozen dataclasses as plain JSON values, and back by their annotations."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar

_T = TypeVar("_T")
_PLAIN: Final = {str, int, bool, type(None)}


def encode(value: Any) -> Any:
    """Dataclasses as objects, enums as their words; what is not finite as null.

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
        return {name: encode(getattr(value, name)) for name in _names(kind)}
    if isinstance(value, Mapping):
        return {str(encode(key)): encode(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [encode(each) for each in value]
    return value


def decode(kind: type[_T], told: Any) -> _T:
    """An object of that dataclass; a value of the wrong kind is a TypeError.

    Keys that it does not have are passed over, so that what a newer joulewise added does no harm.
    """
    result: _T = _decode(kind, told)
    return result


def _decode(kind: Any, told: Any) -> Any:
    arguments = typing.get_args(kind)
    if type(None) in arguments:
        (kind,) = (each for each in arguments if each is not type(None))
        return None if told is None else _decode(kind, told)
    if arguments:
        return _decode_many(typing.get_origin(kind), arguments, told)
    if kind is Any:
        return told
    if hasattr(kind, "from_json"):
        return kind.from_json(told)
    if dataclasses.is_dataclass(kind):
        return _decode_object(kind, told)
    if issubclass(kind, Enum):
        return kind(told)
    if kind is float and isinstance(told, int):
        return float(told)
    if not isinstance(told, kind):
        raise TypeError(f"{told!r:.40} is no {kind.__name__}")
    return told


def _decode_many(origin: Any, arguments: tuple[Any, ...], told: Any) -> Any:
    if issubclass(origin, Mapping):
        return {key: _decode(arguments[1], each) for key, each in _object(told).items()}
    if not isinstance(told, list):
        raise TypeError(f"{told!r:.40} is no list")
    if arguments[-1] is Ellipsis:
        return tuple(_decode(arguments[0], each) for each in told)
    if len(told) != len(arguments):
        raise TypeError(f"{len(told)} values, not {len(arguments)}")
    return tuple(map(_decode, arguments, told))


def _decode_object(kind: Any, told: Any) -> Any:
    hints = _hints(kind)
    known = {name: each for name, each in _object(told).items() if name in hints}
    return kind(**{name: _decode(hints[name], each) for name, each in known.items()})


def _object(told: Any) -> dict[str, Any]:
    if not isinstance(told, dict):
        raise TypeError(f"{told!r:.40} is no object")
    return told


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))

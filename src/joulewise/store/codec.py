"""Our frozen dataclasses as plain JSON values, and back by their annotations."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar

_T = TypeVar("_T")
_Decoder = Callable[[Any], Any]
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
    wanted: Any = kind
    result: _T = _decoder(wanted)(told)
    return result


@cache
def _decoder(kind: Any) -> _Decoder:
    """What decodes values of a type: the annotations are looked at once, not for each value."""
    arguments = typing.get_args(kind)
    if type(None) in arguments:
        (present,) = (each for each in arguments if each is not type(None))
        decode_present = _decoder(present)
        return lambda told: None if told is None else decode_present(told)
    if arguments:
        return _decoder_of_many(typing.get_origin(kind), arguments)
    if kind is Any:
        return lambda told: told
    if hasattr(kind, "from_json"):
        from_json: _Decoder = kind.from_json
        return from_json
    if dataclasses.is_dataclass(kind):
        return _decoder_of_object(kind)
    if issubclass(kind, Enum):
        member: _Decoder = kind
        return member
    return _decoder_of_value(kind)


def _decoder_of_value(kind: type) -> _Decoder:
    def decode_value(told: Any) -> Any:
        # Most are of just this type: of a list of 100,000 runs this saves 2 s.
        if type(told) is kind or isinstance(told, kind):
            return told
        if kind is float and isinstance(told, int):
            return float(told)
        raise TypeError(f"{told!r:.40} is no {kind.__name__}")

    return decode_value


def _decoder_of_many(origin: Any, arguments: tuple[Any, ...]) -> _Decoder:
    if issubclass(origin, Mapping) and arguments[1] is Any:
        return lambda told: dict(_object(told))
    if issubclass(origin, Mapping):
        decode_value = _decoder(arguments[1])
        return lambda told: {key: decode_value(each) for key, each in _object(told).items()}
    if arguments[-1] is Ellipsis:
        decode_each = _decoder(arguments[0])
        return lambda told: tuple(decode_each(each) for each in _list(told))
    decoders = [_decoder(argument) for argument in arguments]

    def decode_fixed(told: Any) -> Any:
        if len(_list(told)) != len(decoders):
            raise TypeError(f"{len(told)} values, not {len(decoders)}")
        return tuple(one(each) for one, each in zip(decoders, told, strict=True))

    return decode_fixed


def _decoder_of_object(kind: Any) -> _Decoder:
    decoders = {name: _decoder(hint) for name, hint in typing.get_type_hints(kind).items()}
    find = decoders.get

    def decode_object(told: Any) -> Any:
        return kind(
            **{
                name: decode_field(each)
                for name, each in _object(told).items()
                if (decode_field := find(name))
            }
        )

    return decode_object


def _object(told: Any) -> dict[str, Any]:
    if not isinstance(told, dict):
        raise TypeError(f"{told!r:.40} is no object")
    return told


def _list(told: Any) -> list[Any]:
    if not isinstance(told, list):
        raise TypeError(f"{told!r:.40} is no list")
    return told


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))

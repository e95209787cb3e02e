"""Our data classes as plain JSON values, and back; JSON that older versions wrote.

Reading is msgspec's: by the annotations of the classes, strictly. Writing is not. It would leave
out the fields that an older file lacked and that have a default, and it refuses the surrogates
(PEP 383) in names that are not UTF-8.

The functions ``name_simulated_…`` change a JSON object of an older version in place, between
reading it from disk and decoding it. One that is not in the expected form is left as it is: its
decoder says what is wrong with it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, TypeVar

from joulewise.data.devices import Source

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
    import msgspec  # takes 8 ms, and a recorder decodes nothing

    return msgspec.convert(payload, kind, dec_hook=_decode_own_form)


def _decode_own_form(kind: Any, payload: Any) -> Any:
    return kind.from_json(payload)


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


_VIRTUAL_UID: Final = "simulated-"
"""How the uid of a board in virtual time begins; a real GPU's begins with ``GPU-``.

Boards behind the simulated NVML had no such mark: what older versions recorded of them cannot be
distinguished from a real GPU, and stays "measured".
"""


def name_simulated_manifest(manifest: dict[str, Any]) -> None:
    """run.json: call the sensors of boards in virtual time simulated; they were called measured."""
    for device in _objects(manifest.get("devices")):
        sources = device.get("sources")
        if isinstance(sources, dict) and _is_virtual(_object(device.get("info"))):
            _rename(sources, sources)


def name_simulated_result(result: dict[str, Any]) -> None:
    """result.json: likewise their energy, in the run and in each span."""
    devices = _object(_object(result.get("details")).get("devices"))
    virtual = {key for key, device in devices.items() if _is_virtual(_object(device))}
    if not virtual:
        return
    for key in virtual:
        sources = _object(devices[key].get("sources"))
        _rename(sources, sources)
    spans = (_object(span.get("energy_j")) for span in _objects(result.get("spans")))
    counted = result.get("counted")
    is_all_virtual = isinstance(counted, list) and set(counted) <= virtual
    for energies in (_object(result.get("energy_j")), *spans):
        for key in (*virtual, *(("total",) if is_all_virtual else ())):
            energy = _object(energies.get(key))
            _rename(energy, ("source",))
            _rename(_object(energy.get("net")), ("source",))
    if is_all_virtual:
        _rename(_object(result.get("net_total")), ("source",))


def name_simulated_sweep(sweep: dict[str, Any]) -> None:
    """sweep.json: likewise the energy of the trials of a sweep in virtual time."""
    if not _object(sweep.get("asked")).get("simulated"):
        return
    for trial in _objects(sweep.get("trials")):
        works = (_object(work).get("energy") for work in _object(trial.get("spans")).values())
        for energies in (trial.get("energy"), *works):
            for energy in _object(energies).values():
                _rename(_object(energy), ("source",))


def _rename(holder: dict[str, Any], keys: Iterable[str]) -> None:
    for key in keys:
        if holder.get(key) == Source.MEASURED.value:
            holder[key] = Source.SIMULATED.value


def _is_virtual(device: dict[str, Any]) -> bool:
    return str(device.get("uid", "")).startswith(_VIRTUAL_UID)


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []

"""Files that older versions wrote, changed into the form of this one.

Each function changes a JSON object in place, between reading it from disk and decoding it. A file
that is not in the expected form is left as it is: its decoder says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from joulewise.data.devices import Source

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

"""The devices of this machine that draw power: their sensors and controls.

- ``device``: the protocol that every device follows, and what all of them share
- ``nvidia/``, ``amd/``: GPUs; ``cuda_visible``: which of them a CUDA program sees
- ``host/``: CPU packages, memory and the platform

:func:`discover` finds them all, one family after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TypeVar

from joulewise.data import Unavailable
from joulewise.devices.device import Device, Options

__all__ = ["Device", "Discovery", "Options", "discover", "visible_gpus"]

_FAMILIES = {
    "nvidia": "joulewise.devices.nvidia",
    "amd": "joulewise.devices.amd",
    "cpu": "joulewise.devices.host.cpu",
    "ram": "joulewise.devices.host.ram",
}
DISCOVERY_THREAD = "joulewise-finder"  # the name of a thread that searches for devices
_Found = tuple[Sequence[Device] | Unavailable, int]
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Discovery:
    """The devices that were found, and for each family without one the reason.

    ``unanswered`` are the missing families whose driver is there and did not answer in time: how
    many devices they have is not known.
    """

    devices: tuple[Device, ...]
    missing: Mapping[str, Unavailable]
    unanswered: tuple[str, ...] = ()

    def close(self) -> None:
        for device in self.devices:
            device.close()


def discover(options: Options | None = None) -> Discovery:
    """Every device of this machine. Never raises: what is missing has a reason."""
    devices: list[Device] = []
    missing: dict[str, Unavailable] = {}
    unanswered: list[str] = []
    options = options or Options()
    for family in _FAMILIES:
        answer = _find_in_time(family, options)
        if answer is None:
            reason = f"the driver did not answer within {options.deadline_s:g} s"
            missing[family] = Unavailable(reason, "see whether it hangs: dmesg")
            unanswered.append(family)
            continue
        family_devices, first_gpu = answer
        options = replace(options, first_gpu=first_gpu)
        if isinstance(family_devices, Unavailable):
            missing[family] = family_devices
        else:
            devices.extend(family_devices)
    return Discovery(tuple(devices), missing, tuple(unanswered))


def _find_in_time(family: str, options: Options) -> _Found | None:
    if options.deadline_s is None:
        return _find(family, options)
    return _call_in_time(lambda: _find(family, options), options.deadline_s)


def _call_in_time(call: Callable[[], _Answer], deadline_s: float | None) -> _Answer | None:
    """Call it in a thread of its own; None where it has not returned in time, or failed."""
    answers: list[_Answer] = []
    finder = threading.Thread(
        target=lambda: answers.append(call()), name=DISCOVERY_THREAD, daemon=True
    )
    finder.start()
    finder.join(deadline_s)
    return answers[0] if answers else None


def _find(family: str, options: Options) -> _Found:
    """The devices, and the number of the next GPU."""
    first_gpu = options.first_gpu
    try:
        module = import_module(_FAMILIES[family])
        if family == "nvidia":
            devices, first_gpu = module.find_and_count(options)
        else:
            devices = module.find(options)
    except Exception as error:  # noqa: BLE001  # one vendor's fault must not hide the others
        devices = Unavailable(f"{type(error).__name__}: {error}", "please report this as a bug")
    return devices, first_gpu


def visible_gpus(options: Options) -> set[str] | None:
    """The keys of the GPUs that a program with ``options.environ`` would see.

    None where a driver did not answer in time, or failed.
    """

    def find_keys() -> set[str]:
        from joulewise.devices import amd, nvidia

        keys, first_gpu = nvidia.visible_keys(options)
        return keys | amd.visible_keys(replace(options, first_gpu=first_gpu))

    return _call_in_time(find_keys, options.deadline_s)

"""What can be read and turned on this machine, one vendor library a file."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module

from joulewise.data import Unavailable
from joulewise.devices.options import Options
from joulewise.devices.protocol import Device

__all__ = ["Device", "Discovery", "Options", "discover"]

_FAMILIES = ("nvidia", "amd", "cpu", "ram")
FINDER = "joulewise-finder"  # the name of a thread that looks for devices
_Found = tuple[Sequence[Device] | Unavailable, int]


@dataclass(frozen=True)
class Discovery:
    """The devices that were found, and why a family of them was not."""

    devices: tuple[Device, ...]
    missing: Mapping[str, Unavailable]

    def close(self) -> None:
        for device in self.devices:
            device.close()


def discover(options: Options | None = None) -> Discovery:
    """Every device of this machine. Never raises: what is not there has a reason."""
    devices: list[Device] = []
    missing: dict[str, Unavailable] = {}
    options = options or Options()
    for family in _FAMILIES:
        found, first_gpu = _in_time(family, options)
        options = replace(options, first_gpu=first_gpu)
        if isinstance(found, Unavailable):
            missing[family] = found
        else:
            devices.extend(found)
    return Discovery(tuple(devices), missing)


def _in_time(family: str, options: Options) -> _Found:
    if options.deadline_s is None:
        return _find(family, options)
    answer: list[_Found] = []
    finder = threading.Thread(
        target=lambda: answer.append(_find(family, options)), name=FINDER, daemon=True
    )
    finder.start()
    finder.join(options.deadline_s)
    if answer:
        return answer[0]
    what = f"the driver did not answer within {options.deadline_s:g} s"
    return Unavailable(what, "see whether it hangs: dmesg"), options.first_gpu


def _find(family: str, options: Options) -> _Found:
    """The devices, and the number of the next GPU."""
    first_gpu = options.first_gpu
    try:
        module = import_module(f"joulewise.devices.{family}")
        found = module.find(options)
        if family == "nvidia":
            first_gpu = module.count()
    except Exception as error:  # noqa: BLE001  # one vendor's fault must not hide the others
        found = Unavailable(f"{type(error).__name__}: {error}", "please report this as a bug")
    return found, first_gpu

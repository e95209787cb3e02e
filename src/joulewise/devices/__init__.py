"""What can be read and turned on this machine, one vendor library a file."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module

from joulewise.data import Unavailable
from joulewise.devices.device import Device
from joulewise.devices.options import Options

__all__ = ["Device", "Discovery", "Options", "discover", "visible_gpus"]

_FAMILIES = {
    "nvidia": "joulewise.devices.nvidia",
    "amd": "joulewise.devices.amd",
    "cpu": "joulewise.devices.host.cpu",
    "ram": "joulewise.devices.host.ram",
}
FINDER = "joulewise-finder"  # the name of a thread that looks for devices
_Found = tuple[Sequence[Device] | Unavailable, int]


@dataclass(frozen=True)
class Discovery:
    """The devices that were found, and why a family of them was not.

    ``unanswered`` are those of the missing whose driver is there and did not answer in time: how
    many devices there are is not known.
    """

    devices: tuple[Device, ...]
    missing: Mapping[str, Unavailable]
    unanswered: tuple[str, ...] = ()

    def close(self) -> None:
        for device in self.devices:
            device.close()


def discover(options: Options | None = None) -> Discovery:
    """Every device of this machine. Never raises: what is not there has a reason."""
    devices: list[Device] = []
    missing: dict[str, Unavailable] = {}
    unanswered: list[str] = []
    options = options or Options()
    for family in _FAMILIES:
        answer = _in_time(family, options)
        if answer is None:
            what = f"the driver did not answer within {options.deadline_s:g} s"
            missing[family] = Unavailable(what, "see whether it hangs: dmesg")
            unanswered.append(family)
            continue
        found, first_gpu = answer
        options = replace(options, first_gpu=first_gpu)
        if isinstance(found, Unavailable):
            missing[family] = found
        else:
            devices.extend(found)
    return Discovery(tuple(devices), missing, tuple(unanswered))


def _in_time(family: str, options: Options) -> _Found | None:
    if options.deadline_s is None:
        return _find(family, options)
    answer: list[_Found] = []
    finder = threading.Thread(
        target=lambda: answer.append(_find(family, options)), name=FINDER, daemon=True
    )
    finder.start()
    finder.join(options.deadline_s)
    return answer[0] if answer else None


def _find(family: str, options: Options) -> _Found:
    """The devices, and the number of the next GPU."""
    first_gpu = options.first_gpu
    try:
        module = import_module(_FAMILIES[family])
        if family == "nvidia":
            found, first_gpu = module.find_and_count(options)
        else:
            found = module.find(options)
    except Exception as error:  # noqa: BLE001  # one vendor's fault must not hide the others
        found = Unavailable(f"{type(error).__name__}: {error}", "please report this as a bug")
    return found, first_gpu


def visible_gpus(options: Options) -> set[str] | None:
    """The keys of the GPUs that a program with ``options.environ`` would see.

    None where a driver did not answer in time, or failed.
    """
    answers: list[set[str]] = []

    def ask() -> None:
        from joulewise.devices import amd, nvidia

        seen, first_gpu = nvidia.visible_keys(options)
        answers.append(seen | amd.visible_keys(replace(options, first_gpu=first_gpu)))

    asker = threading.Thread(target=ask, name=FINDER, daemon=True)
    asker.start()
    asker.join(options.deadline_s)
    return answers[0] if answers else None

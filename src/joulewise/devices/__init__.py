"""What can be read and turned on this machine, one vendor library a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module

from joulewise.data import Unavailable
from joulewise.devices.options import Options
from joulewise.devices.protocol import Device

__all__ = ["Device", "Discovery", "Options", "discover"]

_FAMILIES = ("nvidia", "amd", "cpu", "ram")


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
        try:
            module = import_module(f"joulewise.devices.{family}")
            found = module.find(options)
            if family == "nvidia":
                options = replace(options, first_gpu=module.count())
        except Exception as error:  # noqa: BLE001  # one vendor's fault must not hide the others
            found = Unavailable(f"{type(error).__name__}: {error}", "please report this as a bug")
        if isinstance(found, Unavailable):
            missing[family] = found
        else:
            devices.extend(found)
    return Discovery(tuple(devices), missing)

"""What the service allows, and whom: a TOML file, or one group and the devices' own ranges."""

from __future__ import annotations

import grp
import math
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from joulewise.data import DeviceInfo, Knob
from joulewise.errors import OutOfRangeError, PermissionDeniedError, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_HINT: Final = (
    'such as: group = "gpu-users" clients = 64 force = false '
    '[[allow]] devices = ["gpu*"] power_limit_w = [150, 250]'
)
_CLIENTS: Final = 64
_CLIENTS_PER_USER: Final = 16
_MOST_CLIENTS: Final = 4096


@dataclass(frozen=True)
class Allowed:
    """Ranges of knobs, for devices whose key, uid or name is like one of these."""

    devices: tuple[str, ...]
    ranges: Mapping[Knob, tuple[float, float]]

    def is_about(self, device: DeviceInfo) -> bool:
        names = (device.key, device.uid, device.name)
        return any(fnmatchcase(name, like) for name in names for like in self.devices)


@dataclass(frozen=True)
class Config:
    """Who may connect, and what they may turn; everything where ``allowed`` is None."""

    group: str
    clients: int = _CLIENTS
    clients_per_user: int = _CLIENTS_PER_USER
    force: bool = True
    allowed: tuple[Allowed, ...] | None = None

    def check(self, device: DeviceInfo, knob: Knob, value: float) -> None:
        if self.allowed is None:
            return
        about = [each for each in self.allowed if knob in each.ranges and each.is_about(device)]
        if not about:
            raise PermissionDeniedError(
                f"the service does not turn {device.key}'s {knob.label}",
                "ask its administrator to list it in /etc/joulewise/guard.toml, or its --config",
            )
        ranges = [each.ranges[knob] for each in about]
        if not any(low <= value <= high for low, high in ranges):
            told = " or ".join(f"{low:g} to {high:g} {knob.unit}" for low, high in ranges)
            raise OutOfRangeError(
                f"the service does not turn {device.key}'s {knob.label} to {value:g} {knob.unit}",
                f"it allows {told}",
            )


def read_config(path: Path | None, group: str | None) -> Config:
    """The file's, or what holds without one; ``group`` goes before the file's."""
    if path is None:
        if group is None:
            raise UsageError("nobody is allowed to connect", "name a group: --group GROUP")
        return Config(_group(group, "--group"))
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "give --config a file") from None
    except ValueError as error:  # of TOML, and of UTF-8
        raise UsageError(f"{path} is no TOML: {error}", _HINT) from None
    return _File(path).config(told, group)


class _File:
    """Reads tables of one file; whatever is wrong is said with its name and the key."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def config(self, told: Mapping[str, Any], group: str | None) -> Config:
        self._check_keys("", told, {"group", "clients", "clients_per_user", "force", "allow"})
        named = group if group is not None else told.get("group")
        if not isinstance(named, str):
            raise self._wrong("group", "names a group, as text (or --group does)")
        allow = told.get("allow", [])
        if not isinstance(allow, list) or not all(isinstance(each, dict) for each in allow):
            raise self._wrong("allow", "is a list of tables: [[allow]]")
        if not isinstance(told.get("force", False), bool):
            raise self._wrong("force", "is true or false")
        return Config(
            group=_group(named, "--group" if group is not None else f"{self._path}: group"),
            clients=self._count(told, "clients", _CLIENTS),
            clients_per_user=self._count(told, "clients_per_user", _CLIENTS_PER_USER),
            force=told.get("force", False),
            allowed=tuple(self._allowed(f"allow[{n}]", each) for n, each in enumerate(allow)),
        )

    def _allowed(self, where: str, told: Mapping[str, Any]) -> Allowed:
        self._check_keys(f"{where}.", told, {"devices", *(knob.value for knob in Knob)})
        devices = told.get("devices", [])
        if not _are_words(devices):
            raise self._wrong(f"{where}.devices", 'lists devices, such as ["gpu0", "GPU-*"]')
        ranges = {
            knob: self._range(f"{where}.{knob.value}", told[knob.value])
            for knob in Knob
            if knob.value in told
        }
        if not ranges:
            raise self._wrong(where, "allows no knob: add one, such as power_limit_w = [150, 250]")
        return Allowed(tuple(devices), ranges)

    def _range(self, where: str, told: Any) -> tuple[float, float]:
        if not isinstance(told, list) or len(told) != 2 or not all(map(_is_number, told)):
            raise self._wrong(where, "is a range of two numbers: [lowest, highest]")
        low, high = told
        if not 0 < low <= high:
            raise self._wrong(where, f"goes from {low:g} to {high:g}, which is no range")
        return float(low), float(high)

    def _count(self, told: Mapping[str, Any], key: str, default: int) -> int:
        value = told.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MOST_CLIENTS:
            raise self._wrong(key, f"is a whole number from 1 to {_MOST_CLIENTS}")
        return value

    def _check_keys(self, where: str, told: Mapping[str, Any], known: set[str]) -> None:
        for key in told:
            if key not in known:
                raise self._wrong(
                    f"{where}{key}", f"is unknown; there are {', '.join(sorted(known))}"
                )

    def _wrong(self, key: str, what: str) -> UsageError:
        return UsageError(f"{self._path}: {key} {what}", _HINT)


def _group(name: str, where: str) -> str:
    try:
        return grp.getgrnam(name).gr_name
    except (KeyError, ValueError):
        raise UsageError(
            f"{where}: there is no group {name!r} here",
            f"make it: `sudo groupadd --system {shlex.quote(name)}`",
        ) from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _are_words(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(isinstance(each, str) and each for each in value)
    )

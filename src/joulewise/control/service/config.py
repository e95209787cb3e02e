"""The service's configuration: who may connect, and which settings they may change.

It is a TOML file, or one group and the whole range of each device.
"""

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

from joulewise.data import ControlKind, DeviceInfo
from joulewise.errors import OutOfRangeError, PermissionDeniedError, UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_HINT: Final = (
    'for example: group = "gpu-users" clients = 64 force = false '
    '[[allow]] devices = ["gpu*"] power_limit_w = [150, 250]'
)
# Chosen: more ranks than a node has GPUs. Doubled, the service may use twice as many descriptors.
_DEFAULT_CLIENTS: Final = 64
_DEFAULT_CLIENTS_PER_USER: Final = 16
_MAX_CLIENTS: Final = 4096


@dataclass(frozen=True)
class Allowed:
    """Allowed ranges, for devices whose key, uid or name matches one of these patterns."""

    devices: tuple[str, ...]
    ranges: Mapping[ControlKind, tuple[float, float]]

    def matches(self, device: DeviceInfo) -> bool:
        names = (device.key, device.uid, device.name)
        return any(fnmatchcase(name, like) for name in names for like in self.devices)


@dataclass(frozen=True)
class Config:
    """Who may connect, and what they may change; everything where ``allowed`` is None."""

    group: str
    clients: int = _DEFAULT_CLIENTS
    clients_per_user: int = _DEFAULT_CLIENTS_PER_USER
    force: bool = True
    allowed: tuple[Allowed, ...] | None = None

    def check(self, device: DeviceInfo, control: ControlKind, value: float) -> None:
        if self.allowed is None:
            return
        matching = [
            rule for rule in self.allowed if control in rule.ranges and rule.matches(device)
        ]
        if not matching:
            raise PermissionDeniedError(
                f"the service does not change {device.key}'s {control.label}",
                "ask its administrator to list it in /etc/joulewise/guard.toml, or its --config",
            )
        ranges = [rule.ranges[control] for rule in matching]
        if not any(low <= value <= high for low, high in ranges):
            table = " or ".join(f"{low:g} to {high:g} {control.unit}" for low, high in ranges)
            raise OutOfRangeError(
                f"the service does not set {device.key}'s {control.label} "
                f"to {value:g} {control.unit}",
                f"it allows {table}",
            )


def read_config(path: Path | None, group: str | None) -> Config:
    """The configuration in the file, or the default; ``group`` replaces that of the file."""
    if path is None:
        if group is None:
            raise UsageError("no group is named whose members may connect", "add --group GROUP")
        return Config(_check_group(group, "--group"))
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "give --config a file") from None
    except ValueError as error:  # of TOML, and of UTF-8
        raise UsageError(f"{path} is not valid TOML: {error}", _HINT) from None
    return _ConfigReader(path).config(table, group)


class _ConfigReader:
    """Reads the tables of one file; errors name the file and the key."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def config(self, table: Mapping[str, Any], group: str | None) -> Config:
        self._check_keys("", table, {"group", "clients", "clients_per_user", "force", "allow"})
        named = group if group is not None else table.get("group")
        if not isinstance(named, str):
            raise self._error("group", "must be the name of a group (or give --group)")
        allow = table.get("allow", [])
        if not isinstance(allow, list) or not all(isinstance(each, dict) for each in allow):
            raise self._error("allow", "must be a list of tables: [[allow]]")
        if not isinstance(table.get("force", False), bool):
            raise self._error("force", "must be true or false")
        return Config(
            group=_check_group(named, "--group" if group is not None else f"{self._path}: group"),
            clients=self._count(table, "clients", _DEFAULT_CLIENTS),
            clients_per_user=self._count(table, "clients_per_user", _DEFAULT_CLIENTS_PER_USER),
            force=table.get("force", False),
            allowed=tuple(self._allowed(f"allow[{n}]", each) for n, each in enumerate(allow)),
        )

    def _allowed(self, key: str, table: Mapping[str, Any]) -> Allowed:
        self._check_keys(f"{key}.", table, {"devices", *(control.value for control in ControlKind)})
        devices = table.get("devices", [])
        if not _is_list_of_names(devices):
            raise self._error(f"{key}.devices", 'must be a list such as ["gpu0", "GPU-*"]')
        ranges = {
            control: self._range(f"{key}.{control.value}", table[control.value])
            for control in ControlKind
            if control.value in table
        }
        if not ranges:
            raise self._error(key, "allows nothing: add a range, as in power_limit_w = [150, 250]")
        return Allowed(tuple(devices), ranges)

    def _range(self, key: str, table: Any) -> tuple[float, float]:
        if not isinstance(table, list) or len(table) != 2 or not all(map(_is_number, table)):
            raise self._error(key, "must be a range of two numbers: [lowest, highest]")
        low, high = table
        if not 0 < low <= high:
            raise self._error(key, f"must go from low to high, not from {low:g} to {high:g}")
        return float(low), float(high)

    def _count(self, table: Mapping[str, Any], key: str, default: int) -> int:
        value = table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MAX_CLIENTS:
            raise self._error(key, f"must be a whole number from 1 to {_MAX_CLIENTS}")
        return value

    def _check_keys(self, prefix: str, table: Mapping[str, Any], known: set[str]) -> None:
        for key in table:
            if key not in known:
                raise self._error(
                    f"{prefix}{key}", f"is unknown; known are {', '.join(sorted(known))}"
                )

    def _error(self, key: str, what: str) -> UsageError:
        return UsageError(f"{self._path}: {key} {what}", _HINT)


def _check_group(name: str, key: str) -> str:
    try:
        return grp.getgrnam(name).gr_name
    except (KeyError, ValueError):
        raise UsageError(
            f"{key}: there is no group {name!r} here",
            f"create it: `sudo groupadd --system {shlex.quote(name)}`",
        ) from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_list_of_names(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) > 0
        and all(isinstance(name, str) and name for name in value)
    )

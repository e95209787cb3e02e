"""The power limits of a powercap zone, as knobs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from joulewise.data import Knob, KnobInfo, Unavailable
from joulewise.devices.host import read_int, read_text
from joulewise.errors import DeviceError, PermissionDeniedError
from joulewise.units import UW_PER_W

_KNOBS: Final = {"long_term": Knob.POWER_LIMIT, "short_term": Knob.POWER_LIMIT_SHORT}
_CONSTRAINTS: Final = 4

# The register holds 15 bits of eighths of a watt. Boards ship with limits far above the rated
# power, even at the register's end: what was found there must be a value that can be put back.
_STEP_W: Final = 0.125
_MOST_W: Final = 0x7FFF * _STEP_W

# Below a quarter of its rated power a CPU crawls, and the machine with it.
_LEAST_SHARE: Final = 0.25
_LEAST_W: Final = 1.0


@dataclass(frozen=True)
class PowerLimit:
    """One constraint of a zone; ``found_w`` is what it was when the device was opened."""

    path: Path
    info: KnobInfo
    found_w: float

    def get(self) -> float | Unavailable:
        limit_uw = read_int(self.path)
        return limit_uw if isinstance(limit_uw, Unavailable) else limit_uw / UW_PER_W

    def set(self, key: str, value_w: float) -> None:
        info = self.info
        if isinstance(info.writable, Unavailable):
            raise PermissionDeniedError(f"{key}: {info.writable.reason}", info.writable.fix)
        try:
            self.path.write_text(str(round(value_w * UW_PER_W)), encoding="ascii")
        except PermissionError as error:
            raise PermissionDeniedError(
                f"{key}: the kernel refuses to write {self.path}",
                "the firmware may have locked the limit: look in its setup (BIOS)",
            ) from error
        except OSError as error:
            raise DeviceError(f"{key}: {self.path}: {error.strerror}", _ASK) from error
        now_w = self.get()
        if isinstance(now_w, Unavailable) or abs(now_w - value_w) > _STEP_W:
            told = now_w.reason if isinstance(now_w, Unavailable) else f"it is at {now_w:g} W"
            raise DeviceError(f"{key}: {info.knob.value} did not go to {value_w:g}: {told}", _ASK)


_ASK: Final = "see the kernel's log: dmesg | grep -i rapl"


def power_limits(zone: Path) -> dict[Knob, PowerLimit | Unavailable]:
    """The long- and the short-term limit of a zone, or why it has them not."""
    limits: dict[Knob, PowerLimit | Unavailable] = {
        knob: Unavailable(f"the kernel shows no {name} limit for this part")
        for name, knob in _KNOBS.items()
    }
    enabled = read_text(zone / "enabled")
    for index in range(_CONSTRAINTS):
        knob = _KNOBS.get(str(read_text(zone / f"constraint_{index}_name")))
        if knob is None:
            continue
        if enabled == "0":
            limits[knob] = Unavailable(
                "the zone's limits are off, or locked by the firmware",
                f"echo 1 | sudo tee {zone / 'enabled'}",
            )
        else:
            limits[knob] = _power_limit(zone, index, knob)
    return limits


def rated_w(zone: Path) -> float | None:
    """What the part is rated for, where its long-term constraint says so."""
    rated_uw = read_int(zone / "constraint_0_max_power_uw")
    return rated_uw / UW_PER_W if isinstance(rated_uw, int) and rated_uw else None


def _power_limit(zone: Path, index: int, knob: Knob) -> PowerLimit | Unavailable:
    path = zone / f"constraint_{index}_power_limit_uw"
    found_uw = read_int(path)
    if isinstance(found_uw, Unavailable):
        return found_uw
    if found_uw == 0:
        return Unavailable("the firmware has set no limit")
    found_w = found_uw / UW_PER_W
    minimum = max(_LEAST_W, (rated_w(zone) or 0.0) * _LEAST_SHARE)
    info = KnobInfo(
        knob,
        minimum=min(minimum, found_w),
        maximum=max(_MOST_W, found_w),
        default=None,
        writable=os.access(path, os.W_OK)
        or Unavailable(f"{path} is writable by root only", f"sudo chown $USER {path}"),
        owner=_owner(path),
    )
    return PowerLimit(path, info, found_w)


def _owner(path: Path) -> int:
    """The user id of whom the file belongs to; root's where it is gone."""
    try:
        return path.stat().st_uid
    except OSError:
        return 0

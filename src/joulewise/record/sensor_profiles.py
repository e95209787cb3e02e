"""What is known of a device's power sensor: its calibrated profile, else what is documented.

``joulewise calibrate`` writes a profile for each board: ``cards/<uid>.json`` in the state folder.
It is valid for the driver that it was made with: another may update and average differently.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from joulewise.data import DeviceInfo, Kind, Quantity, SensorInfo, SensorProfile, Unavailable
from joulewise.data.codec import decode, encode
from joulewise.devices.device import Device
from joulewise.errors import JoulewiseError
from joulewise.process.state_dir import make_state_folder, state_folder
from joulewise.store.files import read_regular, replace_file
from joulewise.units import Z95

PROFILE_FORMAT: Final = 1
"""Version of the file; one of another version is reported as unreadable."""

# Standard deviation of the gain (reading over truth) of a measured device. Twice as much doubles
# the calibration error of every energy. Chosen within what is published. GPUs, 2.5 %: "a few
# percent" (arXiv:2312.02741; NVIDIA documents 5 % for old boards and nothing for new ones). RAPL: a
# package is measured from Haswell on (Hackenberg et al., IPDPSW 2015), modelled before and on AMD
# (Schöne et al., CLUSTER 2021); DRAM has an offset that is largest when idle (Desrochers et al.,
# MEMSYS 2016). A node's meter: as a package, for lack of a source.
_GAIN_SIGMA: Final = {
    Kind.GPU: SensorProfile().gain_sigma,
    Kind.CPU: 0.05,
    Kind.DRAM: 0.10,
    Kind.NODE: 0.05,
}
# Of a modelled device: 85 % of the model's points are right within a factor of 2
# (docs/explanation/cpu-and-ram.md), so that ln 2 is 1.44 standard deviations.
_MODELLED_GAIN_SIGMA: Final = 0.48

_TIMING_SPREAD: Final = SensorProfile().timing_spread


@dataclass(frozen=True)
class CalibratedValue:
    """A calibrated value and its 95 % half-width, in the same unit."""

    value: float
    error: float


@dataclass(frozen=True)
class SensorTiming:
    """The calibrated timing of a power sensor; None is what could not be determined."""

    update_period_s: CalibratedValue | None = None
    window_s: CalibratedValue | None = None
    lag_s: CalibratedValue | None = None
    unseen_share: CalibratedValue | None = None
    rate_busy_hz: CalibratedValue | None = None
    rate_idle_hz: CalibratedValue | None = None


@dataclass(frozen=True)
class CalibratedProfile:
    """A board's calibrated profile as it lies on disk.

    ``when`` and ``how`` say when and how it was made. ``sensors`` is by the name of the quantity
    (``power_w``, ``power_instant_w``). ``gain`` is reading over truth, None until it was compared
    with a meter.
    """

    uid: str
    driver: str
    name: str
    when: str
    how: str
    sensors: Mapping[str, SensorTiming] = field(default_factory=dict)
    counter_period_s: CalibratedValue | None = None
    gain: CalibratedValue | None = None
    gain_how: str = ""
    format: int = PROFILE_FORMAT


def sensor_profile_for(
    device: Device, environ: Mapping[str, str], quantity: Quantity = Quantity.POWER
) -> SensorProfile:
    """What is known of the sensor of ``quantity`` (a reading of power) on this device."""
    documented = documented_profile(device, quantity)
    calibrated = read_calibrated_profile(device.info, environ)
    if calibrated is None or isinstance(calibrated, Unavailable):
        return documented
    return _with_calibration(documented, calibrated, quantity)


def documented_profile(device: Device, quantity: Quantity = Quantity.POWER) -> SensorProfile:
    """What the vendor or the literature says of such a sensor; nobody has published its lag."""
    sensors = (device.sensors.get(q) for q in (quantity, Quantity.ENERGY))
    power, energy = (each if isinstance(each, SensorInfo) else None for each in sensors)
    sensor = power or energy
    is_measured = sensor is None or sensor.source.is_sensor
    return SensorProfile(
        update_period_s=power.update_period_s if power else None,
        window_s=power.window_s if power else None,
        counter_period_s=_tick_s(energy) if energy else None,
        gain_sigma=_GAIN_SIGMA[device.info.kind] if is_measured else _MODELLED_GAIN_SIGMA,
    )


def read_calibrated_profile(
    info: DeviceInfo, environ: Mapping[str, str]
) -> CalibratedProfile | Unavailable | None:
    """The board's calibrated profile; None where it has none, or why that cannot be used."""
    path = profile_path(info.uid, environ)
    fix = f"joulewise calibrate --gpu {info.key.removeprefix('gpu')}"
    try:
        profile = _parse(json.loads(read_regular(path)))
    except FileNotFoundError:
        return None
    except OSError as error:
        return Unavailable(f"the sensor profile {path} cannot be read: {error.strerror}", fix)
    except ValueError:
        return Unavailable(f"{path} is not a sensor profile that this version reads", fix)
    if profile.uid != info.uid:
        return Unavailable(f"{path} is the sensor profile of another board ({profile.uid})", fix)
    if profile.driver != info.driver:
        reason = (
            f"the sensor was calibrated with driver {profile.driver}, and this is {info.driver}"
        )
        return Unavailable(reason, fix)
    return profile


def write_calibrated_profile(profile: CalibratedProfile, environ: Mapping[str, str]) -> Path:
    """Write a calibrated profile as a whole or not at all; its path."""
    path = profile_path(profile.uid, environ)
    text = json.dumps(asdict(profile), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    try:
        make_state_folder(make_state_folder(path.parent.parent) / path.parent.name)
        replace_file(path, text)
    except OSError as error:
        raise JoulewiseError(
            f"the sensor profile cannot be written to {path.parent}: {error.strerror}",
            "make that folder writable, or name another with $JOULEWISE_STATE",
        ) from None
    return path


def profile_path(uid: str, environ: Mapping[str, str]) -> Path:
    """The file of a board's calibrated profile."""
    name = "".join(c if c.isalnum() or c in "-_." else f"%{ord(c):02x}" for c in uid)
    return state_folder(environ) / "cards" / f"{name}.json"


def _with_calibration(
    documented: SensorProfile, calibrated: CalibratedProfile, quantity: Quantity
) -> SensorProfile:
    """The profile with every value that was calibrated in place of the documented one."""
    timing = calibrated.sensors.get(quantity.value)
    profile = replace(
        documented,
        counter_period_s=_value(calibrated.counter_period_s, documented.counter_period_s),
        origin=f"calibrated {calibrated.when}",
    )
    if timing is not None:
        profile = replace(
            profile,
            update_period_s=_value(timing.update_period_s, documented.update_period_s),
            window_s=_value(timing.window_s, documented.window_s),
            lag_s=_value(timing.lag_s, documented.lag_s),
            timing_spread=_spread(timing),
        )
    if calibrated.gain is not None:
        gain = calibrated.gain
        profile = replace(profile, gain=gain.value, gain_sigma=gain.error / Z95)
    return profile


def _spread(timing: SensorTiming) -> float:
    """The largest relative error of the period, the window, and the delay of a load's edge.

    A moving average shows an edge half a window late, and then by the lag.
    """
    period, window, lag = timing.update_period_s, timing.window_s, timing.lag_s
    if period is None or window is None:
        return _TIMING_SPREAD
    delay_s, error_s = window.value / 2, window.error / 2
    if lag is not None:
        delay_s, error_s = delay_s + lag.value, math.hypot(error_s, lag.error)
    return max(period.error / period.value, window.error / window.value, error_s / delay_s)


def _value(calibrated: CalibratedValue | None, documented: float | None) -> float | None:
    return documented if calibrated is None else calibrated.value


def _tick_s(counter: SensorInfo) -> float | None:
    """The update period of a counter; 0 for a modelled one, which is computed when it is read."""
    return counter.update_period_s if counter.source.is_sensor else 0.0


def _parse(payload: Any) -> CalibratedProfile:
    """Decode and check a profile; a ValueError where it is damaged or of another version."""
    profile = decode(CalibratedProfile, payload)
    # A number that is not finite, a missing key and an unknown one do not come back.
    if profile.format != PROFILE_FORMAT or encode(profile) != payload:
        raise ValueError("it is not a profile of this version")
    above_zero = [profile.counter_period_s, profile.gain]
    others = []
    for timing in profile.sensors.values():
        above_zero += [timing.update_period_s, timing.window_s]
        others += [timing.lag_s, timing.unseen_share, timing.rate_busy_hz, timing.rate_idle_hz]
    if any(each and (each.value < 0 or each.error < 0) for each in (*above_zero, *others)):
        raise ValueError("a value is negative")
    if any(each and not each.value for each in above_zero):
        raise ValueError("a period, window or gain is 0")
    return profile

"""What is believed of a device's power sensor: its kept card, else what the tables say.

``joulewise calibrate`` keeps a card for each board, as ``cards/<uid>.json`` in the state folder.
It holds for the driver that it was made with: another may update and average otherwise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from joulewise.data import DeviceInfo, Kind, Quantity, SensorInfo, SensorProfile, Unavailable
from joulewise.devices.device import Device
from joulewise.errors import JoulewiseError
from joulewise.process.state_dir import made, state_folder
from joulewise.store.files import read_regular, replace_file
from joulewise.units import Z95

FORMAT: Final = 1

# What a gain is off by, one standard deviation. GPUs: "a few percent" (arXiv:2312.02741; NVIDIA
# documents 5 % for old boards and nothing for new ones). RAPL: a package is measured from Haswell
# on (Hackenberg et al., IPDPSW 2015), modelled before and on AMD (Schöne et al., CLUSTER 2021);
# DRAM is off by an offset that is worst when idle (Desrochers et al., MEMSYS 2016).
_MEASURED: Final = {Kind.GPU: 0.025, Kind.CPU: 0.05, Kind.DRAM: 0.10, Kind.NODE: 0.05}
# "Right within a factor of 2" (docs/explanation/cpu-and-ram.md), which 85 % of the model's points
# are: ln 2 is 1.44 standard deviations.
_WITHIN_A_FACTOR_OF_2: Final = 0.48

_TIMING_SPREAD: Final = SensorProfile().timing_spread


@dataclass(frozen=True)
class CalibratedValue:
    """A calibrated value and its 95 % half-width, in the same unit."""

    value: float
    error: float


@dataclass(frozen=True)
class SensorTiming:
    """What a power sensor was found to do; None where it could not be told."""

    update_period_s: CalibratedValue | None = None
    window_s: CalibratedValue | None = None
    lag_s: CalibratedValue | None = None
    unseen_share: CalibratedValue | None = None
    rate_busy_hz: CalibratedValue | None = None
    rate_idle_hz: CalibratedValue | None = None


@dataclass(frozen=True)
class KeptCard:
    """A board's card as it lies on disk.

    ``sensors`` is by the name of the quantity (``power_w``, ``power_instant_w``). ``gain`` is
    reading over truth; None until a meter has told.
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
    format: int = FORMAT


def sensor_profile_for(
    device: Device, environ: Mapping[str, str], quantity: Quantity = Quantity.POWER
) -> SensorProfile:
    """What is believed of ``quantity`` (a reading of power) on this device."""
    card = table_card(device, quantity)
    kept = kept_card(device.info, environ)
    return (
        card if kept is None or isinstance(kept, Unavailable) else _calibrated(card, kept, quantity)
    )


def table_card(device: Device, quantity: Quantity = Quantity.POWER) -> SensorProfile:
    """What the maker or the literature says of such a device. Nobody has said how late it is."""
    power, energy = (_sensor(device, q) for q in (quantity, Quantity.ENERGY))
    known = power or energy
    measured = known is None or known.source.is_sensor
    return SensorProfile(
        update_period_s=power.update_period_s if power else None,
        window_s=power.window_s if power else None,
        counter_period_s=_tick_s(energy) if energy else None,
        gain_sigma=_MEASURED[device.info.kind] if measured else _WITHIN_A_FACTOR_OF_2,
    )


def kept_card(info: DeviceInfo, environ: Mapping[str, str]) -> KeptCard | Unavailable | None:
    """The board's card; None where it has none, or why the one that is there does not count."""
    path = profile_path(info.uid, environ)
    again = f"joulewise calibrate --gpu {info.key.removeprefix('gpu')}"
    try:
        kept = _parse(json.loads(read_regular(path)))
    except FileNotFoundError:
        return None
    except OSError as error:
        return Unavailable(f"the card {path} cannot be read: {error.strerror}", again)
    except (ValueError, TypeError, KeyError, AttributeError):
        return Unavailable(f"{path} is no card that this version reads", again)
    if kept.uid != info.uid:
        return Unavailable(f"{path} is the card of another board ({kept.uid})", again)
    if kept.driver != info.driver:
        was = f"the card was made with driver {kept.driver}, and this is {info.driver}"
        return Unavailable(was, again)
    return kept


def keep_card(card: KeptCard, environ: Mapping[str, str]) -> Path:
    """Write the card as a whole or not at all, and say where."""
    path = profile_path(card.uid, environ)
    text = json.dumps(asdict(card), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    try:
        made(made(path.parent.parent) / path.parent.name)
        replace_file(path, text)
    except OSError as error:
        raise JoulewiseError(
            f"the card cannot be kept in {path.parent}: {error.strerror}",
            "make that folder writable, or name another with $JOULEWISE_STATE",
        ) from None
    return path


def profile_path(uid: str, environ: Mapping[str, str]) -> Path:
    name = "".join(c if c.isalnum() or c in "-_." else f"%{ord(c):02x}" for c in uid)
    return state_folder(environ) / "cards" / f"{name}.json"


def _calibrated(card: SensorProfile, kept: KeptCard, quantity: Quantity) -> SensorProfile:
    timing = kept.sensors.get(quantity.value)
    if timing is not None:
        card = replace(
            card,
            update_period_s=_value(timing.update_period_s, card.update_period_s),
            window_s=_value(timing.window_s, card.window_s),
            lag_s=_value(timing.lag_s, card.lag_s),
            timing_spread=_spread(timing),
        )
    if kept.gain is not None:
        card = replace(card, gain=kept.gain.value, gain_sigma=kept.gain.error / Z95)
    return replace(
        card,
        counter_period_s=_value(kept.counter_period_s, card.counter_period_s),
        origin=f"calibrated {kept.when}",
    )


def _spread(timing: SensorTiming) -> float:
    """The wider of the relative errors of the period, and of how late an edge shows."""
    period, window, lag = timing.update_period_s, timing.window_s, timing.lag_s
    if period is None or window is None:
        return _TIMING_SPREAD
    late_s, error_s = window.value / 2, window.error / 2
    if lag is not None:
        late_s, error_s = late_s + lag.value, math.hypot(error_s, lag.error)
    return max(period.error / period.value, window.error / window.value, error_s / late_s)


def _value(found: CalibratedValue | None, otherwise: float | None) -> float | None:
    return otherwise if found is None else found.value


def _sensor(device: Device, quantity: Quantity) -> SensorInfo | None:
    sensor = device.sensors.get(quantity)
    return sensor if isinstance(sensor, SensorInfo) else None


def _tick_s(counter: SensorInfo) -> float | None:
    """What is modelled or assumed is computed when it is asked for, and has no ticks."""
    return counter.update_period_s if counter.source.is_sensor else 0.0


def _parse(data: dict[str, Any]) -> KeptCard:
    if data["format"] != FORMAT:
        raise ValueError("another version's card")
    texts = {name: data[name] for name in ("uid", "driver", "name", "when", "how", "gain_how")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise TypeError("a text is none")
    return KeptCard(
        **texts,
        sensors={name: _timing(told) for name, told in data["sensors"].items()},
        counter_period_s=_figure(data["counter_period_s"], above_zero=True),
        gain=_figure(data["gain"], above_zero=True),
    )


def _timing(told: dict[str, Any]) -> SensorTiming:
    above = ("update_period_s", "window_s")
    return SensorTiming(**{n: _figure(f, above_zero=n in above) for n, f in told.items()})


def _figure(told: dict[str, float] | None, *, above_zero: bool = False) -> CalibratedValue | None:
    if told is None:
        return None
    value, error = float(told["value"]), float(told["error"])
    if value < 0 or error < 0 or (above_zero and not value) or not math.isfinite(value + error):
        raise ValueError("out of range")
    return CalibratedValue(value, error)

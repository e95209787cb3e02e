"""How each quantity is read from amdsmi, in our units. Every function may raise a DeviceError."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from joulewise.data import Quantity
from joulewise.devices.amd.library import Library, number
from joulewise.errors import NotSupportedError
from joulewise.units import UJ_PER_J, UW_PER_W

Read = Callable[[Library, Any], float]


@dataclass(frozen=True)
class Sensor:
    read: Read
    window_s: float | None = None
    note: str = ""


def power_cap_w(smi: Library, handle: Any) -> dict[str, float]:
    """``power_cap``, ``default_power_cap``, ``min_power_cap``, ``max_power_cap``."""
    told = smi.call("amdsmi_get_power_cap_info", handle)
    return {name: number(value) / UW_PER_W for name, value in told.items()}


def clock_mhz(smi: Library, handle: Any, which: str, figure: str) -> float:
    kind = smi.constant("AmdSmiClkType", which)
    return number(smi.call("amdsmi_get_clock_info", handle, kind)[figure])


def _power(*figures: str) -> Read:
    def read(smi: Library, handle: Any) -> float:
        told = smi.call("amdsmi_get_power_info", handle)
        for figure in figures:
            value = told.get(figure)
            # 0 W stands for "not told" on generations that have only one of the two figures.
            if isinstance(value, int) and value > 0:
                return float(value)
        raise NotSupportedError(f"this GPU does not tell its {figures[0]}", "see power_w")

    return read


def _energy(smi: Library, handle: Any) -> float:
    told = smi.call("amdsmi_get_energy_count", handle)
    ticks = told.get("energy_accumulator", told.get("power"))  # its name until amdsmi 6.3
    return number(ticks) * number(told["counter_resolution"]) / UJ_PER_J


def _activity(engine: str) -> Read:
    return lambda smi, handle: number(smi.call("amdsmi_get_gpu_activity", handle)[engine])


def _clock(which: str) -> Read:
    return lambda smi, handle: clock_mhz(smi, handle, which, "clk")


def _temperature(smi: Library, handle: Any) -> float:
    now = smi.constant("AmdSmiTemperatureMetric", "CURRENT")

    def at(place: str) -> float:
        where = smi.constant("AmdSmiTemperatureType", place)
        return number(smi.call("amdsmi_get_temp_metric", handle, where, now))

    try:
        return at("EDGE")
    except NotSupportedError:
        return at("HOTSPOT")


def _fan(smi: Library, handle: Any) -> float:
    highest = number(smi.call("amdsmi_get_gpu_fan_speed_max", handle, 0))
    if highest <= 0:
        raise NotSupportedError("this GPU has no fan of its own", "nothing to do")
    return 100 * number(smi.call("amdsmi_get_gpu_fan_speed", handle, 0)) / highest


def _memory_used(smi: Library, handle: Any) -> float:
    video_memory = smi.constant("AmdSmiMemoryType", "VRAM")
    return number(smi.call("amdsmi_get_gpu_memory_usage", handle, video_memory))


def _throttled(smi: Library, handle: Any) -> float:
    told = smi.call("amdsmi_get_gpu_metrics_info", handle).get("throttle_status")
    if not isinstance(told, (bool, int)):
        raise NotSupportedError("this GPU does not tell whether it is throttled", "nothing to do")
    return float(bool(told))


_ONE_ENGINE: Final = "one engine encodes and decodes"
SENSORS: Final[dict[Quantity, Sensor]] = {
    Quantity.POWER: Sensor(_power("current_socket_power", "average_socket_power")),
    Quantity.POWER_INSTANT: Sensor(_power("current_socket_power")),
    Quantity.POWER_AVERAGE: Sensor(_power("average_socket_power")),
    Quantity.ENERGY: Sensor(_energy),
    Quantity.ENFORCED_LIMIT: Sensor(lambda smi, handle: power_cap_w(smi, handle)["power_cap"]),
    Quantity.GPU_UTILISATION: Sensor(_activity("gfx_activity")),
    Quantity.MEMORY_UTILISATION: Sensor(_activity("umc_activity")),
    Quantity.ENCODER_UTILISATION: Sensor(_activity("mm_activity"), note=_ONE_ENGINE),
    Quantity.DECODER_UTILISATION: Sensor(_activity("mm_activity"), note=_ONE_ENGINE),
    # AMD documents these clocks as means over one second.
    Quantity.SM_CLOCK: Sensor(_clock("GFX"), window_s=1.0),
    Quantity.MEMORY_CLOCK: Sensor(_clock("MEM"), window_s=1.0),
    Quantity.TEMPERATURE: Sensor(_temperature, note="edge, or hotspot where there is no edge"),
    Quantity.FAN: Sensor(_fan),
    Quantity.MEMORY_USED: Sensor(_memory_used),
    Quantity.THROTTLE: Sensor(_throttled, note="1 while throttled; amdsmi does not say why"),
}

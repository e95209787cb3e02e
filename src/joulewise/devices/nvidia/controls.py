"""NVML's knobs: the power limit, and the clocks that can be locked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pynvml

from joulewise.data import Knob, KnobInfo, Unavailable
from joulewise.devices.nvidia.nvml_errors import fault
from joulewise.devices.nvidia.nvml_library import setting_permission
from joulewise.devices.nvidia.sensor_tables import AMPERE, VOLTA
from joulewise.units import MW_PER_W


@dataclass(frozen=True)
class Turn:
    """A knob and how to turn it; by hand, with ``option`` or ``reset_option`` of nvidia-smi."""

    info: KnobInfo
    set: Callable[[float], None]
    reset: Callable[[], None]
    option: str
    reset_option: str
    get: Callable[[], float] | None = None


def open_knobs(handle: Any, gpu: int, architecture: int) -> Mapping[Knob, Turn | Unavailable]:
    """What can be turned, or why not. Nothing is turned to find out."""
    return {
        Knob.POWER_LIMIT: _try(_power_limit, handle, gpu, architecture),
        Knob.SM_CLOCK: _try(_sm_clock, handle, gpu, architecture),
        Knob.MEMORY_CLOCK: _try(_memory_clock, handle, gpu, architecture),
    }


def _try(
    opener: Callable[[Any, int], Turn | Unavailable], handle: Any, gpu: int, architecture: int
) -> Turn | Unavailable:
    try:
        return opener(handle, architecture)
    except pynvml.NVMLError as error:
        return fault(error.value, gpu).unavailable()


def _power_limit(handle: Any, _architecture: int) -> Turn | Unavailable:
    low, high = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    if low == high:
        return Unavailable(f"the maker fixed its power limit at {low / MW_PER_W:g} W")
    default = pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle)

    def turn(limit_w: float) -> None:
        pynvml.nvmlDeviceSetPowerManagementLimit(handle, round(limit_w * MW_PER_W))

    def tell() -> float:
        limit: int = pynvml.nvmlDeviceGetPowerManagementLimit(handle)
        return limit / MW_PER_W

    info = KnobInfo(
        Knob.POWER_LIMIT,
        low / MW_PER_W,
        high / MW_PER_W,
        default / MW_PER_W,
        writable=setting_permission(),
    )
    tell()  # a laptop's limit may have a range and yet not be told
    default_w = default / MW_PER_W
    return Turn(info, turn, lambda: turn(default_w), "-pl {:g}", f"-pl {default_w:g}", tell)


def _sm_clock(handle: Any, architecture: int) -> Turn | Unavailable:
    if architecture < VOLTA:
        return _TOO_OLD
    fastest_memory = max(pynvml.nvmlDeviceGetSupportedMemoryClocks(handle), default=0)
    clocks = pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, fastest_memory)
    return Turn(
        _lock_info(Knob.SM_CLOCK, clocks, setting_permission()),
        lambda mhz: pynvml.nvmlDeviceSetGpuLockedClocks(handle, round(mhz), round(mhz)),
        lambda: pynvml.nvmlDeviceResetGpuLockedClocks(handle),
        "-lgc {0:g},{0:g}",
        "-rgc",
    )


def _memory_clock(handle: Any, architecture: int) -> Turn | Unavailable:
    if architecture < AMPERE:
        return _TOO_OLD
    clocks = pynvml.nvmlDeviceGetSupportedMemoryClocks(handle)
    return Turn(
        _lock_info(Knob.MEMORY_CLOCK, clocks, setting_permission()),
        lambda mhz: pynvml.nvmlDeviceSetMemoryLockedClocks(handle, round(mhz), round(mhz)),
        lambda: pynvml.nvmlDeviceResetMemoryLockedClocks(handle),
        "-lmc {0:g},{0:g}",
        "-rmc",
    )


# NVML documents locks of the SM clock from Volta on, of the memory clock from Ampere on. Its older
# "application clocks" are a wish that boost and other users override, so they are no substitute.
_TOO_OLD: Final = Unavailable("this generation of GPUs cannot lock this clock")


def _lock_info(knob: Knob, clocks: list[int], writable: bool | Unavailable) -> KnobInfo:
    if not clocks:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    choices = tuple(float(clock) for clock in sorted(set(clocks)))
    return KnobInfo(knob, choices[0], choices[-1], None, choices, readable=False, writable=writable)

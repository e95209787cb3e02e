"""NVML's controls: the power limit, and the clocks that can be locked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pynvml

from joulewise.data import ControlInfo, ControlKind, Unavailable
from joulewise.devices.nvidia.nvml_library import fault, setting_permission
from joulewise.devices.nvidia.sensor_tables import AMPERE, VOLTA
from joulewise.units import MW_PER_W

# NVML documents locks of the SM clock from Volta on, of the memory clock from Ampere on. Its older
# "application clocks" are a wish that boost and other users override, so they are no substitute.
_TOO_OLD: Final = Unavailable("this generation of GPUs cannot lock this clock")


@dataclass(frozen=True)
class NvmlControl:
    """A control and how to set it; by hand, with ``option`` or ``reset_option`` of nvidia-smi.

    ``get`` is None where NVML does not report the setting.
    """

    info: ControlInfo
    set: Callable[[float], None]
    reset: Callable[[], None]
    option: str
    reset_option: str
    get: Callable[[], float] | None = None


def open_controls(
    handle: Any, gpu: int, architecture: int
) -> Mapping[ControlKind, NvmlControl | Unavailable]:
    """The controls of a GPU, or why it has none. Nothing is set to find out."""

    def attempt(
        open_control: Callable[[Any, int], NvmlControl | Unavailable],
    ) -> NvmlControl | Unavailable:
        try:
            return open_control(handle, architecture)
        except pynvml.NVMLError as error:
            return fault(error.value, gpu).unavailable()

    return {
        ControlKind.POWER_LIMIT: attempt(_open_power_limit),
        ControlKind.SM_CLOCK: attempt(_open_sm_clock),
        ControlKind.MEMORY_CLOCK: attempt(_open_memory_clock),
    }


def _open_power_limit(handle: Any, _architecture: int) -> NvmlControl | Unavailable:
    low, high = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    if low == high:
        return Unavailable(f"the maker fixed its power limit at {low / MW_PER_W:g} W")
    default_w = pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / MW_PER_W

    def set_limit(limit_w: float) -> None:
        pynvml.nvmlDeviceSetPowerManagementLimit(handle, round(limit_w * MW_PER_W))

    def get_limit() -> float:
        limit: int = pynvml.nvmlDeviceGetPowerManagementLimit(handle)
        return limit / MW_PER_W

    permission = setting_permission()
    info = ControlInfo(
        ControlKind.POWER_LIMIT, low / MW_PER_W, high / MW_PER_W, default_w, writable=permission
    )
    get_limit()  # a laptop's limit may have a range and still not be readable
    option, reset_option = "-pl {:g}", f"-pl {default_w:g}"
    return NvmlControl(
        info, set_limit, lambda: set_limit(default_w), option, reset_option, get_limit
    )


def _open_sm_clock(handle: Any, architecture: int) -> NvmlControl | Unavailable:
    if architecture < VOLTA:
        return _TOO_OLD
    fastest_memory = max(pynvml.nvmlDeviceGetSupportedMemoryClocks(handle), default=0)
    clocks = pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, fastest_memory)
    return _clock_lock(handle, ControlKind.SM_CLOCK, clocks, "Gpu", "gc")


def _open_memory_clock(handle: Any, architecture: int) -> NvmlControl | Unavailable:
    if architecture < AMPERE:
        return _TOO_OLD
    clocks = pynvml.nvmlDeviceGetSupportedMemoryClocks(handle)
    return _clock_lock(handle, ControlKind.MEMORY_CLOCK, clocks, "Memory", "mc")


def _clock_lock(
    handle: Any, control: ControlKind, clocks: list[int], nvml_name: str, option: str
) -> NvmlControl:
    """The lock of a clock, by its name in NVML's functions and in nvidia-smi's options."""
    if not clocks:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def call(verb: str, *arguments: int) -> None:
        getattr(pynvml, f"nvmlDevice{verb}{nvml_name}LockedClocks")(handle, *arguments)

    choices = tuple(float(clock) for clock in sorted(set(clocks)))
    permission = setting_permission()
    return NvmlControl(
        ControlInfo(
            control, choices[0], choices[-1], None, choices, readable=False, writable=permission
        ),
        lambda mhz: call("Set", round(mhz), round(mhz)),
        lambda: call("Reset"),
        f"-l{option} {{0:g}},{{0:g}}",
        f"-r{option}",
    )

"""The fields of ``nvidia-smi --query-gpu`` and ``--query-compute-apps``, and how each is read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import pynvml as nvml

from joulewise.units import B_PER_MIB, MW_PER_W

Getter = Callable[[Any], Any]
NOT_AVAILABLE: Final = "[N/A]"

_COMPUTE_MODES: Final = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
_REASONS: Final = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}


def ask(getter: Getter, handle: Any) -> str:
    """The value as text, ``[N/A]`` where the GPU has none; raises NVMLError of a lost GPU."""
    try:
        return str(getter(handle))
    except nvml.NVMLError as error:
        if error.value in {nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_NO_PERMISSION}:
            return NOT_AVAILABLE
        raise


def compute_mode(handle: Any) -> str:
    return _COMPUTE_MODES[nvml.nvmlDeviceGetComputeMode(handle)]


def _power_field(field: int) -> Getter:
    def read(handle: Any) -> str:
        (value,) = nvml.nvmlDeviceGetFieldValues(handle, [field])
        if value.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(value.nvmlReturn)
        return _watts(value.value.uiVal)

    return read


def _watts(milliwatts: int) -> str:
    return f"{milliwatts / MW_PER_W:.2f}"


def _power(name: str, index: int | None = None) -> Getter:
    def read(handle: Any) -> str:
        answer = getattr(nvml, f"nvmlDeviceGet{name}")(handle)
        return _watts(answer if index is None else answer[index])

    return read


def _clock(name: str, kind: int) -> Getter:
    return lambda handle: getattr(nvml, f"nvmlDeviceGet{name}")(handle, kind)


def _memory(part: str) -> Getter:
    version = nvml.nvmlMemory_v2
    return lambda handle: getattr(nvml.nvmlDeviceGetMemoryInfo(handle, version), part) // B_PER_MIB


def _switch(getter: Getter) -> Getter:
    return lambda handle: "Enabled" if getter(handle) else "Disabled"


def _reason(bit: int) -> Getter:
    def read(handle: Any) -> str:
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return "Active" if reasons & bit else "Not Active"

    return read


def _reasons(prefix: str) -> dict[str, tuple[str, Getter]]:
    current = nvml.nvmlDeviceGetCurrentClocksThrottleReasons
    return {
        f"{prefix}.active": ("", lambda handle: f"0x{current(handle):016X}"),
        **{f"{prefix}.{name}": ("", _reason(bit)) for name, bit in _REASONS.items()},
    }


def _now(_: Any) -> str:
    return f"{datetime.now().astimezone():%Y/%m/%d %H:%M:%S.%f}"[:-3]


def _pci(part: str) -> Getter:
    return lambda handle: getattr(nvml.nvmlDeviceGetPciInfo(handle), part)


GPU_FIELDS: Final[dict[str, tuple[str, Getter]]] = {
    "timestamp": ("", _now),
    "driver_version": ("", lambda _: nvml.nvmlSystemGetDriverVersion()),
    "count": ("", lambda _: nvml.nvmlDeviceGetCount()),
    "index": ("", nvml.nvmlDeviceGetIndex),
    "name": ("", nvml.nvmlDeviceGetName),
    "uuid": ("", nvml.nvmlDeviceGetUUID),
    "serial": ("", nvml.nvmlDeviceGetSerial),
    "vbios_version": ("", nvml.nvmlDeviceGetVbiosVersion),
    "pci.bus_id": ("", _pci("busId")),
    "pci.bus": ("", lambda handle: f"0x{_pci('bus')(handle):02X}"),
    "pci.device_id": ("", lambda handle: f"0x{_pci('pciDeviceId')(handle):08X}"),
    "pcie.link.gen.current": ("", nvml.nvmlDeviceGetCurrPcieLinkGeneration),
    "pcie.link.gen.max": ("", nvml.nvmlDeviceGetMaxPcieLinkGeneration),
    "pcie.link.width.current": ("", nvml.nvmlDeviceGetCurrPcieLinkWidth),
    "pcie.link.width.max": ("", nvml.nvmlDeviceGetMaxPcieLinkWidth),
    "compute_cap": (
        "",
        lambda handle: "{}.{}".format(*nvml.nvmlDeviceGetCudaComputeCapability(handle)),
    ),
    "display_mode": ("", _switch(nvml.nvmlDeviceGetDisplayMode)),
    "display_active": ("", _switch(nvml.nvmlDeviceGetDisplayActive)),
    "persistence_mode": ("", _switch(nvml.nvmlDeviceGetPersistenceMode)),
    "compute_mode": ("", compute_mode),
    "mig.mode.current": ("", _switch(lambda handle: nvml.nvmlDeviceGetMigMode(handle)[0])),
    "ecc.mode.current": ("", _switch(lambda handle: nvml.nvmlDeviceGetEccMode(handle)[0])),
    "ecc.errors.uncorrected.volatile.total": (
        "",
        lambda handle: nvml.nvmlDeviceGetTotalEccErrors(handle, 1, 0),
    ),
    "pstate": ("", lambda handle: f"P{nvml.nvmlDeviceGetPerformanceState(handle)}"),
    "fan.speed": ("%", nvml.nvmlDeviceGetFanSpeed),
    "temperature.gpu": ("", lambda handle: nvml.nvmlDeviceGetTemperature(handle, 0)),
    "utilization.gpu": ("%", lambda handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
    "utilization.memory": ("%", lambda handle: nvml.nvmlDeviceGetUtilizationRates(handle).memory),
    "memory.total": ("MiB", _memory("total")),
    "memory.reserved": ("MiB", _memory("reserved")),
    "memory.used": ("MiB", _memory("used")),
    "memory.free": ("MiB", _memory("free")),
    "power.management": ("", _switch(nvml.nvmlDeviceGetPowerManagementMode)),
    "power.draw": ("W", _power("PowerUsage")),
    "power.draw.average": ("W", _power_field(nvml.NVML_FI_DEV_POWER_AVERAGE)),
    "power.draw.instant": ("W", _power_field(nvml.NVML_FI_DEV_POWER_INSTANT)),
    "power.limit": ("W", _power("PowerManagementLimit")),
    "enforced.power.limit": ("W", _power("EnforcedPowerLimit")),
    "power.default_limit": ("W", _power("PowerManagementDefaultLimit")),
    "power.min_limit": ("W", _power("PowerManagementLimitConstraints", 0)),
    "power.max_limit": ("W", _power("PowerManagementLimitConstraints", 1)),
    "clocks.current.graphics": ("MHz", _clock("ClockInfo", nvml.NVML_CLOCK_GRAPHICS)),
    "clocks.current.sm": ("MHz", _clock("ClockInfo", nvml.NVML_CLOCK_SM)),
    "clocks.current.memory": ("MHz", _clock("ClockInfo", nvml.NVML_CLOCK_MEM)),
    "clocks.current.video": ("MHz", _clock("ClockInfo", nvml.NVML_CLOCK_VIDEO)),
    "clocks.max.graphics": ("MHz", _clock("MaxClockInfo", nvml.NVML_CLOCK_GRAPHICS)),
    "clocks.max.sm": ("MHz", _clock("MaxClockInfo", nvml.NVML_CLOCK_SM)),
    "clocks.max.memory": ("MHz", _clock("MaxClockInfo", nvml.NVML_CLOCK_MEM)),
    "clocks.applications.graphics": ("MHz", _clock("ApplicationsClock", nvml.NVML_CLOCK_GRAPHICS)),
    "clocks.applications.memory": ("MHz", _clock("ApplicationsClock", nvml.NVML_CLOCK_MEM)),
    **_reasons("clocks_throttle_reasons"),
    **_reasons("clocks_event_reasons"),
}
"""Each field's unit, and how to get it from a handle."""

GPU_ALIASES: Final = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_serial": "serial",
    "gpu_bus_id": "pci.bus_id",
    "clocks.gr": "clocks.current.graphics",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks.video": "clocks.current.video",
    "clocks.max.gr": "clocks.max.graphics",
    "clocks.max.mem": "clocks.max.memory",
    "clocks.applications.gr": "clocks.applications.graphics",
    "clocks.applications.mem": "clocks.applications.memory",
}
"""Short names; the header shows the long ones, as nvidia-smi's does."""


def process_name(process: Any) -> str:
    try:
        return str(nvml.nvmlSystemGetProcessName(process.pid))
    except nvml.NVMLError:
        return "[Not Found]"


def process_memory_mib(process: Any) -> int | str:
    used_b = process.usedGpuMemory  # None where the driver does not know
    return NOT_AVAILABLE if used_b is None else used_b // B_PER_MIB


APP_FIELDS: Final[dict[str, tuple[str, Callable[[Any, Any], Any]]]] = {
    "timestamp": ("", lambda handle, _: _now(handle)),
    "gpu_name": ("", lambda handle, _: nvml.nvmlDeviceGetName(handle)),
    "gpu_bus_id": ("", lambda handle, _: _pci("busId")(handle)),
    "gpu_serial": ("", lambda handle, _: ask(nvml.nvmlDeviceGetSerial, handle)),
    "gpu_uuid": ("", lambda handle, _: nvml.nvmlDeviceGetUUID(handle)),
    "pid": ("", lambda _, process: process.pid),
    "process_name": ("", lambda _, process: process_name(process)),
    "used_gpu_memory": ("MiB", lambda _, process: process_memory_mib(process)),
}
"""The same for a process on a GPU."""

APP_ALIASES: Final = {"name": "process_name", "used_memory": "used_gpu_memory"}

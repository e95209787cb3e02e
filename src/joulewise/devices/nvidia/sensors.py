"""NVML's readings as a table: the call for each quantity, and how its answer is converted.

:func:`open_sensors` tries them on a GPU; :func:`read_samples` empties the driver's own buffers.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any, Final

import pynvml

from joulewise.data import Quantity, SensorInfo, Unavailable
from joulewise.devices.nvidia.nvml_library import fault, reading_source
from joulewise.devices.nvidia.power_scopes import POWER_AVERAGE, POWER_INSTANT
from joulewise.devices.nvidia.sensor_tables import Generation, GenerationTiming, sensor_timing
from joulewise.errors import NotSupportedError
from joulewise.units import MJ_PER_J, MW_PER_W

Read = Callable[[], float]
# The members of NVML's union in the order of its types, in the letters of :mod:`struct`.
_UNION: Final = {
    "dVal": "d",
    "uiVal": "I",
    "ulVal": "L",
    "ullVal": "Q",
    "sllVal": "q",
    "siVal": "i",
    "usVal": "H",
}


ENERGY_QUANTITIES: Final = (Quantity.POWER, Quantity.ENERGY)
"""What energy is computed from: opened first (``Options.energy_first``)."""


def open_sensors(
    handle: Any,
    gpu: int,
    generation: Generation,
    quantities: Container[Quantity],
    on_answer: Callable[[], None],
    *,
    rows: Sequence[NvmlReading] | None = None,
) -> tuple[Mapping[Quantity, SensorInfo | Unavailable], Mapping[Quantity, Read]]:
    """Try each reading of ``quantities`` once: its sensor or why there is none, and how to read it.

    ``on_answer`` is called after each. ``rows`` are the readings to try, by default all.
    """
    infos: dict[Quantity, SensorInfo | Unavailable] = {}
    reads: dict[Quantity, Read] = {}
    tried: dict[str, Unavailable | None] = {}
    source = reading_source()
    for row in _ROWS if rows is None else rows:
        if row.quantity in reads or row.quantity not in quantities:
            continue
        read = _bind(row, handle)
        # A slow call is tried once for all its rows.
        if not (row.slow and row.function in tried):
            tried[row.function] = _why_missing(read, gpu)
            on_answer()
        reason = tried[row.function]
        if reason:
            infos[row.quantity] = reason
            continue
        reads[row.quantity] = read
        when = row.own_timing or sensor_timing(
            generation.architecture, generation.capability, row.quantity
        )
        infos[row.quantity] = SensorInfo(
            row.quantity, source, when.update_period_s, when.window_s, slow=row.slow, note=row.note
        )
    return infos, reads


@dataclass(frozen=True)
class NvmlReading:
    """A reading: the call ``nvmlDeviceGet{function}``, and how its answer is converted.

    ``arguments`` follow the handle. ``own_timing`` is None where the generation decides.
    """

    quantity: Quantity
    function: str
    arguments: tuple[Any, ...] = ()
    convert: Callable[[Any], float] = float
    own_timing: GenerationTiming | None = None
    slow: bool = False
    note: str = ""


def _why_missing(read: Read, gpu: int) -> Unavailable | None:
    """Why the GPU or its driver has no such reading; None also on a transient fault."""
    try:
        read()
    except pynvml.NVMLError as error:
        failure = fault(error.value, gpu)
        # The arguments are always the same: a driver that calls them invalid does not know them.
        if failure.error is NotSupportedError or error.value == pynvml.NVML_ERROR_INVALID_ARGUMENT:
            return failure.unavailable()
    return None


def _bind(row: NvmlReading, handle: Any) -> Read:
    function = getattr(pynvml, f"nvmlDeviceGet{row.function}", _missing_function)
    convert, arguments = row.convert, (handle, *row.arguments)
    return lambda: convert(function(*arguments))


def _missing_function(*_arguments: Any) -> int:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def sample_format(value_type: int) -> str:
    """The layout of a sample in memory (for ``struct``): its time, and NVML's union."""
    return f"Q{_UNION[_union_member(value_type)]}0Q"


def _union_member(value_type: int) -> str:
    members = tuple(_UNION)
    member = members[value_type] if value_type < len(members) else ""
    if not hasattr(pynvml.c_nvmlValue_t, member):  # the driver is newer than nvidia-ml-py
        raise pynvml.NVMLError(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    return member


def _watts(milliwatts: int) -> float:
    if not milliwatts:  # a GPU that is on draws some power: 0 stands for no reading
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_DATA)
    return milliwatts / MW_PER_W


def _field_watts(fields: Any) -> float:
    field = fields[0]
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(field.nvmlReturn)
    return _watts(getattr(field.value, _union_member(field.valueType)))


def _joules(millijoules: int) -> float:
    return millijoules / MJ_PER_J


def _megabytes(kilobytes: int) -> float:
    return kilobytes / 1000


def _state(state: int) -> float:
    if state == pynvml.NVML_PSTATE_UNKNOWN:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_DATA)
    return float(state)


def scoped_row(quantity: Quantity, field: int, scope: int, note: str = "") -> NvmlReading:
    """The power of one of NVML's scopes."""
    return NvmlReading(quantity, "FieldValues", ([(field, scope)],), _field_watts, note=note)


_KERNELS: Final = (
    "share of time (the last 1/6 to 1 s) in which any kernel ran, not how much of the GPU it used"
)
_PCIE: Final = "each call takes 20 ms"
_ROWS: Final = (
    # A quantity that is here twice has a call for older drivers or versions of nvidia-ml-py.
    NvmlReading(Quantity.POWER, "PowerUsage", convert=_watts),
    NvmlReading(Quantity.POWER_AVERAGE, "FieldValues", ([POWER_AVERAGE],), _field_watts),
    NvmlReading(Quantity.POWER_INSTANT, "FieldValues", ([POWER_INSTANT],), _field_watts),
    NvmlReading(Quantity.ENERGY, "TotalEnergyConsumption", convert=_joules),
    NvmlReading(Quantity.ENFORCED_LIMIT, "EnforcedPowerLimit", convert=_watts),
    NvmlReading(
        Quantity.GPU_UTILISATION, "UtilizationRates", convert=attrgetter("gpu"), note=_KERNELS
    ),
    NvmlReading(Quantity.MEMORY_UTILISATION, "UtilizationRates", convert=attrgetter("memory")),
    NvmlReading(Quantity.ENCODER_UTILISATION, "EncoderUtilization", convert=itemgetter(0)),
    NvmlReading(Quantity.DECODER_UTILISATION, "DecoderUtilization", convert=itemgetter(0)),
    NvmlReading(Quantity.SM_CLOCK, "ClockInfo", (pynvml.NVML_CLOCK_SM,)),
    NvmlReading(Quantity.MEMORY_CLOCK, "ClockInfo", (pynvml.NVML_CLOCK_MEM,)),
    NvmlReading(Quantity.PERFORMANCE_STATE, "PerformanceState", convert=_state),
    NvmlReading(Quantity.TEMPERATURE, "TemperatureV", (pynvml.NVML_TEMPERATURE_GPU,)),
    NvmlReading(Quantity.TEMPERATURE, "Temperature", (pynvml.NVML_TEMPERATURE_GPU,)),
    NvmlReading(Quantity.FAN, "FanSpeed"),
    NvmlReading(Quantity.MEMORY_USED, "MemoryInfo", (pynvml.nvmlMemory_v2,), attrgetter("used")),
    NvmlReading(Quantity.MEMORY_USED, "MemoryInfo", convert=attrgetter("used")),
    NvmlReading(Quantity.THROTTLE, "CurrentClocksEventReasons"),
    NvmlReading(Quantity.THROTTLE, "CurrentClocksThrottleReasons"),
    *(
        NvmlReading(
            quantity,
            "PcieThroughput",
            (direction,),
            _megabytes,
            own_timing=GenerationTiming(window_s=0.020),
            slow=True,
            note=_PCIE,
        )
        for quantity, direction in (
            (Quantity.PCIE_TX, pynvml.NVML_PCIE_UTIL_TX_BYTES),
            (Quantity.PCIE_RX, pynvml.NVML_PCIE_UTIL_RX_BYTES),
        )
    ),
)


def read_samples(handle: Any, kind: int, since_us: int) -> Iterator[tuple[int, float]]:
    """Time (microseconds of the driver's clock) and value of each sample, oldest first.

    nvidia-ml-py has the same call, but creates an object for each sample, which takes three times
    as long as all the rest.
    """
    count, value_type = ctypes.c_uint(), ctypes.c_uint()
    arguments = (handle, kind, ctypes.c_ulonglong(since_us), ctypes.byref(value_type))
    call = _function()
    _check(call(*arguments, ctypes.byref(count), None))
    buffer = ctypes.create_string_buffer(count.value * ctypes.sizeof(pynvml.c_nvmlSample_t))
    _check(call(*arguments, ctypes.byref(count), buffer))
    form = struct.Struct(sample_format(value_type.value))
    return form.iter_unpack(memoryview(buffer)[: count.value * form.size])


def _function() -> Any:
    try:
        return pynvml.nvmlLib.nvmlDeviceGetSamples
    except AttributeError:  # not there, or NVML is closed
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None


def _check(code: int) -> None:
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)

"""One AMD GPU, through amdsmi."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from joulewise.data import (
    DeviceInfo,
    Kind,
    Knob,
    KnobInfo,
    Process,
    Quantity,
    Reading,
    SensorInfo,
    Source,
    Unavailable,
)
from joulewise.devices.amd.counter_check import (
    AVERAGE_LAG_S,
    CounterVerdict,
    Probe,
    check_counters,
)
from joulewise.devices.amd.dies import Die, die_note, find_dies, silent_sensors
from joulewise.devices.amd.library import Library, number
from joulewise.devices.amd.readings import SENSORS, clock_mhz, power_cap_w
from joulewise.devices.amd.visible import Gpu
from joulewise.devices.base import BaseDevice
from joulewise.devices.options import Options
from joulewise.devices.ranges import for_root_only
from joulewise.errors import DeviceError, NotSupportedError
from joulewise.units import UW_PER_W

Clock = Callable[[], int]
_UNTOLD: Final = Unavailable("amdsmi does not tell what clocks are limited to")
_MEND: Final = "a reboot or a newer amdgpu driver may mend the counter"


def open_gpus(
    smi: Library, gpus: Sequence[Gpu], shown: Sequence[Gpu], options: Options, note: str
) -> list[AmdGpu]:
    """Open those GPUs that are ``shown`` of all ``gpus``, and check their energy counters.

    The counters are checked before anything is recorded, also where a command waits for that: the
    trace and every total would rest on a wrong one until then.
    """
    dies = find_dies(smi, gpus)
    indices = {gpu.index for gpu in shown}
    opened = [_open_gpu(smi, gpu, options, note) for gpu in shown]
    for gpu, device in zip(shown, opened, strict=True):
        if gpu.index in dies:
            device.join_module(dies[gpu.index], options.first_gpu, indices)
    probes = {device: probe for device in opened if (probe := device.counter_probe())}
    for device, verdict in check_counters(probes, options.now_ns, options.sleep).items():
        device.accept_verdict(verdict)
    return opened


def _open_gpu(smi: Library, gpu: Gpu, options: Options, note: str) -> AmdGpu:
    def told(function: str, figure: str, otherwise: str) -> str:
        try:
            answer = smi.call(function, gpu.handle)
        except DeviceError:
            return otherwise
        text = str(answer[figure] if isinstance(answer, dict) else answer).strip()
        return otherwise if text in {"", "N/A"} else text

    bus = told("amdsmi_get_gpu_device_bdf", "", f"amdsmi-{gpu.index}")
    info = DeviceInfo(
        key=f"gpu{options.first_gpu + gpu.index}",
        kind=Kind.GPU,
        name=told("amdsmi_get_gpu_asic_info", "market_name", "AMD GPU"),
        uid=told("amdsmi_get_gpu_device_uuid", "", bus),
        vendor="AMD",
        driver=told("amdsmi_get_gpu_driver_info", "driver_version", ""),
        note=note,
        memory_b=_memory_b(smi, gpu),
    )
    return AmdGpu(smi, gpu, info, options.now_ns)


def _wrong_counter(factor: float, power_w: float | None) -> str:
    if factor > 0:
        return f"the energy counter runs at {factor:.2g} times the power that the GPU reports"
    if factor < 0:
        return "the energy counter runs backwards"
    told = f" while the GPU reports {power_w:.0f} W" if power_w else ""
    return f"the energy counter does not move{told}"


def _memory_b(smi: Library, gpu: Gpu) -> int | None:
    try:
        video_memory = smi.constant("AmdSmiMemoryType", "VRAM")
        return int(number(smi.call("amdsmi_get_gpu_memory_total", gpu.handle, video_memory)))
    except DeviceError:
        return None


class AmdGpu(BaseDevice):
    """A GPU that answers. It keeps amdsmi open until it is closed."""

    def __init__(self, smi: Library, gpu: Gpu, info: DeviceInfo, now_ns: Clock) -> None:
        self.info = info
        self._smi = smi
        smi.retain()
        self._handle = gpu.handle
        self._now_ns = now_ns
        self.sensors: Mapping[Quantity, SensorInfo | Unavailable] = {
            quantity: self._probe(quantity) for quantity in SENSORS
        }
        self.knobs = {
            Knob.POWER_LIMIT: self._power_limit(),
            Knob.SM_CLOCK: self._clock_limit(),
        }

    def join_module(self, die: Die, first_gpu: int, shown: set[int]) -> None:
        """Make it known as one of a module's two dies: its figures are of both, or it has none."""
        note = "; ".join(filter(None, (self.info.note, die_note(die, first_gpu, shown))))
        self.info = replace(self.info, note=note)
        if die.is_silent:
            self.sensors = {**self.sensors, **silent_sensors(die, first_gpu, shown)}
        elif die.other is not None and die.other in shown:
            self.info = replace(self.info, contains=(f"gpu{first_gpu + die.other}",))

    def counter_probe(self) -> Probe | None:
        """How its counter can be checked; None where it has none."""
        if isinstance(self.sensors[Quantity.ENERGY], Unavailable):
            return None
        read_w = partial(SENSORS[Quantity.POWER].read, self._smi, self._handle)
        has_power = isinstance(self.sensors[Quantity.POWER], SensorInfo)
        is_average = isinstance(self.sensors[Quantity.POWER_INSTANT], Unavailable)
        return Probe(
            partial(SENSORS[Quantity.ENERGY].read, self._smi, self._handle),
            read_w if has_power else None,
            AVERAGE_LAG_S if is_average else 0.0,
        )

    def accept_verdict(self, verdict: CounterVerdict) -> None:
        """Give up a counter that is wrong, and say of one that it could not be checked."""
        energy = self.sensors[Quantity.ENERGY]
        if isinstance(energy, Unavailable):
            return
        if verdict.factor is None:
            told = "; ".join(filter(None, (energy.note, verdict.note)))
            self.sensors = {**self.sensors, Quantity.ENERGY: replace(energy, note=told)}
            return
        has_power = isinstance(self.sensors[Quantity.POWER], SensorInfo)
        fix = f"nothing to do: its power is integrated instead; {_MEND}" if has_power else _MEND
        refused = Unavailable(_wrong_counter(verdict.factor, verdict.power_w), fix)
        self.sensors = {**self.sensors, Quantity.ENERGY: refused}

    def _read(self, quantity: Quantity) -> Reading | Unavailable:
        t_ns = self._now_ns()
        try:
            return Reading(SENSORS[quantity].read(self._smi, self._handle), t_ns)
        except DeviceError as error:
            return Unavailable(error.message, error.hint)

    def _processes(self) -> Sequence[Process] | Unavailable:
        try:
            told = self._smi.call("amdsmi_get_gpu_process_list", self._handle)
        except DeviceError as error:
            return Unavailable(error.message, error.hint)
        return [
            Process(each["pid"], each.get("memory_usage", {}).get("vram_mem"), "compute")
            for each in told
            if each["pid"] > 0
        ]

    def _get(self, knob: Knob) -> float | Unavailable:
        if knob is not Knob.POWER_LIMIT:
            return _UNTOLD
        try:
            return power_cap_w(self._smi, self._handle)["power_cap"]
        except DeviceError as error:
            return Unavailable(error.message, error.hint)

    def _set(self, info: KnobInfo, value: float) -> None:
        if info.knob is Knob.POWER_LIMIT:
            self._turn("amdsmi_set_power_cap", 0, round(value * UW_PER_W))
        else:
            self._turn("amdsmi_set_gpu_clk_limit", "sclk", "max", round(value))

    def _reset(self, info: KnobInfo) -> None:
        self._set(info, info.maximum if info.default is None else info.default)
        if info.knob is Knob.SM_CLOCK:
            # A limit on the clock switched the GPU to manual; this hands it back to its governor.
            self._turn(
                "amdsmi_set_gpu_perf_level", self._smi.constant("AmdSmiDevPerfLevel", "AUTO")
            )

    def _release(self) -> None:
        self._smi.release()

    def _probe(self, quantity: Quantity) -> SensorInfo | Unavailable:
        sensor = SENSORS[quantity]
        try:
            sensor.read(self._smi, self._handle)
        except NotSupportedError as error:
            return Unavailable(error.message, error.hint)
        except DeviceError:
            pass  # it may pass, and is told by each reading until then
        return SensorInfo(quantity, Source.MEASURED, window_s=sensor.window_s, note=sensor.note)

    def _power_limit(self) -> KnobInfo | Unavailable:
        try:
            cap = power_cap_w(self._smi, self._handle)
        except DeviceError as error:
            return Unavailable(error.message, error.hint)
        low, high, default = cap["min_power_cap"], cap["max_power_cap"], cap["default_power_cap"]
        if high <= 0:
            return Unavailable("this GPU takes no power cap")
        known = default if low <= default <= high else None
        return KnobInfo(Knob.POWER_LIMIT, low, high, known, writable=for_root_only())

    def _clock_limit(self) -> KnobInfo | Unavailable:
        if not self._smi.has("amdsmi_set_gpu_clk_limit"):
            return Unavailable("this version of amdsmi cannot limit clocks")
        try:
            low, high = (
                clock_mhz(self._smi, self._handle, "GFX", end) for end in ("min_clk", "max_clk")
            )
        except DeviceError as error:
            return Unavailable(error.message, error.hint)
        if high <= 0:
            return Unavailable("this GPU does not tell the range of its clock")
        return KnobInfo(Knob.SM_CLOCK, low, high, None, readable=False, writable=for_root_only())

    def _turn(self, function: str, *arguments: Any) -> None:
        try:
            self._smi.call(function, self._handle, *arguments)
        except DeviceError as error:
            raise type(error)(f"{self.info.key} was not set: {error.message}", error.hint) from None

"""One AMD GPU through amdsmi: how each quantity is read, and modules of two dies.

On MI250 and MI250X, each of a module's two dies is a GPU to HIP and to amdsmi, and one of them
reports power and energy for both:

[1] Linux commit 076f55a45e9e ("Only primary die supports power data"): on Aldebaran the driver
    reports 0 W and 0 J for the secondary die.
[2] ROCm/rocm_smi_lib issue 160: rocm-smi shows "N/A (Secondary die)", and that the primary, usually
    the one above or below, shows the power of both.
[3] ml-energy/zeus pull request 203: eight dies report 89, 0, 93, 0, 88, 0, 88 and 0 W.
[4] Linux commit 3f46c4e9ce25: on Aldebaran the driver reports the bandwidth between two dies: at
    least that of one link, at most that of all links between them.
[5] hwloc, topology-rsmi.c: on Adastra and Frontier (MI250X) the least is 50 GB/s, and the most 50,
    100 or 200 GB/s. The 200, four links, are assumed to be those inside a module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from joulewise.data import (
    ControlInfo,
    ControlKind,
    DeviceInfo,
    Kind,
    Process,
    Quantity,
    Reading,
    SensorInfo,
    Source,
    Unavailable,
)
from joulewise.devices.amd.amdsmi_library import Library, number
from joulewise.devices.amd.counter_check import AVERAGE_LAG_S, CounterVerdict, Probe, check_counters
from joulewise.devices.amd.hip_visible import AmdProcessor
from joulewise.devices.device import (
    BaseDevice,
    Options,
    error_as_unavailable,
    join_notes,
    root_permission,
)
from joulewise.errors import DeviceError, NotSupportedError
from joulewise.units import UJ_PER_J, UW_PER_W

Read = Callable[[Library, Any], float]


@dataclass(frozen=True)
class Sensor:
    """How a quantity is read, in our unit; ``read`` may raise a DeviceError."""

    read: Read
    window_s: float | None = None
    note: str = ""


def power_cap_w(smi: Library, handle: Any) -> dict[str, float]:
    """``power_cap``, ``default_power_cap``, ``min_power_cap`` and ``max_power_cap`` in W."""
    caps = smi.call("amdsmi_get_power_cap_info", handle)
    return {name: number(value) / UW_PER_W for name, value in caps.items()}


def clock_mhz(smi: Library, handle: Any, which: str, figure: str) -> float:
    """A figure (``clk``, ``min_clk``, ``max_clk``) of the clock ``GFX`` or ``MEM``."""
    kind = smi.constant("AmdSmiClkType", which)
    return number(smi.call("amdsmi_get_clock_info", handle, kind)[figure])


def _power(*figures: str) -> Read:
    def read(smi: Library, handle: Any) -> float:
        powers = smi.call("amdsmi_get_power_info", handle)
        for figure in figures:
            value = powers.get(figure)
            # 0 W means "not reported" on generations that have only one of the two figures.
            if isinstance(value, int) and value > 0:
                return float(value)
        raise NotSupportedError(f"this GPU does not report its {figures[0]}", "see power_w")

    return read


def _energy(smi: Library, handle: Any) -> float:
    count = smi.call("amdsmi_get_energy_count", handle)
    ticks = count.get("energy_accumulator", count.get("power"))  # its name until amdsmi 6.3
    return number(ticks) * number(count["counter_resolution"]) / UJ_PER_J


def _activity(engine: str) -> Read:
    return lambda smi, handle: number(smi.call("amdsmi_get_gpu_activity", handle)[engine])


def _clock(which: str) -> Read:
    return lambda smi, handle: clock_mhz(smi, handle, which, "clk")


def _temperature(smi: Library, handle: Any) -> float:
    now = smi.constant("AmdSmiTemperatureMetric", "CURRENT")

    def read(sensor: str) -> float:
        kind = smi.constant("AmdSmiTemperatureType", sensor)
        return number(smi.call("amdsmi_get_temp_metric", handle, kind, now))

    try:
        return read("EDGE")
    except NotSupportedError:
        return read("HOTSPOT")


def _fan(smi: Library, handle: Any) -> float:
    highest = number(smi.call("amdsmi_get_gpu_fan_speed_max", handle, 0))
    if highest <= 0:
        raise NotSupportedError("this GPU has no fan of its own", "nothing to do")
    return 100 * number(smi.call("amdsmi_get_gpu_fan_speed", handle, 0)) / highest


def _memory_used(smi: Library, handle: Any) -> float:
    video_memory = smi.constant("AmdSmiMemoryType", "VRAM")
    return number(smi.call("amdsmi_get_gpu_memory_usage", handle, video_memory))


def _throttled(smi: Library, handle: Any) -> float:
    status = smi.call("amdsmi_get_gpu_metrics_info", handle).get("throttle_status")
    if not isinstance(status, (bool, int)):
        raise NotSupportedError("this GPU does not report whether it is throttled", "nothing to do")
    return float(bool(status))


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


_NAME: Final = "MI250"
_DEVICE_IDS: Final = frozenset({0x7408, 0x740C})  # MI250X and MI250, by their PCI ids
_LINKS_IN_MODULE: Final = 4  # between the two dies of a module [5]
_ENERGY: Final = (
    *(Quantity.POWER, Quantity.POWER_INSTANT, Quantity.POWER_AVERAGE),
    *(Quantity.ENERGY, Quantity.ENFORCED_LIMIT),
)


@dataclass(frozen=True)
class Die:
    """One of the two dies of a module, by amdsmi's index.

    ``is_silent`` is whether the other reports for it; ``other`` is None where it is not known,
    such as in a container that has one of the two.
    """

    index: int
    other: int | None
    is_silent: bool


def find_dies(smi: Library, gpus: Sequence[AmdProcessor]) -> dict[int, Die]:
    """The dies of two-die modules among the GPUs, by index. Never raises."""
    dies = [gpu for gpu in gpus if gpu.whole == gpu.index and _is_half(smi, gpu)]
    silent = {gpu.index for gpu in dies if _is_silent(smi, gpu)}
    reporters = {
        gpu.index: _find_reporter(smi, gpu, dies, silent) for gpu in dies if gpu.index in silent
    }
    others = {**reporters, **{i: part for part, i in reporters.items() if i is not None}}
    return {gpu.index: Die(gpu.index, others.get(gpu.index), gpu.index in silent) for gpu in dies}


def _is_half(smi: Library, gpu: AmdProcessor) -> bool:
    try:
        asic = smi.call("amdsmi_get_gpu_asic_info", gpu.handle)
        return _NAME in str(asic.get("market_name")) or _device_id(asic) in _DEVICE_IDS
    except DeviceError:
        return False


def _device_id(asic: Mapping[str, Any]) -> int | None:
    """The PCI id: a number or its hexadecimal text, by amdsmi's version."""
    device_id = asic.get("device_id")
    try:
        return device_id if isinstance(device_id, int) else int(str(device_id), 16)
    except ValueError:
        return None


def _is_silent(smi: Library, gpu: AmdProcessor) -> bool:
    """Whether it reports no power, and no counter but one at 0; not so on a transient fault."""
    try:
        SENSORS[Quantity.POWER].read(smi, gpu.handle)
    except NotSupportedError:
        pass
    except DeviceError:
        return False
    else:
        return False
    try:
        return SENSORS[Quantity.ENERGY].read(smi, gpu.handle) == 0
    except NotSupportedError:
        return True
    except DeviceError:
        return False


def _find_reporter(
    smi: Library, gpu: AmdProcessor, dies: Sequence[AmdProcessor], silent: set[int]
) -> int | None:
    """The index of the die that reports for this one: the one that all of a module's links join.

    Where the driver reports no links and all modules seem complete, dies are counted in pairs.
    """
    links = {other.index: _count_links(smi, gpu, other) for other in dies if other is not gpu}
    if any(links.values()):
        partners = [index for index, count in links.items() if count >= _LINKS_IN_MODULE]
    else:
        position = dies.index(gpu)
        partners = [dies[position ^ 1].index] if len(dies) % 2 == 0 else []
    return partners[0] if len(partners) == 1 and partners[0] not in silent else None


def _count_links(smi: Library, gpu: AmdProcessor, other: AmdProcessor) -> int:
    """The number of direct links between two dies; 0 where there is none, or it is unknown."""
    function = "amdsmi_get_minmax_bandwidth_between_processors"
    try:
        bandwidth = smi.call(function, gpu.handle, other.handle)
        one_link, all_links = number(bandwidth["min_bandwidth"]), number(bandwidth["max_bandwidth"])
    except (DeviceError, KeyError):
        return 0
    return round(all_links / one_link) if one_link > 0 else 0


def silent_sensors(die: Die, first_gpu: int, shown: set[int]) -> dict[Quantity, Unavailable]:
    """The reason why a silent die has neither power nor energy, for each such quantity."""
    reporter = "the other die" if die.other is None else f"gpu{first_gpu + die.other}"
    reason = f"{reporter} reports the power and energy of both dies of its module"
    if die.other is None:
        fix = "give the job both dies of the module: the other is not among the GPUs here"
    elif die.other in shown:
        fix = f"nothing to do: what it draws is counted with {reporter}"
    else:
        fix = f"let the job see {reporter} as well (ROCR_VISIBLE_DEVICES)"
    return dict.fromkeys(_ENERGY, Unavailable(reason, fix))


def die_note(die: Die, first_gpu: int, shown: set[int]) -> str:
    """A note for readers of a die's figures."""
    other = "the other die" if die.other is None else f"gpu{first_gpu + die.other}"
    if die.is_silent:
        return f"one of two dies of a module, for which {other} reports"
    note = f"its power and energy are those of both dies of its module, {other} included"
    if die.other is None or die.other not in shown:
        note += ", which the job does not see and others may use"
    return note


Clock = Callable[[], int]
_NO_CLOCK_LIMIT: Final = Unavailable("amdsmi does not report what clocks are limited to")
_REPAIR: Final = "a reboot or a newer amdgpu driver may repair the counter"


def open_gpus(
    smi: Library,
    gpus: Sequence[AmdProcessor],
    shown: Sequence[AmdProcessor],
    options: Options,
    note: str,
) -> list[AmdGpu]:
    """Open the GPUs ``shown`` among all ``gpus``, and check their energy counters.

    The counters are checked before anything is recorded, even while a command waits for that: until
    then the trace and every total could come from a wrong one.
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


def _open_gpu(smi: Library, gpu: AmdProcessor, options: Options, note: str) -> AmdGpu:
    def query(function: str, figure: str, default: str) -> str:
        try:
            answer = smi.call(function, gpu.handle)
        except DeviceError:
            return default
        text = str(answer[figure] if isinstance(answer, dict) else answer).strip()
        return default if text in {"", "N/A"} else text

    bus = query("amdsmi_get_gpu_device_bdf", "", f"amdsmi-{gpu.index}")
    info = DeviceInfo(
        key=f"gpu{options.first_gpu + gpu.index}",
        kind=Kind.GPU,
        name=query("amdsmi_get_gpu_asic_info", "market_name", "AMD GPU"),
        uid=query("amdsmi_get_gpu_device_uuid", "", bus),
        vendor="AMD",
        driver=query("amdsmi_get_gpu_driver_info", "driver_version", ""),
        note=note,
        memory_b=_memory_b(smi, gpu),
    )
    return AmdGpu(smi, gpu, info, options.now_ns)


def _describe_wrong_counter(factor: float, power_w: float | None) -> str:
    if factor > 0:
        return f"the energy counter runs at {factor:.2g} times the power that the GPU reports"
    if factor < 0:
        return "the energy counter runs backwards"
    power = f" while the GPU reports {power_w:.0f} W" if power_w else ""
    return f"the energy counter does not move{power}"


def _memory_b(smi: Library, gpu: AmdProcessor) -> int | None:
    try:
        video_memory = smi.constant("AmdSmiMemoryType", "VRAM")
        return int(number(smi.call("amdsmi_get_gpu_memory_total", gpu.handle, video_memory)))
    except DeviceError:
        return None


class AmdGpu(BaseDevice):
    """A GPU that answers. It holds amdsmi until it is closed."""

    def __init__(self, smi: Library, gpu: AmdProcessor, info: DeviceInfo, now_ns: Clock) -> None:
        self.info = info
        self._smi = smi
        smi.retain()
        self._handle = gpu.handle
        self._now_ns = now_ns
        self.sensors: Mapping[Quantity, SensorInfo | Unavailable] = {
            quantity: self._probe(quantity) for quantity in SENSORS
        }
        self.controls = {
            ControlKind.POWER_LIMIT: self._power_limit(),
            ControlKind.SM_CLOCK: self._clock_limit(),
        }

    def join_module(self, die: Die, first_gpu: int, shown: set[int]) -> None:
        """Mark it as one of a module's two dies: its figures are those of both, or it has none."""
        note = join_notes(self.info.note, die_note(die, first_gpu, shown))
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
        """Drop a counter that is wrong, and note of another that it could not be checked."""
        energy = self.sensors[Quantity.ENERGY]
        if isinstance(energy, Unavailable):
            return
        if verdict.factor is None:
            note = join_notes(energy.note, verdict.note)
            self.sensors = {**self.sensors, Quantity.ENERGY: replace(energy, note=note)}
            return
        has_power = isinstance(self.sensors[Quantity.POWER], SensorInfo)
        fix = f"nothing to do: its power is integrated instead; {_REPAIR}" if has_power else _REPAIR
        refused = Unavailable(_describe_wrong_counter(verdict.factor, verdict.power_w), fix)
        self.sensors = {**self.sensors, Quantity.ENERGY: refused}

    def _read(self, quantity: Quantity) -> Reading | Unavailable:
        t_ns = self._now_ns()
        try:
            return Reading(SENSORS[quantity].read(self._smi, self._handle), t_ns)
        except DeviceError as error:
            return error_as_unavailable(error)

    def _processes(self) -> Sequence[Process] | Unavailable:
        try:
            processes = self._smi.call("amdsmi_get_gpu_process_list", self._handle)
        except DeviceError as error:
            return error_as_unavailable(error)
        return [
            Process(entry["pid"], entry.get("memory_usage", {}).get("vram_mem"), "compute")
            for entry in processes
            if entry["pid"] > 0
        ]

    def _get(self, control: ControlKind) -> float | Unavailable:
        if control is not ControlKind.POWER_LIMIT:
            return _NO_CLOCK_LIMIT
        try:
            return power_cap_w(self._smi, self._handle)["power_cap"]
        except DeviceError as error:
            return error_as_unavailable(error)

    def _set(self, info: ControlInfo, value: float) -> None:
        if info.control is ControlKind.POWER_LIMIT:
            self._call_setter("amdsmi_set_power_cap", 0, round(value * UW_PER_W))
        else:
            self._call_setter("amdsmi_set_gpu_clk_limit", "sclk", "max", round(value))

    def _reset(self, info: ControlInfo) -> None:
        self._set(info, info.maximum if info.default is None else info.default)
        if info.control is ControlKind.SM_CLOCK:
            # A limit on the clock switched the GPU to manual; this hands it back to its governor.
            self._call_setter(
                "amdsmi_set_gpu_perf_level", self._smi.constant("AmdSmiDevPerfLevel", "AUTO")
            )

    def _release(self) -> None:
        self._smi.release()

    def _probe(self, quantity: Quantity) -> SensorInfo | Unavailable:
        sensor = SENSORS[quantity]
        try:
            sensor.read(self._smi, self._handle)
        except NotSupportedError as error:
            return error_as_unavailable(error)
        except DeviceError:
            pass  # a transient fault, which each reading reports while it lasts
        return SensorInfo(quantity, Source.MEASURED, window_s=sensor.window_s, note=sensor.note)

    def _power_limit(self) -> ControlInfo | Unavailable:
        try:
            cap = power_cap_w(self._smi, self._handle)
        except DeviceError as error:
            return error_as_unavailable(error)
        low, high, default = cap["min_power_cap"], cap["max_power_cap"], cap["default_power_cap"]
        if high <= 0:
            return Unavailable("this GPU takes no power cap")
        default_w = default if low <= default <= high else None
        return ControlInfo(
            ControlKind.POWER_LIMIT, low, high, default_w, writable=root_permission()
        )

    def _clock_limit(self) -> ControlInfo | Unavailable:
        if not self._smi.has("amdsmi_set_gpu_clk_limit"):
            return Unavailable("this version of amdsmi cannot limit clocks")
        try:
            low, high = (
                clock_mhz(self._smi, self._handle, "GFX", end) for end in ("min_clk", "max_clk")
            )
        except DeviceError as error:
            return error_as_unavailable(error)
        if high <= 0:
            return Unavailable("this GPU does not report the range of its clock")
        return ControlInfo(
            ControlKind.SM_CLOCK, low, high, None, readable=False, writable=root_permission()
        )

    def _call_setter(self, function: str, *arguments: Any) -> None:
        try:
            self._smi.call(function, self._handle, *arguments)
        except DeviceError as error:
            raise type(error)(f"{self.info.key} was not set: {error.message}", error.hint) from None

"""One NVIDIA GPU through NVML, or one that does not respond: lost, asleep or out of reach."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import monotonic_ns
from typing import Any, Final, NoReturn

import pynvml

from joulewise.data import (
    ControlInfo,
    ControlKind,
    DeviceInfo,
    DriverSample,
    PowerScope,
    Process,
    Quantity,
    Reading,
    SensorInfo,
    Unavailable,
)
from joulewise.devices.cuda_visible import IN_MIG_MODE
from joulewise.devices.device import BaseDevice, Device, Options, join_notes
from joulewise.devices.nvidia import nvml_library
from joulewise.devices.nvidia.controls import NvmlControl, open_controls
from joulewise.devices.nvidia.nvml_library import (
    NvmlFailure,
    fault,
    generation,
    memory_b,
    mig_slices,
)
from joulewise.devices.nvidia.power_scopes import (
    GPU,
    GPU_PART,
    MEMORY,
    MEMORY_PART,
    MODULE,
    NO_CONTENTS,
    NO_PART,
    PARTS,
    POWER_AVERAGE,
    POWER_INSTANT,
    UNSCOPED_SAMPLES,
    assume_scope,
    describe_scope,
    find_limit_scope,
    find_module_limit_w,
    module_contents,
    probe_scopes,
    watch_counter,
)
from joulewise.devices.nvidia.sensor_tables import sensor_timing
from joulewise.devices.nvidia.sensors import (
    ENERGY_QUANTITIES,
    NvmlReading,
    open_sensors,
    read_samples,
    scoped_row,
)
from joulewise.errors import DeviceError, PermissionDeniedError
from joulewise.units import MW_PER_W, NS_PER_MS, NS_PER_US

_SAMPLES: Final[Mapping[Quantity, tuple[int, int]]] = {
    Quantity.POWER: (pynvml.NVML_TOTAL_POWER_SAMPLES, MW_PER_W),
    Quantity.GPU_UTILISATION: (pynvml.NVML_GPU_UTILIZATION_SAMPLES, 1),
    Quantity.MEMORY_UTILISATION: (pynvml.NVML_MEMORY_UTILIZATION_SAMPLES, 1),
    Quantity.ENCODER_UTILISATION: (pynvml.NVML_ENC_UTILIZATION_SAMPLES, 1),
    Quantity.DECODER_UTILISATION: (pynvml.NVML_DEC_UTILIZATION_SAMPLES, 1),
    Quantity.SM_CLOCK: (pynvml.NVML_PROCESSOR_CLK_SAMPLES, 1),
    Quantity.MEMORY_CLOCK: (pynvml.NVML_MEMORY_CLK_SAMPLES, 1),
}
# The largest difference (W) between a limit that was set and the one read back. Chosen: drivers
# round to whole watts. Doubled, a limit that is off by a watt goes unnoticed.
_SET_TOLERANCE_W: Final = 0.5


class NvidiaGpu(BaseDevice):
    """A GPU that answers. It holds NVML until it is closed.

    At first it has power and energy, and no controls: ``complete`` finds the rest.
    """

    def __init__(
        self,
        info: DeviceInfo,
        handle: Any,
        gpu: int,
        on_answer: Callable[[], None],
        options: Options | None = None,
    ) -> None:
        self.info = info
        self._handle = handle
        self._gpu = gpu
        self._options = options or Options()
        self._generation = generation(handle, on_answer)
        self.sensors, self._reads = open_sensors(
            handle, gpu, self._generation, ENERGY_QUANTITIES, on_answer
        )
        self._scopes = probe_scopes(
            handle, self._generation.architecture, self._reads.get(Quantity.POWER)
        )
        on_answer()
        self._note = info.note
        self._plain = self.sensors, self._reads
        self._is_complete = False
        scope, self._assumed = assume_scope(self._scopes, self._options)
        self._set_scope(scope, on_answer)
        self.controls: Mapping[ControlKind, ControlInfo | Unavailable] = {}
        self._controls: Mapping[ControlKind, NvmlControl] = {}
        nvml_library.acquire()

    @property
    def is_complete(self) -> bool:
        """Whether all its sensors and controls are known."""
        return self._is_complete

    def complete(self, on_answer: Callable[[], None] = lambda: None) -> None:
        """Find everything else: ``info``, ``sensors`` and ``controls`` are complete afterwards.

        About 20 calls, of which those for PCIe throughput take 20 ms each. Never raises.
        """
        others = [quantity for quantity in Quantity if quantity not in ENERGY_QUANTITIES]
        sensors, reads = open_sensors(self._handle, self._gpu, self._generation, others, on_answer)
        parts, part_reads = self._open_scoped(self._scoped_rows(), on_answer)
        lacking = {part: NO_PART for part in PARTS if part not in self.sensors}
        sensors, reads = {**sensors, **lacking, **parts}, {**reads, **part_reads}
        controls = open_controls(self._handle, self._gpu, self._generation.architecture)
        on_answer()
        info = self._complete_info()
        if self._closed:
            return
        self._reads = {**self._reads, **reads}
        self._controls = {k: c for k, c in controls.items() if isinstance(c, NvmlControl)}
        self.sensors = {**self.sensors, **sensors}
        self.controls = {
            k: c.info if isinstance(c, NvmlControl) else c for k, c in controls.items()
        }
        self.info = info
        self._is_complete = True

    def check_scope(self, on_answer: Callable[[], None] = lambda: None) -> bool:
        """On a module: find out what the counter covers, and read the power of the same scope.

        Takes up to three seconds, on other boards no time. Whether ``info`` has changed.
        """
        read_j = self._reads.get(Quantity.ENERGY)
        if not self._scopes.has_module or read_j is None:
            return False
        scope = None

        def read_and_answer_j() -> float:
            energy_j = read_j()
            on_answer()  # a watch takes longer than a driver may take to answer
            return energy_j

        # On a busy machine the polls are few, and a load that changes meanwhile may mislead one
        # watch: only a result that two of them agree on replaces the assumed scope.
        for _ in range(2):
            watched = watch_counter(
                self._handle, read_and_answer_j, monotonic_ns, self._options.sleep
            )
            if watched in (None, self.info.power_scope) or self._closed:
                return False
            if scope not in (None, watched):
                return False
            scope = watched
        self._set_scope(scope, on_answer)
        sensors, reads = self._open_scoped(self._scoped_rows(), on_answer)
        if not self._closed:
            self.sensors = {**self.sensors, **sensors}
            self._reads = {**self._reads, **reads}
        return True

    def _set_scope(self, scope: PowerScope | None, on_answer: Callable[[], None]) -> None:
        """Read the power of this scope; ``info`` names what a module contains."""
        sensors, reads = self._plain
        contents = NO_CONTENTS
        field = {PowerScope.MODULE: MODULE, PowerScope.GPU: GPU}.get(scope) if scope else None
        if self._scopes.has_module and field is not None and field in self._scopes.fields:
            rows = [self._power_row(field)]
            if scope is PowerScope.MODULE and GPU in self._scopes.fields:
                part = self._scopes.fields[GPU]
                rows.append(scoped_row(Quantity.GPU_POWER, part, GPU, GPU_PART))
            scoped, scoped_reads = self._open_scoped(rows, on_answer)
            sensors, reads = {**sensors, **scoped}, {**reads, **scoped_reads}
        if scope is PowerScope.MODULE:
            contents = module_contents(
                self._handle, self._gpu, self._generation.architecture, self._options
            )
        note = join_notes(self._note, describe_scope(scope, contents, self._assumed))
        self.info = replace(self.info, power_scope=scope, contains=contents.keys, note=note)
        if Quantity.GPU_POWER not in reads:  # it may have been a part of the scope before
            self._reads = {q: read for q, read in self._reads.items() if q != Quantity.GPU_POWER}
            lacking = {Quantity.GPU_POWER: NO_PART} if self._is_complete else {}
            sensors = {**sensors, **lacking}
        self.sensors = {**self.sensors, **sensors}
        self._reads = {**self._reads, **reads}

    def _power_row(self, scope: int) -> NvmlReading:
        """How to read the power of a scope: where a counter has the energy, the instant power.

        An average over a second does not show the last moments of a run before it has ended.
        """
        if Quantity.ENERGY not in self._reads or scope not in self._scopes.instant:
            return scoped_row(Quantity.POWER, self._scopes.fields[scope], scope)
        generation = self._generation
        instant = sensor_timing(
            generation.architecture, generation.capability, Quantity.POWER_INSTANT
        )
        return replace(scoped_row(Quantity.POWER, POWER_INSTANT, scope), own_timing=instant)

    def _scoped_rows(self) -> list[NvmlReading]:
        """How to read the other powers of a module, and the parts that the driver reports."""
        rows = []
        if self._scopes.has_module:
            scope = MODULE if self.info.power_scope is PowerScope.MODULE else GPU
            rows.append(scoped_row(Quantity.POWER_AVERAGE, POWER_AVERAGE, scope))
            rows.append(scoped_row(Quantity.POWER_INSTANT, POWER_INSTANT, scope))
        if MEMORY in self._scopes.fields:
            field = self._scopes.fields[MEMORY]
            rows.append(scoped_row(Quantity.MEMORY_POWER, field, MEMORY, MEMORY_PART))
        return rows

    def _open_scoped(
        self, rows: Sequence[NvmlReading], on_answer: Callable[[], None]
    ) -> tuple[Mapping[Quantity, SensorInfo | Unavailable], Mapping[Quantity, Callable[[], float]]]:
        return open_sensors(
            self._handle, self._gpu, self._generation, tuple(Quantity), on_answer, rows=rows
        )

    def _complete_info(self) -> DeviceInfo:
        slices, note = self.info.slices, self.info.note
        if not slices and (migs := mig_slices(self._handle)):
            slices = tuple(mig.uuid for mig in migs)
            note, self._note = (join_notes(IN_MIG_MODE, each) for each in (note, self._note))
        has_module = self._scopes.has_module
        return replace(
            self.info,
            slices=slices,
            note=note,
            memory_b=memory_b(self._handle),
            limit_scope=find_limit_scope(self._handle) if has_module else None,
            module_limit_w=find_module_limit_w(self._handle) if has_module else None,
        )

    def read(self, quantity: Quantity) -> Reading | Unavailable:
        read = self._reads.get(quantity)
        if read is None:
            return super().read(quantity)
        t_ns = monotonic_ns()
        try:
            return Reading(read(), t_ns)
        except pynvml.NVMLError as error:
            return self._fault(error).unavailable()

    def _samples(self, quantity: Quantity, since_us: int) -> Sequence[DriverSample] | Unavailable:
        if quantity not in _SAMPLES:
            return super()._samples(quantity, since_us)
        if quantity is Quantity.POWER and self._scopes.has_module:
            return UNSCOPED_SAMPLES
        kind, factor = _SAMPLES[quantity]
        try:
            samples = read_samples(self._handle, kind, since_us)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_FOUND:  # nothing newer
                return []
            return self._fault(error).unavailable()
        return [DriverSample(t_us, value / factor) for t_us, value in samples if t_us > since_us]

    def _processes(self) -> Sequence[Process] | Unavailable:
        try:
            compute = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(self._handle)
            graphics = pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3(self._handle)
        except pynvml.NVMLError as error:
            return self._fault(error).unavailable()
        mps_clients = self._mps_clients() if compute else ()  # only their server is in the list
        computing = {process.pid: process for process in (*mps_clients, *compute)}
        by_pid: dict[int, Process] = {}
        for kind, processes in (("compute", computing.values()), ("graphics", graphics)):
            for process in processes:
                pid = process.pid
                both = f"{by_pid[pid].kind}+{kind}" if pid in by_pid else kind
                by_pid[pid] = Process(pid, process.usedGpuMemory, both)
        return list(by_pid.values())

    def _ended_processes(self, since_us: int) -> Sequence[Process] | Unavailable:
        """From the driver's accounting mode, where an administrator has switched it on.

        joulewise does not: it costs every process a little, and clears earlier records.
        """
        try:
            if pynvml.nvmlDeviceGetAccountingMode(self._handle) != pynvml.NVML_FEATURE_ENABLED:
                return Unavailable("accounting mode is off")
            pids = pynvml.nvmlDeviceGetAccountingPids(self._handle)
        except pynvml.NVMLError as error:
            return self._fault(error).unavailable()
        return [p for pid in pids if (p := self._ended_process(pid, since_us)) is not None]

    def _ended_process(self, pid: int, since_us: int) -> Process | None:
        """A process that ended after ``since_us``; None for any other, and if it is forgotten."""
        try:
            stats = pynvml.nvmlDeviceGetAccountingStats(self._handle, pid)
        except pynvml.NVMLError:
            return None
        end_us = stats.startTime + stats.time * (NS_PER_MS // NS_PER_US)
        if stats.isRunning or end_us < since_us:
            return None
        return Process(pid, stats.maxMemoryUsage, "compute")

    def _mps_clients(self) -> Sequence[Any]:
        """Clients of CUDA MPS (Multi-Process Service)."""
        try:
            clients: Sequence[Any] = pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(self._handle)
        except pynvml.NVMLError:  # not supported by this GPU or library
            return ()
        return clients

    def _get(self, control: ControlKind) -> float | Unavailable:
        get = self._controls[control].get
        if get is None:
            return Unavailable("NVML does not report whether a clock is locked")
        try:
            return get()
        except pynvml.NVMLError as error:
            return self._fault(error).unavailable()

    def _set(self, info: ControlInfo, value: float) -> None:
        control = self._controls[info.control]
        failure = f"{self.info.key} was not set to {info.control.value}={value:g}"
        try:
            control.set(value)
            now = control.get() if control.get else value
        except pynvml.NVMLError as error:
            raise self._refusal(error, failure, control.option.format(value)) from None
        if abs(now - value) > _SET_TOLERANCE_W:
            raise DeviceError(
                f"{failure}: it is at {now:g}",
                "something else holds it: see `nvidia-smi -q -d POWER,PERFORMANCE`",
            )

    def _reset(self, info: ControlInfo) -> None:
        control = self._controls[info.control]
        try:
            control.reset()
        except pynvml.NVMLError as error:
            failure = f"{self.info.key}'s {info.control.value} was not reset"
            raise self._refusal(error, failure, control.reset_option) from None

    def _release(self) -> None:
        self._reads = {}
        nvml_library.release()

    def _fault(self, error: Any) -> NvmlFailure:
        return fault(error.value, self._gpu)

    def _refusal(self, error: Any, failure: str, option: str) -> Exception:
        reason = self._fault(error)
        if reason.error is not PermissionDeniedError:
            return reason.exception(failure)
        by_hand = f"sudo nvidia-smi -i {self._gpu} {option}"
        return reason.exception(
            failure, f"{reason.fix}; or set it by hand, which stays: `{by_hand}`"
        )


_CONTROLS = (ControlKind.POWER_LIMIT, ControlKind.SM_CLOCK, ControlKind.MEMORY_CLOCK)


class UnresponsiveGpu(BaseDevice):
    """A GPU that does not answer; all its readings are Unavailable for one reason.

    It is listed so that no total leaves it out unnoticed. ``reopen`` opens it again. ``asleep`` is
    whether the kernel had suspended it when that was last checked.
    """

    def __init__(
        self,
        info: DeviceInfo,
        fault: NvmlFailure,
        reopen: Callable[[], Device | None],
        *,
        asleep: bool = False,
    ) -> None:
        self.info = info
        self.asleep = asleep
        self._reopen = reopen
        self._fault = fault
        self._reason = fault.unavailable()
        self.sensors = {q: self._reason for q in Quantity if q is not Quantity.LOAD}
        self.controls = dict.fromkeys(_CONTROLS, self._reason)

    def reopened(self) -> Device | None:
        """Try again, without waking it: the GPU itself once it answers, else None."""
        device = self._reopen()
        if isinstance(device, UnresponsiveGpu):
            self.asleep = device.asleep
            return None
        self.asleep = False
        return device

    def _samples(self, _quantity: Quantity, _since_us: int) -> Unavailable:
        return self._reason

    def _processes(self) -> Unavailable:
        return self._reason

    def _ended_processes(self, _since_us: int) -> Unavailable:
        return self._reason

    def _settable(self, control: ControlKind) -> NoReturn:
        raise self._fault.exception(f"{self.info.key}'s {control.value} cannot be set")

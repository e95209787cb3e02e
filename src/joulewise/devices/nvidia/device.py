"""One NVIDIA GPU, through NVML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic_ns
from typing import Any, Final

import pynvml

from joulewise.data import (
    DeviceInfo,
    Knob,
    KnobInfo,
    Process,
    Quantity,
    Reading,
    Sample,
    Unavailable,
)
from joulewise.devices.base import BaseDevice
from joulewise.devices.nvidia.faults import Fault, fault
from joulewise.devices.nvidia.knobs import Turn, open_knobs
from joulewise.devices.nvidia.samples import read_samples
from joulewise.devices.nvidia.sensors import open_sensors
from joulewise.errors import DeviceError, PermissionDeniedError
from joulewise.units import MW_PER_W

_SAMPLES: Final[Mapping[Quantity, tuple[int, int]]] = {
    Quantity.POWER: (pynvml.NVML_TOTAL_POWER_SAMPLES, MW_PER_W),
    Quantity.GPU_UTILISATION: (pynvml.NVML_GPU_UTILIZATION_SAMPLES, 1),
    Quantity.MEMORY_UTILISATION: (pynvml.NVML_MEMORY_UTILIZATION_SAMPLES, 1),
    Quantity.ENCODER_UTILISATION: (pynvml.NVML_ENC_UTILIZATION_SAMPLES, 1),
    Quantity.DECODER_UTILISATION: (pynvml.NVML_DEC_UTILIZATION_SAMPLES, 1),
    Quantity.SM_CLOCK: (pynvml.NVML_PROCESSOR_CLK_SAMPLES, 1),
    Quantity.MEMORY_CLOCK: (pynvml.NVML_MEMORY_CLK_SAMPLES, 1),
}
_TAKEN_W: Final = 0.5


class NvidiaGpu(BaseDevice):
    """A GPU that answers. It holds one of NVML's counted initialisations until it is closed."""

    def __init__(
        self,
        info: DeviceInfo,
        handle: Any,
        gpu: int,
        architecture: int,
        capability: tuple[int, int],
    ) -> None:
        pynvml.nvmlInit()
        self.info = info
        self.sensors, self._reads = open_sensors(handle, gpu, architecture, capability)
        turns = open_knobs(handle, gpu, architecture)
        self.knobs = {k: turn.info if isinstance(turn, Turn) else turn for k, turn in turns.items()}
        self._turns = {k: turn for k, turn in turns.items() if isinstance(turn, Turn)}
        self._handle = handle
        self._gpu = gpu

    def read(self, quantity: Quantity) -> Reading | Unavailable:
        read = self._reads.get(quantity)
        if read is None:
            return super().read(quantity)
        t_ns = monotonic_ns()
        try:
            return Reading(read(), t_ns)
        except pynvml.NVMLError as error:
            return self._fault(error).unavailable()

    def _samples(self, quantity: Quantity, since_us: int) -> Sequence[Sample] | Unavailable:
        if quantity not in _SAMPLES:
            return super()._samples(quantity, since_us)
        kind, factor = _SAMPLES[quantity]
        try:
            samples = read_samples(self._handle, kind, since_us)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_NOT_FOUND:  # nothing newer
                return []
            return self._fault(error).unavailable()
        return [Sample(t_us, value / factor) for t_us, value in samples if t_us > since_us]

    def _processes(self) -> Sequence[Process] | Unavailable:
        try:
            compute = pynvml.nvmlDeviceGetComputeRunningProcesses_v3(self._handle)
            graphics = pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3(self._handle)
        except pynvml.NVMLError as error:
            return self._fault(error).unavailable()
        served = self._served() if compute else ()  # clients of MPS have its server listed
        computing = {each.pid: each for each in (*served, *compute)}
        by_pid: dict[int, Process] = {}
        for kind, processes in (("compute", computing.values()), ("graphics", graphics)):
            for each in processes:
                both = f"{by_pid[each.pid].kind}+{kind}" if each.pid in by_pid else kind
                by_pid[each.pid] = Process(each.pid, each.usedGpuMemory, both)
        return list(by_pid.values())

    def _served(self) -> Sequence[Any]:
        """Clients of CUDA MPS, whose server is all that the other list may show."""
        try:
            served: Sequence[Any] = pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(self._handle)
        except pynvml.NVMLError:  # no such thing on this GPU, or in this library
            return ()
        return served

    def _get(self, knob: Knob) -> float | Unavailable:
        get = self._turns[knob].get
        if get is None:
            return Unavailable("NVML does not tell whether a clock is locked")
        try:
            return get()
        except pynvml.NVMLError as error:
            return self._fault(error).unavailable()

    def _set(self, info: KnobInfo, value: float) -> None:
        turn = self._turns[info.knob]
        doing = f"{self.info.key} was not set to {info.knob.value}={value:g}"
        try:
            turn.set(value)
            taken = turn.get() if turn.get else value
        except pynvml.NVMLError as error:
            raise self._refusal(error, doing, turn.option.format(value)) from None
        if abs(taken - value) > _TAKEN_W:
            raise DeviceError(
                f"{doing}: it stands at {taken:g}",
                "something else holds it: see `nvidia-smi -q -d POWER,PERFORMANCE`",
            )

    def _reset(self, info: KnobInfo) -> None:
        turn = self._turns[info.knob]
        try:
            turn.reset()
        except pynvml.NVMLError as error:
            doing = f"{self.info.key}'s {info.knob.value} was not reset"
            raise self._refusal(error, doing, turn.reset_option) from None

    def _release(self) -> None:
        self._reads = {}
        try:
            pynvml.nvmlShutdown()
        except pynvml.NVMLError:
            return  # the driver went first

    def _fault(self, error: Any) -> Fault:
        return fault(error.value, self._gpu)

    def _refusal(self, error: Any, doing: str, option: str) -> Exception:
        found = self._fault(error)
        if found.error is not PermissionDeniedError:
            return found.exception(doing)
        by_hand = f"sudo nvidia-smi -i {self._gpu} {option}"
        return found.exception(doing, f"{found.fix}; or by hand, and it stays set: `{by_hand}`")

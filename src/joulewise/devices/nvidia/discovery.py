"""Finding NVIDIA GPUs: what NVML shows, less what CUDA is told not to use.

Which GPUs are powered off by the kernel, found without waking them.

A laptop's GPU sleeps at a few milliwatts. ``nvmlInit`` leaves it so: NVML initialises a GPU when
its handle is asked for (NVML API Reference, nvmlInit_v2), and that wakes it. So what sleeps must
be known before any handle is taken, from sysfs.

Opening GPUs beside each other: a thread for each, so that a slow one holds up no other.

A GPU is initialised by the first call that concerns it. Without persistence mode that takes a
second or more, and a board that fails may take much longer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Final, NamedTuple

import pynvml

from joulewise.data import DeviceInfo, Kind, Source, Unavailable
from joulewise.devices import FINDER
from joulewise.devices.cuda_visible import GpuIdentity, visible
from joulewise.devices.device import Device
from joulewise.devices.nvidia import nvml_library
from joulewise.devices.nvidia.gpu import NvidiaGpu, SilentGpu
from joulewise.devices.nvidia.nvml_errors import NvmlFailure, fault
from joulewise.devices.nvidia.nvml_library import mig_slices, reading_source, speed
from joulewise.devices.options import Options
from joulewise.errors import DeviceError

FIX = "wake it by using it, e.g. `nvidia-smi`, then try again"


@dataclass(frozen=True)
class Sleeper:
    """Which GPU sleeps; name and UUID are empty where the driver does not tell."""

    bus_id: str
    name: str
    uuid: str


def sleepers(root: Path, count: int) -> dict[int, Sleeper]:
    """The sleeping GPUs by NVML index, among ``count`` that NVML shows.

    NVML counts in the order of the bus. Where the kernel knows more GPUs than NVML shows (a
    container, say), the two cannot be matched, and none is taken for asleep.
    """
    folder = root / "sys/bus/pci/drivers/nvidia"
    try:
        found = sorted(path for path in folder.iterdir() if path.name.count(":") == 2)
    except OSError:
        return {}
    if len(found) != count:
        return {}
    return {
        index: _sleeper(root, path.name)
        for index, path in enumerate(found)
        if _text(path / "power/runtime_status").strip() == "suspended"
    }


def _sleeper(root: Path, bus_id: str) -> Sleeper:
    told = dict(
        line.split(":", 1)
        for line in _text(root / f"proc/driver/nvidia/gpus/{bus_id}/information").splitlines()
        if ":" in line
    )
    uuid = told.get("GPU UUID", "").strip()
    # The driver masks the UUID of a GPU that it has not initialised since it was loaded.
    return Sleeper(bus_id, told.get("Model", "").strip(), "" if "?" in uuid else uuid)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


# A GPU that has answered once is initialised, and one call takes 0.1 to 2 ms then. Chosen: a driver
# that takes 500 times as long hangs, as far as a command that waits for it is concerned. Twice as
# long delays a command by as much where a driver hangs.
_STALLED_S: Final = 1.0
_LATE: Final = NvmlFailure(
    DeviceError,
    "its driver had not answered when the recording began",
    "keep drivers loaded with `sudo nvidia-smi -pm 1`; if it stays slow, see `dmesg | grep -i xid`",
)

OnAnswer = Callable[[], None]
"""Called whenever the driver has answered, however it did."""


class Deadline:
    """Shares of the time that discovery may take; None where it may take any."""

    def __init__(self, time_s: float | None) -> None:
        self._time_s = time_s
        self._start_s = monotonic()

    def end_s(self, share: float) -> float | None:
        return None if self._time_s is None else self._start_s + share * self._time_s


@dataclass(frozen=True)
class Candidate:
    """A GPU that may be opened; ``fault`` is why it cannot be, ``asleep`` that it may not be."""

    identity: GpuIdentity
    handle: Any = None
    fault: NvmlFailure | None = None
    asleep: bool = False


OpenGpu = Callable[[Candidate, OnAnswer], Device]


class Opening:
    """One GPU on its way: identified first, then opened once it is known to be wanted.

    ``identify`` and ``open_gpu`` are called in a thread of its own, which holds NVML meanwhile.
    What they raise is a fault of this GPU alone. Whoever starts it opens or dismisses it, which
    its thread waits for.
    """

    def __init__(self, index: int, identify: Callable[[int, OnAnswer], Candidate]) -> None:
        self._index = index
        self._identify = identify
        self._open: OpenGpu | None = None
        self._candidate: Candidate | None = None
        self._device: Device | None = None
        self._is_identified = threading.Event()
        self._is_wanted = threading.Event()
        self._is_opened = threading.Event()
        self._answered_s: float | None = None
        self._thread = threading.Thread(target=self._run, name=FINDER, daemon=True)

    def start(self) -> Opening:
        nvml_library.acquire()  # at once, since whoever starts it holds NVML
        self._thread.start()
        return self

    def candidate(self, end_s: float | None) -> Candidate:
        """What is known of it by then: one that has not answered has its index alone."""
        self._await(self._is_identified, end_s)
        return self._candidate or Candidate(GpuIdentity(self._index, ""), fault=_LATE)

    @property
    def is_late(self) -> bool:
        """Whether it has not even said which GPU it is."""
        return self._candidate is None

    def open(self, open_gpu: OpenGpu) -> None:
        self._open = open_gpu
        if not self.is_late:  # since it said who it is, it was not asked
            self._answered()
        self._is_wanted.set()

    def dismiss(self, end_s: float | None) -> None:
        """Where it was not opened, see to it that NVML is let go, unless that takes longer."""
        if self._open is None:
            self._is_wanted.set()
            if not self.is_late:
                self._await(self._is_opened, end_s)

    def device(self, end_s: float | None) -> Device | None:
        """The GPU as of then; None where it is on its way still."""
        self._await(self._is_opened, end_s)
        return self._device

    def _await(self, event: threading.Event, end_s: float | None) -> None:
        """Wait until the event, but not beyond ``end_s``, nor for a driver that has stalled."""
        while not event.is_set():
            if end_s is None:
                event.wait()
                return
            # Before the first answer the GPU is being initialised, which may take long.
            now_s = monotonic()
            since_s = now_s if self._answered_s is None else self._answered_s
            left_s = min(end_s, since_s + _STALLED_S) - now_s
            if left_s <= 0:
                return
            event.wait(left_s)

    def _answered(self) -> None:
        self._answered_s = monotonic()

    def _run(self) -> None:
        try:
            self._candidate = self._identified()
            self._is_identified.set()
            self._is_wanted.wait()
            if self._open:
                self._device = self._opened(self._open, self._candidate)
        finally:
            self._is_identified.set()
            self._is_opened.set()
            nvml_library.release()

    def _identified(self) -> Candidate:
        try:
            return self._identify(self._index, self._answered)
        except Exception as error:  # noqa: BLE001  # a bug must not cost the other GPUs
            return Candidate(GpuIdentity(self._index, ""), fault=_unexpected(error))

    def _opened(self, open_gpu: OpenGpu, candidate: Candidate) -> Device:
        try:
            return open_gpu(candidate, self._answered)
        except Exception as error:  # noqa: BLE001  # likewise
            faulty = replace(candidate, handle=None, fault=_unexpected(error))
            return open_gpu(faulty, self._answered)


def _unexpected(error: Exception) -> NvmlFailure:
    what = f"unexpected {type(error).__name__}: {error}"
    return NvmlFailure(DeviceError, what, "please report this as a bug")


class LateGpu(SilentGpu):
    """A GPU whose driver has not answered in time; it is there as soon as that has."""

    is_late = True


def late_gpu(info: DeviceInfo, opening: Opening, look: Callable[[], Device | None]) -> LateGpu:
    """``look`` opens it again should it have answered, but with a fault."""

    def answer() -> Device | None:
        device = opening.device(end_s=0)
        return look() if isinstance(device, SilentGpu) else device

    return LateGpu(info, _LATE, answer)


# Of the time for discovery: GPUs that have not said by then who they are, or are not open, are
# late. Chosen: what is left is for the driver's own calls before and the devices after them.
_IDENTIFIED: Final = 0.6
_OPENED: Final = 0.9
_NAMES: Final = ("GPU-", "MIG-")


def discover_gpus(options: Options, root: Path = Path("/")) -> list[Device] | Unavailable:
    return discover_and_count(options, root)[0]


def discover_and_count(
    options: Options, root: Path = Path("/")
) -> tuple[list[Device] | Unavailable, int]:
    """The GPUs, or why there is none, and how many NVML shows, hidden from CUDA or not."""
    deadline = Deadline(options.deadline_s)
    try:
        nvml_library.acquire()
    except pynvml.NVMLError as error:
        return fault(error.value).unavailable(), 0
    count = 0
    try:
        count = int(pynvml.nvmlDeviceGetCount())
        return _discover(options, root, count, deadline), count
    except pynvml.NVMLError as error:
        return fault(error.value).unavailable(), count
    finally:
        nvml_library.release()  # each device has its own count on NVML


def _discover(
    options: Options, root: Path, count: int, deadline: Deadline
) -> list[Device] | Unavailable:
    if count == 0:
        return Unavailable(
            "the NVIDIA driver is loaded, but shows no GPU",
            "check `lspci | grep -i nvidia` and `dmesg | grep -i nvrm`; in a container use --gpus",
        )
    asleep = _asleep(options, root, count)
    identify = partial(_candidate, details=_needed_details(options.environ))
    openings = {i: Opening(i, identify).start() for i in range(count) if i not in asleep}
    try:
        return _open_visible(options, root, asleep, openings, deadline)
    finally:
        for opening in openings.values():  # else its thread would wait for ever
            opening.dismiss(deadline.end_s(_OPENED))


def _open_visible(
    options: Options,
    root: Path,
    asleep: Mapping[int, Sleeper],
    openings: Mapping[int, Opening],
    deadline: Deadline,
) -> list[Device] | Unavailable:
    driver = _driver()
    candidates = {
        index: _sleeping(index, asleep[index])
        if index in asleep
        else openings[index].candidate(deadline.end_s(_IDENTIFIED))
        for index in sorted({*asleep, *openings})
    }
    seen = visible(options.environ, [candidate.identity for candidate in candidates.values()])
    nameless = _nameless(options.environ, openings)
    wanted = sorted(candidates if options.hidden_too else {*seen.indices, *nameless})
    if not wanted:
        return Unavailable(seen.reason, "unset CUDA_VISIBLE_DEVICES")
    notes = {
        index: "; ".join(filter(None, (seen.notes.get(index), seen.reason)))
        if index in seen.indices or index in nameless
        else ""
        for index in wanted
    }
    opens = {
        index: partial(
            _open,
            driver=driver,
            note=note,
            look=partial(_reopen, index, note, options, root),
            options=options,
        )
        for index, note in notes.items()
    }
    for index in opens.keys() & openings.keys():
        openings[index].open(opens[index])
    devices: list[Device] = []
    for index, open_gpu in opens.items():
        if index in asleep:
            devices.append(open_gpu(candidates[index], _ignore_answer))
            continue
        device = openings[index].device(deadline.end_s(_OPENED))
        if device is None:
            info = _info(candidates[index].identity, driver, notes[index])
            device = late_gpu(
                info, openings[index], partial(_reopen, index, notes[index], options, root)
            )
        devices.append(device)
    return devices


def visible_keys(options: Options, root: Path = Path("/")) -> tuple[set[str], int]:
    """The keys of the GPUs that CUDA would see, and how many NVML shows; none is opened."""
    details = _needed_details(options.environ)
    try:
        nvml_library.acquire()
    except pynvml.NVMLError:
        return set(), 0
    try:
        count = int(pynvml.nvmlDeviceGetCount())
        asleep = _asleep(options, root, count)
        candidates = [
            _sleeping(index, asleep[index])
            if index in asleep
            else _candidate(index, _ignore_answer, details)
            for index in range(count)
        ]
    except pynvml.NVMLError:
        return set(), 0
    finally:
        nvml_library.release()
    seen = visible(options.environ, [candidate.identity for candidate in candidates])
    return {f"gpu{index}" for index in seen.indices}, count


class _Details(NamedTuple):
    """What is asked of a GPU, besides its UUID and name, to know whether CUDA sees it."""

    order: bool
    slices: bool


def _needed_details(environ: Mapping[str, str]) -> _Details:
    """Each call of a slow driver takes its time, and for most lists of CUDA's names are enough."""
    listed = environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    is_named = listed.startswith(_NAMES)
    return _Details(order=bool(listed) and not is_named, slices=listed.startswith("MIG-"))


def _nameless(environ: Mapping[str, str], openings: Mapping[int, Opening]) -> list[int]:
    """GPUs that are late, where CUDA's list has names: any of them may be on it."""
    listed = environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    is_named = listed.startswith(_NAMES)
    return [index for index, opening in openings.items() if is_named and opening.is_late]


def _reopen(index: int, note: str, options: Options, root: Path) -> Device | None:
    """A GPU that did not answer before, as it is now; None where not even NVML answers."""
    try:
        nvml_library.acquire()
    except pynvml.NVMLError:
        return None
    try:
        asleep = _asleep(options, root, pynvml.nvmlDeviceGetCount())
        candidate = (
            _sleeping(index, asleep[index])
            if index in asleep
            else _candidate(index, _ignore_answer, _needed_details(options.environ))
        )
        return _open(
            candidate,
            _ignore_answer,
            driver=_driver(),
            note=note,
            look=lambda: None,
            options=options,
        )
    except pynvml.NVMLError:
        return None
    finally:
        nvml_library.release()


def _ignore_answer() -> None:
    """Of a GPU for which nobody waits."""


def _asleep(options: Options, root: Path, count: int) -> dict[int, Sleeper]:
    # What `joulewise sim` shows is on no bus: this machine's own GPUs must not speak for it.
    return {} if "JOULEWISE_SIM" in options.environ else sleepers(root, count)


def _sleeping(index: int, sleeper: Sleeper) -> Candidate:
    bus_id = f"0000{sleeper.bus_id}"  # NVML writes the domain with eight digits
    identity = GpuIdentity(index, sleeper.uuid, sleeper.name, bus_id)
    reason = "the GPU is asleep (runtime suspended), and reading it would wake it"
    return Candidate(identity, fault=NvmlFailure(DeviceError, reason, FIX), asleep=True)


def _candidate(index: int, on_answer: OnAnswer, details: _Details) -> Candidate:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        on_answer()
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        on_answer()
        identity = GpuIdentity(index, uuid, pynvml.nvmlDeviceGetName(handle))
        on_answer()
        if details.order:
            bus_id = pynvml.nvmlDeviceGetPciInfo(handle).busId
            on_answer()
            identity = replace(identity, bus_id=bus_id, speed=speed(handle))
    except pynvml.NVMLError as error:
        return Candidate(GpuIdentity(index, ""), fault=fault(error.value, index))
    if details.slices:
        identity = replace(identity, slices=mig_slices(handle))
    return Candidate(identity, handle)


def _open(
    candidate: Candidate,
    on_answer: OnAnswer,
    *,
    driver: str,
    note: str,
    look: Callable[[], Device | None],
    options: Options,
) -> Device:
    index, info = candidate.identity.index, _info(candidate.identity, driver, note)
    if candidate.fault is not None:
        return SilentGpu(info, candidate.fault, look, asleep=candidate.asleep)
    try:
        gpu = NvidiaGpu(info, candidate.handle, index, on_answer, options)
    except pynvml.NVMLError as error:
        return SilentGpu(info, fault(error.value, index), look)
    if not options.energy_first:
        gpu.complete(on_answer)
        gpu.check_scope(on_answer)
    return gpu


def _info(identity: GpuIdentity, driver: str, note: str) -> DeviceInfo:
    return DeviceInfo(
        f"gpu{identity.index}",
        Kind.GPU,
        identity.model or "NVIDIA GPU",
        identity.uuid or identity.bus_id or f"NVML index {identity.index}",
        "nvidia",
        driver,
        note=note,
        slices=tuple(part.uuid for part in identity.slices),
        is_simulated=reading_source() is Source.SIMULATED,
    )


def _driver() -> str:
    cuda = pynvml.nvmlSystemGetCudaDriverVersion()
    return (
        f"{pynvml.nvmlSystemGetDriverVersion()} (NVML {pynvml.nvmlSystemGetNVMLVersion()}, "
        f"CUDA {cuda // 1000}.{cuda % 1000 // 10})"
    )

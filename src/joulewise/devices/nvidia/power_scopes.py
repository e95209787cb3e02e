"""What NVML's power and energy cover: the GPU, or the module of a superchip that it is on.

On a module the energy counter contains a CPU and its memory, so that adding the CPU's own energy
counts it twice. The name of a board does not say which of the two it is:

[1] nvml.h, nvmlPowerScopeType_t: the fields NVML_FI_DEV_POWER_AVERAGE and _INSTANT exist for the
    GPU (0), the whole module (1) and the GPU's memory (2), each with a return code of its own.
[2] Zeus, ml-energy/zeus pull request 172: on a GH200 the total energy counter is the module's.
[3] Zeus, ml-energy/zeus pull request 242: a GB10 has a chip-to-chip link, and answers NOT_SUPPORTED
    for the module: its readings are the GPU's.
[4] nvidia-smi's manual, "Module Power Readings": data-centre products from Hopper on.
[5] NVIDIA/k8s-test-infra issue 676: a GB300 has limits of its own for the GPU (1400 W) and the
    module (2900 W, two GPUs), and its memory has an average power and no instant one.
[6] Zeus, ml-energy/zeus pull request 122: an H100 reports its memory's power; other boards say 0.
[7] ishandhanani/srt-slurm pull request 164: on GB200 and GB300 nodes GPUs 0 and 1 are near the CPU
    cores 0 to 71, GPUs 2 and 3 near the others: the GPUs of a module have the same CPU affinity.
[8] NVML's manual, nvmlDeviceOnSameBoard: "on the same physical board". A board may carry more than
    one module (GB200 NVL4 has four GPUs and two CPUs), so that the CPU affinity goes first.

So every scope is queried, and the energy counter is compared with the power of both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

import pynvml

from joulewise.data import PowerScope, Quantity, Unavailable
from joulewise.devices.device import Options, join_notes
from joulewise.devices.host.cpu_model import packages_by_key
from joulewise.devices.host.grace import has_grace
from joulewise.units import MW_PER_W, NS_PER_S

# NVML's numbers, which nvidia-ml-py has not always named [1].
GPU: Final = 0
MODULE: Final = 1
MEMORY: Final = 2
POWER_AVERAGE: Final = 185
POWER_INSTANT: Final = 186
_MAXIMUM_LIMIT: Final = 188  # NVML_FI_DEV_POWER_MAX_LIMIT
_DEFAULT_LIMIT: Final = 189  # NVML_FI_DEV_POWER_DEFAULT_LIMIT
_HOPPER: Final = 9

# The least that a CPU draws besides its GPU, tens of watts at idle. Chosen: well above the
# difference of two readings of one sensor; ten times as much would hide an idle CPU.
_MINIMUM_HOST_W: Final = 2.0
# A counter is watched for a second, from one of its steps to another: the time that an average
# power covers (nvidia-smi's manual). Polled every 10 ms, it is off by 2 % at most (10 ms at both
# ends). Half as long, the average would cover other time than the counter.
_WATCHED_S: Final = 1.0
_POLL_S: Final = 0.01
# Chosen: half as many polls again as the watch needs, then it is given up.
_MAX_POLLS: Final = 150
# Power is read at every fifth poll. Chosen: a sensor has no new value sooner than after 20 ms.
_POLLS_PER_POWER: Final = 5
_UNKNOWN_CPU: Final = (
    "which CPU is on its module is unknown: all are assumed to be, so that none counts twice"
)
_UNKNOWN_SCOPE: Final = (
    "the driver does not say whether its power and energy are those of the GPU or of a module with "
    "a CPU: on a superchip the CPU and memory would count twice"
)
_ASSUMED_MODULE: Final = (
    "the driver does not say what its power and energy cover: beside a Grace CPU they are assumed "
    "to be those of the module, CPU and memory included"
)


@dataclass(frozen=True)
class Scopes:
    """The field by which each scope is read, by NVML's number of the scope.

    ``likely`` is what the counter covers, until it has been watched. ``instant`` are the scopes
    that also have an instant power.
    """

    fields: Mapping[int, int]
    likely: PowerScope | None
    instant: frozenset[int] = frozenset()

    @property
    def has_module(self) -> bool:
        return MODULE in self.fields


@dataclass(frozen=True)
class ModuleContents:
    """Keys of the devices inside a module, and a note for readers."""

    keys: tuple[str, ...]
    note: str = ""


def probe_scopes(
    handle: Any, architecture: int, read_plain_w: Callable[[], float] | None
) -> Scopes:
    """Query every scope once. ``read_plain_w`` is the plain power call, if there is one.

    Never raises: a scope that does not answer, or answers 0, does not exist. Boards before Hopper
    are not queried: they have one scope [4].
    """
    if architecture < _HOPPER:
        return Scopes({}, PowerScope.GPU)
    queries = [(f, s) for s in (GPU, MODULE, MEMORY) for f in (POWER_AVERAGE, POWER_INSTANT)]
    powers_w = _powers_w(handle, queries)
    if powers_w is None:
        return Scopes({}, None)
    # Of each scope the first field that exists: an average rather than an instant power.
    fields = {scope: field for field, scope in reversed(queries) if (field, scope) in powers_w}
    watts = {scope: powers_w[field, scope] for scope, field in fields.items()}
    if MODULE in fields and GPU in fields and watts[MODULE] - watts[GPU] < _MINIMUM_HOST_W:
        del fields[MODULE]
    if MODULE not in fields:
        return Scopes(fields, PowerScope.GPU)
    instant = frozenset(scope for field, scope in powers_w if field == POWER_INSTANT)
    return Scopes(fields, _likely_scope(architecture, read_plain_w, watts), instant)


def assume_scope(scopes: Scopes, options: Options) -> tuple[PowerScope | None, str]:
    """What the counter is assumed to cover until it is watched, and a note on that.

    Where the driver does not say, a GPU beside a Grace CPU is assumed to be on its module: then
    nothing counts twice, and where the GPU has a board of its own the CPU does not count.
    """
    if scopes.likely is not None:
        return scopes.likely, ""
    if has_grace(options):
        return PowerScope.MODULE, _ASSUMED_MODULE
    return None, _UNKNOWN_SCOPE


def _likely_scope(
    architecture: int, read_plain_w: Callable[[], float] | None, watts: Mapping[int, float]
) -> PowerScope:
    """On Hopper the module [2]; on others the scope that the plain call is nearer to."""
    if architecture == _HOPPER or read_plain_w is None or GPU not in watts:
        return PowerScope.MODULE
    try:
        plain_w = read_plain_w()
    except pynvml.NVMLError:
        return PowerScope.MODULE
    is_gpu = abs(plain_w - watts[GPU]) < abs(plain_w - watts[MODULE])
    return PowerScope.GPU if is_gpu else PowerScope.MODULE


def watch_counter(
    handle: Any,
    read_j: Callable[[], float],
    now_ns: Callable[[], int],
    sleep: Callable[[float], None],
) -> PowerScope | None:
    """What the counter covers: the scope whose power it grows with. None where that is not clear.

    An instant power covers a quarter of the time: of a load that is synchronous with it, it always
    shows the same part, and can be off by more than a CPU draws. An average power covers all of its
    second, but other time than the counter where the load changes. So both must agree on the scope.
    Takes up to a second and a half. Never raises.
    """
    queries = [
        (field, scope) for field in (POWER_AVERAGE, POWER_INSTANT) for scope in (GPU, MODULE)
    ]
    powers_w: dict[tuple[int, int], list[float]] = {key: [] for key in queries}
    steps: list[tuple[int, float]] = []
    last_j: float | None = None
    for poll in range(_MAX_POLLS):
        try:
            t_ns, energy_j = now_ns(), read_j()
        except pynvml.NVMLError:
            return None
        if last_j is not None and energy_j != last_j:
            steps.append((t_ns, energy_j))
        last_j = energy_j
        if steps and poll % _POLLS_PER_POWER == 0:
            for key, watts in (_powers_w(handle, queries) or {}).items():
                powers_w[key].append(watts)
        if steps and (steps[-1][0] - steps[0][0]) / NS_PER_S >= _WATCHED_S:
            break
        sleep(_POLL_S)
    else:
        return None
    if not all(powers_w.values()):
        return None
    (start_ns, start_j), (end_ns, end_j) = steps[0], steps[-1]
    counted_w = (end_j - start_j) * NS_PER_S / (end_ns - start_ns)
    average_w = [powers_w[POWER_AVERAGE, scope][-1] for scope in (GPU, MODULE)]
    instant_w = [fmean(powers_w[POWER_INSTANT, scope]) for scope in (GPU, MODULE)]
    scopes = {_nearer_scope(counted_w, *pair_w) for pair_w in (average_w, instant_w)}
    return scopes.pop() if len(scopes) == 1 else None


def _nearer_scope(counted_w: float, gpu_w: float, module_w: float) -> PowerScope | None:
    """The scope whose power is nearer; None in the middle third, where noise could decide."""
    share = (counted_w - gpu_w) / (module_w - gpu_w) if module_w > gpu_w else 0.5
    if share < 1 / 3:
        return PowerScope.GPU
    return PowerScope.MODULE if share > 2 / 3 else None


def module_contents(handle: Any, gpu: int, architecture: int, options: Options) -> ModuleContents:
    """The devices on the module of this GPU: its CPU, their memory, and other GPUs.

    A CPU is matched by the affinity that NVML reports, which is that of the GPU's PCI and NUMA
    node. Memory that is not counted by CPU is one device (``dram0``), a part of which is in each
    module: it is inside all of them.
    """
    packages = packages_by_key(options)
    count = 1 + max((cpu for cpus in packages.values() for cpu in cpus), default=0)
    cpus = _near_cpus(handle, count)
    near = [key for key, own_cpus in packages.items() if cpus & set(own_cpus)]
    is_known = bool(near) or not packages
    keys = near if is_known else list(packages)
    drams = [f"dram{key.removeprefix('cpu')}" for key in keys]
    # A Hopper module (GH200) has one GPU.
    others = () if architecture <= _HOPPER else _gpus_on_module(handle, gpu, cpus, count)
    inside = (*others, *keys, *dict.fromkeys((*drams, "dram0")))
    return ModuleContents(inside, "" if is_known else _UNKNOWN_CPU)


def find_limit_scope(handle: Any) -> PowerScope | None:
    """What NVML's power limit applies to: the GPU or its module. None where that is not clear.

    The default limit of the plain call is compared with that of either scope.
    """
    limits = _powers_w(handle, [(_DEFAULT_LIMIT, GPU), (_DEFAULT_LIMIT, MODULE)]) or {}
    try:
        plain_w = pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / MW_PER_W
    except pynvml.NVMLError:
        return None
    same = [scope for (_, scope), limit_w in limits.items() if limit_w == plain_w]
    if len(same) != 1:
        return None
    return PowerScope.MODULE if same == [MODULE] else PowerScope.GPU


def find_module_limit_w(handle: Any) -> float | None:
    """The most that the module may draw (W), all devices on it together; None where unknown.

    A driver that ignores the scope would return the GPU's own limit, which does not bound a module.
    """
    limits = _powers_w(handle, [(_MAXIMUM_LIMIT, GPU), (_MAXIMUM_LIMIT, MODULE)]) or {}
    module_w = limits.get((_MAXIMUM_LIMIT, MODULE), 0.0)
    return module_w if module_w > limits.get((_MAXIMUM_LIMIT, GPU), 0.0) else None


def _near_cpus(handle: Any, count: int) -> set[int]:
    """The logical CPUs that NVML reports as near the GPU, of ``count``; none where unknown."""
    try:
        words = pynvml.nvmlDeviceGetCpuAffinity(handle, -(-count // 64))
    except pynvml.NVMLError:
        return set()
    return {64 * i + bit for i, word in enumerate(words) for bit in range(64) if word >> bit & 1}


def _gpus_on_module(handle: Any, gpu: int, cpus: set[int], count: int) -> tuple[str, ...]:
    """The other GPUs on the same module, such as on a GB200, as far as they answer.

    That is the other GPU with the same CPU affinity [7]. Where one has no affinity, or more than
    two share a CPU, as on no module [5], it is a GPU on the same board [8].
    """
    others = _other_gpus(gpu)
    affinities = {index: _near_cpus(other, count) for index, other in others.items()}
    sharing = [index for index, its_cpus in affinities.items() if its_cpus == cpus]
    if cpus and len(sharing) == 1:
        return (f"gpu{sharing[0]}",)
    return tuple(
        f"gpu{index}"
        for index, other in others.items()
        if not _are_apart(cpus, affinities[index]) and _is_on_same_board(handle, other)
    )


def _other_gpus(gpu: int) -> dict[int, Any]:
    """The handles of the other GPUs by index, without those that are lost."""
    try:
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return {}
    handles = {}
    for index in range(count):
        if index != gpu:
            with suppress(pynvml.NVMLError):
                handles[index] = pynvml.nvmlDeviceGetHandleByIndex(index)
    return handles


def _are_apart(cpus: set[int], others: set[int]) -> bool:
    """Whether two GPUs are near different CPUs; False where the CPUs of one are unknown."""
    return bool(cpus and others) and not cpus & others


def _is_on_same_board(handle: Any, other: Any) -> bool:
    try:
        return bool(pynvml.nvmlDeviceOnSameBoard(handle, other))
    except pynvml.NVMLError:  # not supported by the driver
        return False


def _powers_w(handle: Any, queries: list[tuple[int, int]]) -> dict[tuple[int, int], float] | None:
    """The power (W) of each (field, scope) that has one; None where scopes are not supported."""
    try:
        values = pynvml.nvmlDeviceGetFieldValues(handle, queries)
    except (pynvml.NVMLError, TypeError):  # an old nvidia-ml-py takes no scopes
        return None
    return {
        key: value.value.uiVal / MW_PER_W
        for key, value in zip(queries, values, strict=True)
        if value.nvmlReturn == pynvml.NVML_SUCCESS and value.value.uiVal
    }


def describe_scope(scope: PowerScope | None, contents: ModuleContents, assumed: str = "") -> str:
    """A note for readers of the device's figures; empty for a GPU on a board of its own.

    ``assumed`` is the note of :func:`assume_scope`, empty where the scope is known.
    """
    if scope is not PowerScope.MODULE:
        return assumed
    note = assumed or "its power and energy are those of its module, CPU and memory included"
    return join_notes(note, contents.note)


NO_CONTENTS: Final = ModuleContents(())
UNSCOPED_SAMPLES: Final = Unavailable(
    "the driver does not say whether its samples of power are the GPU's or the module's"
)
GPU_PART: Final = "the GPU with its memory, a part of its module"
MEMORY_PART: Final = "the GPU's memory, a part of the GPU"
NO_PART: Final = Unavailable("the driver does not report this part")
PARTS: Final = (Quantity.GPU_POWER, Quantity.MEMORY_POWER)

"""What NVML's power and energy are of: the GPU, or the module of a superchip that it sits on.

On a module the energy counter contains a CPU and its memory, and whoever adds a CPU's own energy to
it counts that twice. Which of the two it is cannot be told from the name of a board:

[1] nvml.h, nvmlPowerScopeType_t: the fields NVML_FI_DEV_POWER_AVERAGE and _INSTANT are told for the
    GPU (0), the whole module (1) and the GPU's memory (2), each with a return code of its own.
[2] Zeus, ml-energy/zeus pull request 172: on a GH200 the total energy counter is the module's.
[3] Zeus, ml-energy/zeus pull request 242: a GB10 has a chip-to-chip link, and answers NOT_SUPPORTED
    for the module: its readings are the GPU's.
[4] nvidia-smi's manual, "Module Power Readings": data-centre products from Hopper on.
[5] NVIDIA/k8s-test-infra issue 676: a GB300 has limits of its own for the GPU (1400 W) and the
    module (2900 W, two GPUs), and its memory has an average power and no instant one.
[6] Zeus, ml-energy/zeus pull request 122: an H100 tells its memory's power; other boards say 0.
[7] ishandhanani/srt-slurm pull request 164: on GB200 and GB300 nodes GPUs 0 and 1 are near the CPU
    cores 0 to 71, GPUs 2 and 3 near the others: the GPUs of a module have the same CPU affinity.
[8] NVML's manual, nvmlDeviceOnSameBoard: "on the same physical board". A board may carry more than
    one module (GB200 NVL4 has four GPUs and two CPUs), so that the CPU affinity goes first.

So the scopes are asked for, and whose energy the counter has is checked against both powers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

import pynvml

from joulewise.data import PowerScope, Quantity, Unavailable
from joulewise.devices.host.cpu_model import packages_by_key
from joulewise.devices.host.grace import has_grace
from joulewise.devices.options import Options
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

# A module draws more than its GPU by all that its CPU draws, tens of watts at idle. Chosen: well
# above what two readings of one sensor differ by; ten times as much would hide an idle CPU.
_LEAST_BESIDE_W: Final = 2.0
# A counter is watched for this long, from one of its steps to another: as long as an average power
# is of (a second, nvidia-smi's manual), and polled at most so often, so that it is off by 2 % at
# most (10 ms at both ends). Half as long, the average would be of other time than the counter.
_WATCHED_S: Final = 1.0
_POLL_S: Final = 0.01
_MOST_POLLS: Final = 150
_POLLS_PER_POWER: Final = 5
_UNKNOWN_CPU: Final = (
    "which CPU is on its module is not told: all are taken to be, so that none counts twice"
)
_UNKNOWN_SCOPE: Final = (
    "the driver does not tell whether its power and energy are the GPU's or those of a module with "
    "a CPU: on a superchip the CPU and memory would count twice"
)
_ASSUMED_MODULE: Final = (
    "the driver does not tell the scope of its power and energy: beside a Grace CPU they are taken "
    "to be those of the module, CPU and memory included"
)


@dataclass(frozen=True)
class Scopes:
    """The field by which each scope is read, by NVML's number of the scope.

    ``likely`` is what the counter is of, until it has been watched. ``instant`` are the scopes
    that also tell a power of the moment.
    """

    fields: Mapping[int, int]
    likely: PowerScope | None
    instant: frozenset[int] = frozenset()

    @property
    def has_module(self) -> bool:
        return MODULE in self.fields


@dataclass(frozen=True)
class Contents:
    """Keys of the devices inside a module, and what a person must know of that."""

    keys: tuple[str, ...]
    note: str = ""


def probe_scopes(
    handle: Any, architecture: int, read_plain_w: Callable[[], float] | None
) -> Scopes:
    """Ask for every scope once. ``read_plain_w`` is the plain power call, if there is one.

    Never raises: a scope that does not answer, or answers nothing, is not there. Boards before
    Hopper are not asked: they have one scope [4].
    """
    if architecture < _HOPPER:
        return Scopes({}, PowerScope.GPU)
    asked = [(f, s) for s in (GPU, MODULE, MEMORY) for f in (POWER_AVERAGE, POWER_INSTANT)]
    answered = _powers_w(handle, asked)
    if answered is None:
        return Scopes({}, None)
    # Of each scope the first that is asked for and told: an average rather than an instant.
    fields = {scope: field for field, scope in reversed(asked) if (field, scope) in answered}
    watts = {scope: answered[field, scope] for scope, field in fields.items()}
    if MODULE in fields and GPU in fields and watts[MODULE] - watts[GPU] < _LEAST_BESIDE_W:
        del fields[MODULE]
    if MODULE not in fields:
        return Scopes(fields, PowerScope.GPU)
    instant = frozenset(scope for field, scope in answered if field == POWER_INSTANT)
    return Scopes(fields, _likely_scope(architecture, read_plain_w, watts), instant)


def assume_scope(scopes: Scopes, options: Options) -> tuple[PowerScope | None, str]:
    """What the counter is taken to be of until it is watched, and what a person must know of that.

    Where the driver cannot be asked, a GPU beside a Grace CPU is taken to be on its module: then
    nothing counts twice, and on a board of its own the CPU does not count.
    """
    if scopes.likely is not None:
        return scopes.likely, ""
    if has_grace(options):
        return PowerScope.MODULE, _ASSUMED_MODULE
    return None, _UNKNOWN_SCOPE


def _likely_scope(
    architecture: int, read_plain_w: Callable[[], float] | None, watts: Mapping[int, float]
) -> PowerScope:
    """On Hopper the module [2]; on others what the plain call is of."""
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
    """Whose energy the counter has: the scope whose power it grows with. None where none is clear.

    An instant power is of a quarter of the time: of a load in step with it, it shows always the
    same part, and is steadily off by more than a CPU draws. An average power is of all of its
    second, and of other time than the counter where the load changes. So both must name the same
    scope. Takes up to a second and a half. Never raises.
    """
    asked = [(field, scope) for field in (POWER_AVERAGE, POWER_INSTANT) for scope in (GPU, MODULE)]
    told_w: dict[tuple[int, int], list[float]] = {key: [] for key in asked}
    steps: list[tuple[int, float]] = []
    last_j: float | None = None
    for poll in range(_MOST_POLLS):
        try:
            t_ns, energy_j = now_ns(), read_j()
        except pynvml.NVMLError:
            return None
        if last_j is not None and energy_j != last_j:
            steps.append((t_ns, energy_j))
        last_j = energy_j
        if steps and poll % _POLLS_PER_POWER == 0:
            for key, watts in (_powers_w(handle, asked) or {}).items():
                told_w[key].append(watts)
        if steps and (steps[-1][0] - steps[0][0]) / NS_PER_S >= _WATCHED_S:
            break
        sleep(_POLL_S)
    else:
        return None
    if not all(told_w.values()):
        return None
    (start_ns, start_j), (end_ns, end_j) = steps[0], steps[-1]
    counted_w = (end_j - start_j) * NS_PER_S / (end_ns - start_ns)
    average_w = [told_w[POWER_AVERAGE, scope][-1] for scope in (GPU, MODULE)]
    instant_w = [fmean(told_w[POWER_INSTANT, scope]) for scope in (GPU, MODULE)]
    found = {_nearer_scope(counted_w, *each_w) for each_w in (average_w, instant_w)}
    return found.pop() if len(found) == 1 else None


def _nearer_scope(counted_w: float, gpu_w: float, module_w: float) -> PowerScope | None:
    """None in the middle third between the two, where noise could decide."""
    share = (counted_w - gpu_w) / (module_w - gpu_w) if module_w > gpu_w else 0.5
    if share < 1 / 3:
        return PowerScope.GPU
    return PowerScope.MODULE if share > 2 / 3 else None


def module_contents(handle: Any, gpu: int, architecture: int, options: Options) -> Contents:
    """Which devices are on the module of this GPU: its CPU, their memory, and other GPUs.

    A CPU is matched by the affinity that NVML tells, which is that of the GPU's PCI and NUMA node.
    RAM that nobody counts by CPU is one device (``dram0``), a part of which is in each module: it
    counts with none of them.
    """
    packages = packages_by_key(options)
    count = 1 + max((cpu for cpus in packages.values() for cpu in cpus), default=0)
    cpus = _near_cpus(handle, count)
    near = [key for key, mine in packages.items() if cpus & set(mine)]
    is_told = bool(near) or not packages
    keys = near if is_told else list(packages)
    drams = [f"dram{key.removeprefix('cpu')}" for key in keys]
    # A Hopper module (GH200) has one GPU.
    beside = () if architecture <= _HOPPER else _gpus_beside(handle, gpu, cpus, count)
    inside = (*beside, *keys, *dict.fromkeys((*drams, "dram0")))
    return Contents(inside, "" if is_told else _UNKNOWN_CPU)


def find_limit_scope(handle: Any) -> PowerScope | None:
    """What the power limit that NVML sets holds: the GPU, or its module. None where none is clear.

    The default limit is told for either scope, and by the plain call.
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
    """The most that the module may draw, all on it together; None where that is not told.

    A driver that passes over the scope would give the GPU's own, which does not bound its module.
    """
    limits = _powers_w(handle, [(_MAXIMUM_LIMIT, GPU), (_MAXIMUM_LIMIT, MODULE)]) or {}
    module_w = limits.get((_MAXIMUM_LIMIT, MODULE), 0.0)
    return module_w if module_w > limits.get((_MAXIMUM_LIMIT, GPU), 0.0) else None


def _near_cpus(handle: Any, count: int) -> set[int]:
    try:
        words = pynvml.nvmlDeviceGetCpuAffinity(handle, -(-count // 64))
    except pynvml.NVMLError:
        return set()
    return {64 * i + bit for i, word in enumerate(words) for bit in range(64) if word >> bit & 1}


def _gpus_beside(handle: Any, gpu: int, cpus: set[int], count: int) -> tuple[str, ...]:
    """Other GPUs on the same module, such as the two of a GB200, as far as they answer.

    That is the other GPU with the same CPU affinity [7]. Where that is not told of one of them, or
    more than two share a CPU, as no module has [5], it is a GPU on the same board [8].
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
    """The handles of the other GPUs by index; one that is lost has none, and hides no other."""
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
    """Whether two GPUs are near different CPUs; not so where the CPUs of one are not told."""
    return bool(cpus and others) and not cpus & others


def _is_on_same_board(handle: Any, other: Any) -> bool:
    try:
        return bool(pynvml.nvmlDeviceOnSameBoard(handle, other))
    except pynvml.NVMLError:  # such as where the driver does not tell
        return False


def _powers_w(handle: Any, asked: list[tuple[int, int]]) -> dict[tuple[int, int], float] | None:
    """What these (field, scope) tell, in W, as far as they tell anything; None where none can."""
    try:
        values = pynvml.nvmlDeviceGetFieldValues(handle, asked)
    except (pynvml.NVMLError, TypeError):  # an old nvidia-ml-py takes no scopes
        return None
    return {
        key: value.value.uiVal / MW_PER_W
        for key, value in zip(asked, values, strict=True)
        if value.nvmlReturn == pynvml.NVML_SUCCESS and value.value.uiVal
    }


def scope_words(scope: PowerScope | None, contents: Contents, assumed: str = "") -> str:
    """A note for whoever reads the device's figures; empty where there is nothing to know.

    ``assumed`` are words of :func:`assume_scope`, where nobody could tell the scope.
    """
    if scope is not PowerScope.MODULE:
        return assumed
    words = assumed or "its power and energy are those of its module, CPU and memory included"
    return "; ".join(filter(None, (words, contents.note)))


NO_CONTENTS: Final = Contents(())
UNSCOPED_SAMPLES: Final = Unavailable(
    "the driver does not say whether its samples of power are the GPU's or the module's"
)
GPU_PART: Final = "the GPU with its memory, a part of its module"
MEMORY_PART: Final = "the GPU's memory, a part of the GPU"
NO_PART: Final = Unavailable("the driver does not tell this part apart")
PARTS: Final = (Quantity.GPU_POWER, Quantity.MEMORY_POWER)

"""Modules of two dies, of which one reports power and energy for both: MI250 and MI250X.

To HIP and to amdsmi each die is a GPU. What the module draws is told by one of them only:

[1] Linux commit 076f55a45e9e ("Only primary die supports power data"): on Aldebaran the driver
    reports 0 W and 0 J for the secondary die.
[2] ROCm/rocm_smi_lib issue 160: rocm-smi shows "N/A (Secondary die)", and that the primary, usually
    the one above or below, shows the power of both.
[3] ml-energy/zeus pull request 203: eight dies report 89, 0, 93, 0, 88, 0, 88 and 0 W.
[4] Linux commit 3f46c4e9ce25: of Aldebaran the driver tells the bandwidth between two dies: at
    least that of one link, at most that of all links between them.
[5] hwloc, topology-rsmi.c: on Adastra and Frontier (MI250X) the least is 50 GB/s, and the most 50,
    100 or 200 GB/s. The 200, four links, are taken to be those inside a module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from joulewise.data import Quantity, Unavailable
from joulewise.devices.amd.library import Library, number
from joulewise.devices.amd.readings import SENSORS
from joulewise.devices.amd.visible import Gpu
from joulewise.errors import DeviceError, NotSupportedError

_NAME: Final = "MI250"
_DEVICE_IDS: Final = frozenset({0x7408, 0x740C})  # MI250X and MI250, by their PCI ids
_LINKS_IN_MODULE: Final = 4  # [5]
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


def find_dies(smi: Library, gpus: Sequence[Gpu]) -> dict[int, Die]:
    """The dies of two-die modules among the GPUs, by index. Never raises."""
    dies = [gpu for gpu in gpus if gpu.whole == gpu.index and _is_half(smi, gpu)]
    silent = {gpu.index for gpu in dies if _is_silent(smi, gpu)}
    reporters = {
        gpu.index: _find_reporter(smi, gpu, dies, silent) for gpu in dies if gpu.index in silent
    }
    others = {**reporters, **{i: part for part, i in reporters.items() if i is not None}}
    return {gpu.index: Die(gpu.index, others.get(gpu.index), gpu.index in silent) for gpu in dies}


def _is_half(smi: Library, gpu: Gpu) -> bool:
    try:
        asic = smi.call("amdsmi_get_gpu_asic_info", gpu.handle)
        return _NAME in str(asic.get("market_name")) or _device_id(asic) in _DEVICE_IDS
    except DeviceError:
        return False


def _device_id(asic: Mapping[str, Any]) -> int | None:
    """It is a number or its hexadecimal text, by amdsmi's version."""
    told = asic.get("device_id")
    try:
        return told if isinstance(told, int) else int(str(told), 16)
    except ValueError:
        return None


def _is_silent(smi: Library, gpu: Gpu) -> bool:
    """Whether it tells no power, and a counter that is 0 if any. A fault that may pass is none."""
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


def _find_reporter(smi: Library, gpu: Gpu, dies: Sequence[Gpu], silent: set[int]) -> int | None:
    """The die that all of a module's links join to this one; else its neighbour, counted in pairs.

    Pairs are counted only where the driver tells no links, and all modules seem to be whole.
    """
    links = {other.index: _count_links(smi, gpu, other) for other in dies if other is not gpu}
    if any(links.values()):
        near = [index for index, count in links.items() if count >= _LINKS_IN_MODULE]
    else:
        place = dies.index(gpu)
        near = [dies[place ^ 1].index] if len(dies) % 2 == 0 else []
    return near[0] if len(near) == 1 and near[0] not in silent else None


def _count_links(smi: Library, gpu: Gpu, other: Gpu) -> int:
    """Direct links between two dies; 0 where there is none, or nobody tells."""
    function = "amdsmi_get_minmax_bandwidth_between_processors"
    try:
        told = smi.call(function, gpu.handle, other.handle)
        one, all_of_them = number(told["min_bandwidth"]), number(told["max_bandwidth"])
    except (DeviceError, KeyError):
        return 0
    return round(all_of_them / one) if one > 0 else 0


def silent_sensors(die: Die, first_gpu: int, shown: set[int]) -> dict[Quantity, Unavailable]:
    """Why a silent die has neither power nor energy, and where these are."""
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
    """What a person must know of a die's figures."""
    other = "the other die" if die.other is None else f"gpu{first_gpu + die.other}"
    if die.is_silent:
        return f"one of two dies of a module, for which {other} reports"
    note = f"its power and energy are those of both dies of its module, {other} included"
    if die.other is None or die.other not in shown:
        note += ", which the job does not see and others may use"
    return note

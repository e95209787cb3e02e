"""AMD GPUs over amdsmi, an extra. It is loaded when they are looked for, not before.

- ``library``: loading amdsmi, and its errors; ``visible``: which GPUs a program would see.
- ``gpu``: one GPU; ``readings``: how each quantity is read.
- ``counter_check``: whether an energy counter agrees with power; ``dies``: modules of two dies.
"""

from __future__ import annotations

from joulewise.data import Unavailable
from joulewise.devices.device import Device
from joulewise.devices.options import Options

__all__ = ["find", "visible_keys"]


def find(options: Options) -> list[Device] | Unavailable:
    """Every AMD GPU that a HIP program would see here, or why there is none. Never raises.

    Keys count on from ``options.first_gpu`` by amdsmi's index, so that on a machine with GPUs of
    two makers no two share one.
    """
    from joulewise.devices.amd.amdsmi_library import ABSENT, load
    from joulewise.devices.amd.gpu import open_gpus
    from joulewise.devices.amd.hip_visible import identify, visible

    smi = load()
    if isinstance(smi, Unavailable):
        if smi is ABSENT and not options.kfd.exists():
            # Most machines have no such GPU: what to install would only mislead there.
            return Unavailable(f"no AMD GPU here: there is no {options.kfd}")
        return smi
    try:
        gpus = identify(smi)
        if isinstance(gpus, Unavailable):
            return gpus
        shown = visible({} if options.hidden_too else options.environ, gpus)
        if not shown.gpus:
            return Unavailable(shown.reason, shown.fix)
        return list(open_gpus(smi, gpus, shown.gpus, options, shown.note))
    finally:
        smi.release()


def visible_keys(options: Options) -> set[str]:
    """The keys of the GPUs that a HIP program would see; none where amdsmi cannot be asked."""
    from joulewise.devices.amd.amdsmi_library import load
    from joulewise.devices.amd.hip_visible import identify, visible

    smi = load()
    if isinstance(smi, Unavailable):
        return set()
    try:
        gpus = identify(smi)
        if isinstance(gpus, Unavailable):
            return set()
        shown = visible(options.environ, gpus).gpus
        return {f"gpu{options.first_gpu + gpu.index}" for gpu in shown}
    finally:
        smi.release()

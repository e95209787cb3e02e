"""AMD GPUs over amdsmi, an extra, which is loaded only when they are searched for.

- ``amdsmi_library``: loading amdsmi, and its errors
- ``hip_visible``: which GPUs a HIP program would see
- ``gpu``: one GPU, how each quantity is read, and modules of two dies
- ``counter_check``: whether an energy counter agrees with power
"""

from __future__ import annotations

from joulewise.data import Unavailable
from joulewise.devices.device import Device, Options

__all__ = ["find", "visible_keys"]


def find(options: Options) -> list[Device] | Unavailable:
    """Every AMD GPU that a HIP program would see, or why there is none. Never raises.

    Keys are numbered from ``options.first_gpu`` on, by amdsmi's index, so that they are unique on a
    machine with GPUs of two makers.
    """
    from joulewise.devices.amd.amdsmi_library import ABSENT, load
    from joulewise.devices.amd.gpu import open_gpus
    from joulewise.devices.amd.hip_visible import hip_visible_gpus, identify

    smi = load()
    if isinstance(smi, Unavailable):
        if smi is ABSENT and not options.kfd.exists():
            # Most machines have no such GPU: a hint to install amdsmi would mislead there.
            return Unavailable(f"no AMD GPU here: there is no {options.kfd}")
        return smi
    try:
        gpus = identify(smi)
        if isinstance(gpus, Unavailable):
            return gpus
        shown = hip_visible_gpus({} if options.hidden_too else options.environ, gpus)
        if not shown.gpus:
            return Unavailable(shown.reason, shown.fix)
        return list(open_gpus(smi, gpus, shown.gpus, options, shown.note))
    finally:
        smi.release()


def visible_keys(options: Options) -> set[str]:
    """The keys of the GPUs that a HIP program would see; none where amdsmi does not work."""
    from joulewise.devices.amd.amdsmi_library import load
    from joulewise.devices.amd.hip_visible import hip_visible_gpus, identify

    smi = load()
    if isinstance(smi, Unavailable):
        return set()
    try:
        gpus = identify(smi)
        if isinstance(gpus, Unavailable):
            return set()
        shown = hip_visible_gpus(options.environ, gpus).gpus
        return {f"gpu{options.first_gpu + gpu.index}" for gpu in shown}
    finally:
        smi.release()

"""Which GPUs and CPU packages can be set, found by a process of its own.

Drivers are large, and may hang: the process that starts the command loads none of them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, NoReturn

from joulewise.errors import DeviceError, UsageError
from joulewise.process import child
from joulewise.process.json_lines import JsonSocket

if TYPE_CHECKING:
    from joulewise.devices import Device

# Chosen: initialising a GPU without persistence mode takes one to three seconds. The deadline
# leaves room for every vendor's driver; doubled, a command waits twice as long for one that hangs.
_DEADLINE_S: Final = 20.0
_DISCOVERY_S: Final = 5.0


@dataclass(frozen=True)
class FoundGpu:
    """A GPU and the range of its settings; ``default_w`` is None where it has no power limit.

    The clocks are those at which it can be locked, ascending.
    """

    key: str
    uid: str
    visible: bool
    default_w: float | None = None
    lowest_w: float = 0.0
    highest_w: float = 0.0
    name: str = ""
    sm_clocks_mhz: tuple[float, ...] = ()
    mem_clocks_mhz: tuple[float, ...] = ()


@dataclass(frozen=True)
class FoundCpu:
    """A CPU package with a power limit that can be set: its value now, and the range."""

    key: str
    uid: str
    name: str
    now_w: float
    lowest_w: float
    highest_w: float


@dataclass(frozen=True)
class Found:
    gpus: tuple[FoundGpu, ...]
    packages: tuple[FoundCpu, ...]


def gpus(named: Sequence[int], environ: Mapping[str, str]) -> list[FoundGpu]:
    """The GPUs with these indices; without any, those that a program started here can see."""
    return pick(find(environ).gpus, named)


def pick(found: Sequence[FoundGpu], named: Sequence[int]) -> list[FoundGpu]:
    """The GPUs of ``found`` with these indices; without any, the visible ones.

    Raises UsageError where there is none, or an index is unknown.
    """
    if not named:
        visible_gpus = [gpu for gpu in found if gpu.visible]
        if not visible_gpus:
            raise UsageError("there is no GPU to set", "run `joulewise doctor` to see why")
        return visible_gpus
    by_key = {gpu.key: gpu for gpu in found}
    for number in named:
        if f"gpu{number}" not in by_key:
            raise UsageError(
                f"there is no gpu{number}", f"this machine has {', '.join(by_key) or 'no GPU'}"
            )
    return [by_key[f"gpu{number}"] for number in dict.fromkeys(named)]


def find(environ: Mapping[str, str]) -> Found:
    """Every GPU and CPU package that can be set, visible or not."""
    endpoint, process = child.start(__name__, environ, is_child=True)
    connection = JsonSocket(endpoint)
    messages = connection.receive(_DEADLINE_S)
    connection.close()
    process.kill()
    process.wait()
    if not messages:
        raise DeviceError("the GPUs do not answer", "run `joulewise doctor`")
    clocks = ("sm_clocks_mhz", "mem_clocks_mhz")
    return Found(
        tuple(
            FoundGpu(**{**gpu, **{name: tuple(gpu[name]) for name in clocks}})
            for gpu in messages[0]["gpus"]
        ),
        tuple(FoundCpu(**package) for package in messages[0]["packages"]),
    )


def main(descriptor: int) -> NoReturn:
    """Send every device to the process at the other end of an inherited socket."""
    try:
        client = JsonSocket(socket.socket(fileno=descriptor))
        client.send("found", **asdict(_discover(os.environ)))
    finally:
        os._exit(0)  # a thread that hangs in a driver must not keep the process


def _discover(environ: Mapping[str, str]) -> Found:
    from joulewise.control.deadline_device import every_device
    from joulewise.data import Kind
    from joulewise.devices import Options, discover

    shown = discover(Options(environ=environ, deadline_s=_DISCOVERY_S)).devices
    visible = {device.info.uid for device in shown}
    devices = every_device(environ).values()
    packages = [_describe_cpu(device) for device in devices if device.info.kind is Kind.CPU]
    return Found(
        tuple(_describe_gpu(device, visible) for device in devices if device.info.kind is Kind.GPU),
        tuple(package for package in packages if package),
    )


def _describe_gpu(device: Device, visible: Collection[str]) -> FoundGpu:
    from joulewise.data import Knob, KnobInfo

    info = device.info
    gpu = FoundGpu(info.key, info.uid, info.uid in visible, name=info.name)
    limit = device.knobs.get(Knob.POWER_LIMIT)
    if isinstance(limit, KnobInfo):
        low, high = limit.minimum, limit.maximum
        gpu = replace(gpu, default_w=limit.default, lowest_w=low, highest_w=high)
    sm, memory = (device.knobs.get(knob) for knob in (Knob.SM_CLOCK, Knob.MEMORY_CLOCK))
    return replace(
        gpu,
        sm_clocks_mhz=(isinstance(sm, KnobInfo) and sm.choices) or (),
        mem_clocks_mhz=(isinstance(memory, KnobInfo) and memory.choices) or (),
    )


def _describe_cpu(device: Device) -> FoundCpu | None:
    from joulewise.data import Knob, KnobInfo

    limit = device.knobs.get(Knob.POWER_LIMIT)
    now = device.get(Knob.POWER_LIMIT) if isinstance(limit, KnobInfo) else None
    if not isinstance(limit, KnobInfo) or not isinstance(now, int | float):
        return None
    info = device.info
    return FoundCpu(info.key, info.uid, info.name, now, limit.minimum, limit.maximum)

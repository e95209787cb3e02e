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
class DiscoveredGpu:
    """A GPU and the range of its settings; ``default_w`` is None where it has no power limit.

    ``now_w`` is its power limit now, None where it cannot be read. The clocks are those at which it
    can be locked, ascending. ``is_partitioned``: others may use slices of it (MIG).
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
    now_w: float | None = None
    is_partitioned: bool = False
    is_simulated: bool = False


@dataclass(frozen=True)
class DiscoveredCpu:
    """A CPU package with a power limit that can be set: its value now, and the range."""

    key: str
    uid: str
    name: str
    now_w: float
    lowest_w: float
    highest_w: float


@dataclass(frozen=True)
class DiscoveredDevices:
    gpus: tuple[DiscoveredGpu, ...]
    packages: tuple[DiscoveredCpu, ...]


def gpus(named: Sequence[int], environ: Mapping[str, str]) -> list[DiscoveredGpu]:
    """The GPUs with these indices; without any, those that a program started here can see."""
    return select_gpus(discover_settable(environ).gpus, named)


def select_gpus(found: Sequence[DiscoveredGpu], named: Sequence[int]) -> list[DiscoveredGpu]:
    """The GPUs of ``found`` with these indices; without any, the visible ones.

    Raises UsageError where there is none, or an index is unknown.
    """
    if not named:
        visible_gpus = [gpu for gpu in found if gpu.visible]
        if not visible_gpus:
            raise UsageError(
                "there is no GPU whose settings could be changed",
                "run `joulewise doctor` to see why",
            )
        return visible_gpus
    by_key = {gpu.key: gpu for gpu in found}
    for number in named:
        if f"gpu{number}" not in by_key:
            raise UsageError(
                f"there is no gpu{number}", f"this machine has {', '.join(by_key) or 'no GPU'}"
            )
    return [by_key[f"gpu{number}"] for number in dict.fromkeys(named)]


def discover_settable(environ: Mapping[str, str]) -> DiscoveredDevices:
    """Every GPU and CPU package that can be set, visible or not."""
    endpoint, process = child.start_process(__name__, environ, is_child=True)
    connection = JsonSocket(endpoint)
    messages = connection.receive(_DEADLINE_S)
    connection.close()
    process.kill()
    process.wait()
    if not messages:
        raise DeviceError("the GPUs do not answer", "run `joulewise doctor`")
    clocks = ("sm_clocks_mhz", "mem_clocks_mhz")
    return DiscoveredDevices(
        tuple(
            DiscoveredGpu(**{**gpu, **{name: tuple(gpu[name]) for name in clocks}})
            for gpu in messages[0]["gpus"]
        ),
        tuple(DiscoveredCpu(**package) for package in messages[0]["packages"]),
    )


def main(descriptor: int) -> NoReturn:
    """Send every device to the process at the other end of an inherited socket."""
    try:
        client = JsonSocket(socket.socket(fileno=descriptor))
        client.send("found", **asdict(_discover(os.environ)))
    finally:
        os._exit(0)  # a thread that hangs in a driver must not keep the process


def _discover(environ: Mapping[str, str]) -> DiscoveredDevices:
    from joulewise.control.deadline_device import open_all_devices
    from joulewise.data import Kind
    from joulewise.devices import Options, discover

    shown = discover(Options(environ=environ, deadline_s=_DISCOVERY_S)).devices
    visible = {device.info.uid for device in shown}
    devices = open_all_devices(environ).values()
    packages = [_describe_cpu(device) for device in devices if device.info.kind is Kind.CPU]
    return DiscoveredDevices(
        tuple(_describe_gpu(device, visible) for device in devices if device.info.kind is Kind.GPU),
        tuple(package for package in packages if package),
    )


def _describe_gpu(device: Device, visible: Collection[str]) -> DiscoveredGpu:
    from joulewise.data import ControlInfo, ControlKind

    info = device.info
    gpu = DiscoveredGpu(
        info.key,
        info.uid,
        info.uid in visible,
        name=info.name,
        is_simulated=info.is_simulated,
    )
    limit = device.controls.get(ControlKind.POWER_LIMIT)
    if isinstance(limit, ControlInfo):
        low, high = limit.minimum, limit.maximum
        gpu = replace(gpu, default_w=limit.default, lowest_w=low, highest_w=high)
        now = device.get(ControlKind.POWER_LIMIT)
        gpu = replace(gpu, now_w=now if isinstance(now, int | float) else None)
    sm, memory = (
        device.controls.get(control) for control in (ControlKind.SM_CLOCK, ControlKind.MEMORY_CLOCK)
    )
    return replace(
        gpu,
        sm_clocks_mhz=(isinstance(sm, ControlInfo) and sm.choices) or (),
        mem_clocks_mhz=(isinstance(memory, ControlInfo) and memory.choices) or (),
        is_partitioned=bool(info.slices),
    )


def _describe_cpu(device: Device) -> DiscoveredCpu | None:
    from joulewise.data import ControlInfo, ControlKind

    limit = device.controls.get(ControlKind.POWER_LIMIT)
    now = device.get(ControlKind.POWER_LIMIT) if isinstance(limit, ControlInfo) else None
    if not isinstance(limit, ControlInfo) or not isinstance(now, int | float):
        return None
    info = device.info
    return DiscoveredCpu(info.key, info.uid, info.name, now, limit.minimum, limit.maximum)

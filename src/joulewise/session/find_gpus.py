"""Which GPUs there are to turn, found by a process of its own: drivers are large and may hang."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, NoReturn

from joulewise.errors import DeviceError, UsageError
from joulewise.process import child

if TYPE_CHECKING:
    from joulewise.devices import Device

_DEADLINE_S: Final = 20.0
_DISCOVERY_S: Final = 5.0
_CHUNK_B: Final = 1 << 16


@dataclass(frozen=True)
class FoundGpu:
    """``default_w`` is its power limit by default, None where it has none, and then the range.

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
    """A CPU whose power limit can be turned: it is ``now_w``, and may be in the range."""

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
    """Those with these numbers; without numbers, those that a program started here would see."""
    return pick(find(environ).gpus, named)


def pick(found: Sequence[FoundGpu], named: Sequence[int]) -> list[FoundGpu]:
    """Of all GPUs those that are meant, as for :func:`gpus`."""
    if not named:
        seen = [gpu for gpu in found if gpu.visible]
        if not seen:
            raise UsageError("no GPU to set anything of", "see what `joulewise doctor` says")
        return seen
    by_key = {gpu.key: gpu for gpu in found}
    for number in named:
        if f"gpu{number}" not in by_key:
            there = f"there {'are' if len(by_key) > 1 else 'is'} {', '.join(by_key) or 'none'}"
            raise UsageError(f"there is no gpu{number}", there)
    return [by_key[f"gpu{number}"] for number in dict.fromkeys(named)]


def find(environ: Mapping[str, str]) -> Found:
    """Every GPU and CPU package that there is to turn, visible or not."""
    endpoint, process = child.start(__name__, environ, is_child=True)
    told = bytearray()
    with endpoint:
        endpoint.settimeout(_DEADLINE_S)
        with suppress(OSError):
            while chunk := endpoint.recv(_CHUNK_B):
                told += chunk
    process.kill()
    process.wait()
    try:
        every = json.loads(told)
    except ValueError:
        raise DeviceError("the GPUs do not answer", "see what `joulewise doctor` says") from None
    return Found(
        tuple(FoundGpu(**{**each, **_clocks(each)}) for each in every["gpus"]),
        tuple(FoundCpu(**each) for each in every["packages"]),
    )


def _clocks(told: Mapping[str, list[float]]) -> dict[str, tuple[float, ...]]:
    return {name: tuple(told[name]) for name in ("sm_clocks_mhz", "mem_clocks_mhz")}


def main(descriptor: int) -> NoReturn:
    """Tell of every device to whoever is at the other end of an inherited socket."""
    try:
        with socket.socket(fileno=descriptor) as asker:
            asker.sendall(json.dumps(asdict(_look(os.environ))).encode())
    finally:
        os._exit(0)  # a thread that hangs in a driver must not keep us


def _look(environ: Mapping[str, str]) -> Found:
    from joulewise.control.deadline_device import every_device
    from joulewise.data import Kind
    from joulewise.devices import Options, discover

    shown = discover(Options(environ=environ, deadline_s=_DISCOVERY_S)).devices
    visible = {device.info.uid for device in shown}
    every = every_device(environ).values()
    packages = [_package(each) for each in every if each.info.kind is Kind.CPU]
    return Found(
        tuple(_gpu(each, visible) for each in every if each.info.kind is Kind.GPU),
        tuple(package for package in packages if package),
    )


def _gpu(device: Device, visible: Collection[str]) -> FoundGpu:
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


def _package(device: Device) -> FoundCpu | None:
    from joulewise.data import Knob, KnobInfo

    limit = device.knobs.get(Knob.POWER_LIMIT)
    now = device.get(Knob.POWER_LIMIT) if isinstance(limit, KnobInfo) else None
    if not isinstance(limit, KnobInfo) or not isinstance(now, int | float):
        return None
    info = device.info
    return FoundCpu(info.key, info.uid, info.name, now, limit.minimum, limit.maximum)

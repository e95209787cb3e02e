"""Which GPUs there are to turn, found by a process of its own: drivers are large and may hang."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Final, NoReturn

from joulewise.command import apart
from joulewise.errors import DeviceError, UsageError

_DEADLINE_S: Final = 20.0
_DISCOVERY_S: Final = 5.0
_CHUNK_B: Final = 1 << 16


@dataclass(frozen=True)
class Gpu:
    """``default_w`` is its power limit by default, None where it has none, and then the range."""

    key: str
    uid: str
    visible: bool
    default_w: float | None = None
    lowest_w: float = 0.0
    highest_w: float = 0.0


def gpus(named: Sequence[int], environ: Mapping[str, str]) -> list[Gpu]:
    """Those with these numbers; without numbers, those that a program started here would see."""
    found = _ask(environ)
    if not named:
        seen = [gpu for gpu in found if gpu.visible]
        if not seen:
            raise UsageError("no GPU to set anything of", "see what `joulewise doctor` says")
        return seen
    by_key = {gpu.key: gpu for gpu in found}
    for number in named:
        if f"gpu{number}" not in by_key:
            there = ", ".join(by_key) or "none"
            raise UsageError(f"there is no gpu{number}", f"there are {there}")
    return [by_key[f"gpu{number}"] for number in dict.fromkeys(named)]


def _ask(environ: Mapping[str, str]) -> list[Gpu]:
    endpoint, process = apart.start(__name__, environ, is_child=True)
    told = bytearray()
    with endpoint:
        endpoint.settimeout(_DEADLINE_S)
        with suppress(OSError):
            while chunk := endpoint.recv(_CHUNK_B):
                told += chunk
    process.kill()
    process.wait()
    try:
        return [Gpu(**each) for each in json.loads(told)]
    except ValueError:
        raise DeviceError("the GPUs do not answer", "see what `joulewise doctor` says") from None


def main(descriptor: int) -> NoReturn:
    """Tell of every GPU to whoever is at the other end of an inherited socket."""
    try:
        with socket.socket(fileno=descriptor) as asker:
            asker.sendall(json.dumps([asdict(gpu) for gpu in _find(os.environ)]).encode())
    finally:
        os._exit(0)  # a thread that hangs in a driver must not keep us


def _find(environ: Mapping[str, str]) -> list[Gpu]:
    from joulewise.control.everything import every_device
    from joulewise.data import Kind, Knob, KnobInfo
    from joulewise.devices import Options, discover

    shown = discover(Options(environ=environ, deadline_s=_DISCOVERY_S)).devices
    visible = {device.info.uid for device in shown}
    found = []
    for uid, device in every_device(environ).items():
        if device.info.kind is Kind.GPU:
            limit = device.knobs.get(Knob.POWER_LIMIT)
            gpu = Gpu(device.info.key, uid, uid in visible)
            if isinstance(limit, KnobInfo):
                low, high = limit.minimum, limit.maximum
                gpu = replace(gpu, default_w=limit.default, lowest_w=low, highest_w=high)
            found.append(gpu)
    return found

"""A GPU on the bench: polled as fast as is sensible while another process loads it.

Square waves of load whose lengths are drawn: nothing about them beats with a sensor.
"""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.calibrate.gpu_load import HEAVY
from joulewise.calibrate.response import SensorPolls
from joulewise.data import Quantity, Reading, SensorInfo, Unavailable
from joulewise.data.throttling import throttle_names
from joulewise.devices.device import Device
from joulewise.errors import DeviceError, JoulewiseError, UsageError
from joulewise.units import NS_PER_S


@dataclass(frozen=True)
class Burst:
    """A pause, then load."""

    off_s: float
    on_s: float


def draw_waves(
    seconds: float, shortest_s: float, longest_s: float, *, lead_s: float, seed: int
) -> list[Burst]:
    """Bursts for about ``seconds`` after a first pause of ``lead_s``; all scales as likely."""
    draw = random.Random(seed)  # noqa: S311  # the waves of one seed can be had again
    low, high = math.log(shortest_s), math.log(longest_s)
    bursts: list[Burst] = []
    left_s = seconds
    while left_s > 0:
        off_s, on_s = (math.exp(draw.uniform(low, high)) for _ in range(2))
        bursts.append(Burst(off_s if bursts else lead_s, on_s))
        left_s -= on_s + (off_s if len(bursts) > 1 else 0)
    return bursts


if TYPE_CHECKING:
    from numpy.typing import NDArray

POLL_HZ: Final = 1000
POLLED: Final = (Quantity.POWER, Quantity.POWER_INSTANT, Quantity.ENERGY)

_LOOK_EVERY: Final = 50
_AFTER: Final = POLL_HZ // 2
_INTERRUPTED: Final = 3.0
_LATEST_S: Final = 30.0
_HELD_BACK: Final = 0x4 | 0x8 | 0x20 | 0x40 | 0x80  # what lowers clocks under load

Progress = Callable[[float], None]


class Rig:
    """Holds the loading process; leaving the block ends it."""

    def __init__(self, device: Device, *, force: bool = False) -> None:
        self._device = device
        self._force = force
        self._polled = [q for q in POLLED if isinstance(device.sensors.get(q), SensorInfo)]
        if Quantity.POWER not in self._polled:
            lack = device.read(Quantity.POWER)
            why = lack.reason if isinstance(lack, Unavailable) else "it has no power sensor"
            raise DeviceError(f"{device.info.key} cannot be calibrated: {why}", _fix(lack))
        others = _others(device, allowed=0)
        if others and not force:
            raise UsageError(
                f"{device.info.key} cannot be calibrated: {others[0]}",
                "wait until it is free, or calibrate all the same with --force",
            )
        self._load = _start_load(device)

    def __enter__(self) -> Rig:  # noqa: PYI034  # Python 3.10 has no Self
        return self

    def __exit__(self, *_: object) -> None:
        self._load.close()

    def record(
        self, bursts: Sequence[Burst], kind: str = HEAVY, progress: Progress = lambda _: None
    ) -> SensorPolls:
        """What is read while the bursts go on, and a little after."""
        self._load.play(kind, bursts)
        lasts_s = sum(burst.off_s + burst.on_s for burst in bursts)
        polls = _Polls(self._device, self._polled)
        start_s = time.monotonic()
        while not self._load.ended():
            polls.take(_LOOK_EVERY)
            elapsed_s = time.monotonic() - start_s
            if elapsed_s > 2 * lasts_s + _LATEST_S:
                raise JoulewiseError(
                    f"the load on {self._device.info.key} does not come to its end",
                    "see whether other programs keep the GPU or the CPU busy",
                )
            progress(elapsed_s / lasts_s)
        polls.take(_AFTER)
        others = () if self._force else _others(self._device, allowed=1)
        return polls.recording(self._load.edges(), (*polls.held_back(), *others))


@dataclass
class _Polls:
    """Readings at deadlines that are drawn, so that they do not beat with the sensor's ticks."""

    device: Device
    quantities: Sequence[Quantity]
    t_ns: list[int] = field(default_factory=list)
    took_ns: list[int] = field(default_factory=list)
    rows: list[list[float]] = field(default_factory=list)
    throttle: int = 0

    def __post_init__(self) -> None:
        self._due_s = time.monotonic()
        self._draw = random.Random(0)  # noqa: S311  # no secret

    def take(self, count: int) -> None:
        for _ in range(count):
            now_s = time.monotonic()
            # What was missed is not made up for.
            self._due_s = max(self._due_s, now_s - 1 / POLL_HZ) + 1 / POLL_HZ
            time.sleep(max(0.0, self._due_s - now_s - self._draw.random() / POLL_HZ))
            readings = [self.device.read(quantity) for quantity in self.quantities]
            first, end_ns = readings[0], time.monotonic_ns()
            self.t_ns.append(first.t_ns if isinstance(first, Reading) else end_ns)
            self.took_ns.append(end_ns - self.t_ns[-1])
            self.rows.append([r.value if isinstance(r, Reading) else np.nan for r in readings])
        held = self.device.read(Quantity.THROTTLE)
        if isinstance(held, Reading) and self.device.info.vendor == "nvidia":
            self.throttle |= int(held.value) & _HELD_BACK

    def held_back(self) -> tuple[str, ...]:
        names = ", ".join(throttle_names(self.throttle))
        return (f"it was held back ({names})",) if names else ()

    def recording(self, edges: Sequence[tuple[int, int]], faults: tuple[str, ...]) -> SensorPolls:
        table: NDArray[np.float64] = np.array(self.rows)
        # Who is put to sleep in the middle of a call gets a value that is newer than its time.
        took_ns = np.array(self.took_ns)
        table[took_ns > _INTERRUPTED * np.median(took_ns)] = np.nan
        on_ns, off_ns = np.array(edges, np.int64).reshape(-1, 2).T
        return SensorPolls(
            t_s=np.array(self.t_ns) / NS_PER_S,
            columns={q: table[:, i] for i, q in enumerate(self.quantities)},
            on_s=on_ns / NS_PER_S,
            off_s=off_ns / NS_PER_S,
            faults=faults,
        )


class _Load:
    """The loading process, at the other end of two pipes."""

    def __init__(self, arguments: Sequence[str], environ: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "joulewise.calibrate.gpu_load", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
        )
        assert self._process.stdout is not None  # noqa: S101  # a pipe, as asked
        os.set_blocking(self._process.stdout.fileno(), False)
        self._said = b""
        self._edges: list[tuple[int, int]] = []

    def play(self, kind: str, bursts: Sequence[Burst]) -> None:
        self._edges = []
        times = " ".join(f"{burst.off_s:.6f} {burst.on_s:.6f}" for burst in bursts)
        self._send(f"{kind} {times}\n")
        while "begin" not in self._lines():
            time.sleep(0.01)

    def ended(self) -> bool:
        """Whether the wave is over."""
        for line in (lines := self._lines()):
            if line != "done":
                start, end = line.split()
                self._edges.append((int(start), int(end)))
        return "done" in lines

    def edges(self) -> list[tuple[int, int]]:
        return self._edges

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _send(self, text: str) -> None:
        assert self._process.stdin is not None  # noqa: S101  # a pipe, as asked
        with suppress(BrokenPipeError):  # what it said before it ended tells why
            self._process.stdin.write(text.encode())
            self._process.stdin.flush()

    def _lines(self) -> list[str]:
        assert self._process.stdout is not None  # noqa: S101  # a pipe, as asked
        chunk = self._process.stdout.read()
        *lines, self._said = (self._said + (chunk or b"")).split(b"\n")
        told = [line.decode() for line in lines]
        for line in told:
            if line.startswith("error\t"):
                _, message, hint = line.split("\t")
                raise UsageError(message, hint)
        if not told and self._process.poll() is not None:
            raise JoulewiseError(
                f"the process that loads the GPU ended with status {self._process.returncode}",
                "see what it said above",
            )
        return told


def _start_load(device: Device) -> _Load:
    info = device.info
    if "JOULEWISE_SIM" in os.environ:
        return _Load(["sim", info.key.removeprefix("gpu")], dict(os.environ))
    if info.vendor != "nvidia":
        raise UsageError(
            f"{info.key} is of {info.vendor}: only NVIDIA's GPUs can be calibrated so far",
            "its figures stay those of the tables",
        )
    return _Load(["torch", "0"], {**os.environ, "CUDA_VISIBLE_DEVICES": info.uid})


def _others(device: Device, *, allowed: int) -> tuple[str, ...]:
    """Who else computes there: by number, since in a container the driver tells the host's ids."""
    told = device.processes()
    computing = [] if isinstance(told, Unavailable) else [p for p in told if "compute" in p.kind]
    if len(computing) <= allowed:
        return ()
    count = len(computing) - allowed
    return (f"{count} other process{'es' * (count > 1)} computed on it",)


def _fix(lack: Reading | Unavailable) -> str:
    return (lack.fix if isinstance(lack, Unavailable) else "") or "see: joulewise doctor"

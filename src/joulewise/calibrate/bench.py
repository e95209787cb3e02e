"""A GPU on the bench: polled at 1 kHz while another process loads it with square waves.

The lengths of the waves and the times of the polls are random, so that neither beats with the
sensor (aliasing).
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
from joulewise.data.devices import throttle_names
from joulewise.devices.device import Device
from joulewise.errors import DeviceError, JoulewiseError, UsageError
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

POLL_HZ: Final = 1000
POLLED: Final = (Quantity.POWER, Quantity.POWER_INSTANT, Quantity.ENERGY)

_POLLS_PER_CHECK: Final = 50  # polls between two checks whether the load has ended
_POLLS_AFTER: Final = POLL_HZ // 2
# A poll that took this many times as long as the median was interrupted: its value may be newer
# than its time. Chosen; with twice as many, values that are some ms off stay.
_INTERRUPTED_RATIO: Final = 3.0
_LATEST_S: Final = 30.0
# Bits of NVML's clock-event reasons that lower clocks under load: software power cap, hardware
# slowdown, software and hardware thermal slowdown, hardware power brake.
_HELD_BACK: Final = 0x4 | 0x8 | 0x20 | 0x40 | 0x80

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Burst:
    """A pause, then a load."""

    off_s: float
    on_s: float


def draw_waves(
    seconds: float, shortest_s: float, longest_s: float, *, lead_s: float, seed: int
) -> list[Burst]:
    """Draw bursts for about ``seconds`` after a first pause of ``lead_s`` seconds.

    Lengths are log-uniform between the two bounds, so that all scales are as likely.
    """
    draw = random.Random(seed)  # noqa: S311  # no secret
    low, high = math.log(shortest_s), math.log(longest_s)
    bursts: list[Burst] = []
    left_s = seconds
    while left_s > 0:
        off_s, on_s = (math.exp(draw.uniform(low, high)) for _ in range(2))
        bursts.append(Burst(off_s if bursts else lead_s, on_s))
        left_s -= on_s + (off_s if len(bursts) > 1 else 0)
    return bursts


class Rig:
    """A GPU and the process that loads it, which ends with the ``with`` block.

    Raises:
        DeviceError: the GPU has no power sensor.
        UsageError: another process computes on it, and ``force`` is not given.
    """

    def __init__(self, device: Device, *, force: bool = False) -> None:
        self._device = device
        self._force = force
        self._polled = [q for q in POLLED if isinstance(device.sensors.get(q), SensorInfo)]
        if Quantity.POWER not in self._polled:
            reading = device.read(Quantity.POWER)
            reason, fix = "it has no power sensor", ""
            if isinstance(reading, Unavailable):
                reason, fix = reading.reason, reading.fix
            message = f"{device.info.key} cannot be calibrated: {reason}"
            raise DeviceError(message, fix or "run `joulewise doctor`")
        others = _find_others(device, allowed=0)
        if others and not force:
            raise UsageError(
                f"{device.info.key} cannot be calibrated: {others[0]}",
                "wait until it is free, or calibrate it anyway with --force",
            )
        self._load = _start_load(device)

    def __enter__(self) -> Rig:  # noqa: PYI034  # Python 3.10 has no Self
        return self

    def __exit__(self, *_: object) -> None:
        self._load.close()

    def record(
        self, bursts: Sequence[Burst], kind: str = HEAVY, progress: Progress = lambda _: None
    ) -> SensorPolls:
        """Play the bursts, and poll the sensors until half a second after them."""
        self._load.play(kind, bursts)
        lasts_s = sum(burst.off_s + burst.on_s for burst in bursts)
        polls = _Polls(self._device, self._polled)
        start_s = time.monotonic()
        while not self._load.ended():
            polls.take(_POLLS_PER_CHECK)
            elapsed_s = time.monotonic() - start_s
            if elapsed_s > 2 * lasts_s + _LATEST_S:
                raise JoulewiseError(
                    f"the load on {self._device.info.key} takes too long",
                    "check whether other programs keep the GPU or the CPU busy",
                )
            progress(elapsed_s / lasts_s)
        polls.take(_POLLS_AFTER)
        others = () if self._force else _find_others(self._device, allowed=1)
        return polls.recording(self._load.edges(), (*polls.held_back(), *others))


@dataclass
class _Polls:
    """Readings at random times, so that they do not beat with the sensor's updates."""

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
            # Polls that were missed are not made up for.
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
        return (f"its clocks were lowered ({names})",) if names else ()

    def recording(self, edges: Sequence[tuple[int, int]], faults: tuple[str, ...]) -> SensorPolls:
        table: NDArray[np.float64] = np.array(self.rows)
        # A poll that was interrupted in the middle of a call has a value newer than its time.
        took_ns = np.array(self.took_ns)
        table[took_ns > _INTERRUPTED_RATIO * np.median(took_ns)] = np.nan
        on_ns, off_ns = np.array(edges, np.int64).reshape(-1, 2).T
        return SensorPolls(
            t_s=np.array(self.t_ns) / NS_PER_S,
            columns={q: table[:, i] for i, q in enumerate(self.quantities)},
            on_s=on_ns / NS_PER_S,
            off_s=off_ns / NS_PER_S,
            faults=faults,
        )


class _Load:
    """The process that loads the GPU, controlled over two pipes (see ``gpu_load``)."""

    def __init__(self, arguments: Sequence[str], environ: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "joulewise.calibrate.gpu_load", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
        )
        assert self._process.stdout is not None  # noqa: S101  # a pipe, as asked
        os.set_blocking(self._process.stdout.fileno(), False)
        self._partial = b""
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
        with suppress(BrokenPipeError):  # it has ended; its last line says why
            self._process.stdin.write(text.encode())
            self._process.stdin.flush()

    def _lines(self) -> list[str]:
        assert self._process.stdout is not None  # noqa: S101  # a pipe, as asked
        chunk = self._process.stdout.read()
        *received, self._partial = (self._partial + (chunk or b"")).split(b"\n")
        lines = [line.decode() for line in received]
        for line in lines:
            if line.startswith("error\t"):
                _, message, hint = line.split("\t")
                raise UsageError(message, hint)
        if not lines and self._process.poll() is not None:
            raise JoulewiseError(
                f"the process that loads the GPU ended with status {self._process.returncode}",
                "see its output above",
            )
        return lines


def _start_load(device: Device) -> _Load:
    info = device.info
    if "JOULEWISE_SIM" in os.environ:
        return _Load(["sim", info.key.removeprefix("gpu")], dict(os.environ))
    if info.vendor != "nvidia":
        raise UsageError(
            f"{info.key} is from {info.vendor}: only NVIDIA GPUs can be calibrated so far",
            "its sensor profile stays that of the tables",
        )
    return _Load(["torch", "0"], {**os.environ, "CUDA_VISIBLE_DEVICES": info.uid})


def _find_others(device: Device, *, allowed: int) -> tuple[str, ...]:
    """A fault for other processes that compute on the GPU, beside ``allowed`` ones.

    They are counted, not named: in a container the driver reports the host's process ids.
    """
    processes = device.processes()
    known = () if isinstance(processes, Unavailable) else processes
    count = sum("compute" in process.kind for process in known) - allowed
    return (f"{count} other process{'es' * (count > 1)} computed on it",) if count > 0 else ()

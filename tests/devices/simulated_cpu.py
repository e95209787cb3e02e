"""A simulated machine whose time passes only when a test says so."""

from __future__ import annotations

from pathlib import Path

from joulewise.data import Unavailable
from joulewise.devices import Options, cpu, ram
from joulewise.devices.protocol import Device
from joulewise.simulate.cpu import Machine
from joulewise.simulate.powercap import PowercapTree


class Bench:
    def __init__(self, root: Path, machine: Machine, **how):
        self.tree = PowercapTree(root, machine, **how)
        self.time_ns = 5_000_000_000
        self.load = [0.5] * len(machine.packages)
        self.options = Options(
            environ=self.tree.environ, now_ns=lambda: self.time_ns, sleep=self.elapse
        )

    def elapse(self, seconds: float, load: list[float] | None = None) -> list[float]:
        self.time_ns += round(seconds * 1e9)
        return self.tree.advance(seconds, self.load if load is None else load)

    def devices(self) -> dict[str, Device]:
        cpus, memory = cpu.find(self.options), ram.find(self.options)
        assert not isinstance(cpus, Unavailable)
        assert not isinstance(memory, Unavailable)
        return {device.info.key: device for device in [*cpus, *memory]}


class OnBenchTime:
    """For a DeviceConformance whose ``device`` fixture sets ``bench``."""

    bench: Bench

    def elapse(self, seconds):
        self.bench.elapse(seconds)

    def now_ns(self):
        return self.bench.time_ns

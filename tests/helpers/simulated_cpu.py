"""A simulated machine whose time passes only when a test says so."""

from __future__ import annotations

import os
from pathlib import Path

from joulewise.data import Unavailable
from joulewise.devices import Options
from joulewise.devices.device import Device
from joulewise.devices.host import cpu, ram
from tests.helpers.powercap_tree import PowercapTree, SimulatedHost


class Bench:
    def __init__(self, root: Path, machine: SimulatedHost, **how):
        self.tree = PowercapTree(root, machine, **how)
        self.time_ns = 5_000_000_000
        self.load = [0.5] * len(machine.packages)
        self._stat = root / "proc/stat"
        self._busy_s = [0.0] * len(machine.packages)
        self._write_stat()
        self.options = Options(
            environ=self.tree.environ, now_ns=lambda: self.time_ns, sleep=self.elapse
        )

    def elapse(self, seconds: float, load: list[float] | None = None) -> list[float]:
        load = self.load if load is None else load
        self.time_ns += round(seconds * 1e9)
        for package in range(len(self._busy_s)):
            self._busy_s[package] += seconds * load[package]
        self._write_stat()
        return self.tree.advance(seconds, load)

    def _write_stat(self) -> None:
        ticks = (round(busy_s * os.sysconf("SC_CLK_TCK")) for busy_s in self._busy_s)
        self._stat.write_text("".join(f"cpu{i} {t} 0 0 0 0 0 0\n" for i, t in enumerate(ticks)))

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

"""Windows in real time: simulated boards behind NVML, recorded by ``joulewise run``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from truth_windows import BOARDS, Window

from joulewise.analyse.lanes import ArrayLane
from joulewise.record.layout import Lane
from joulewise.record.manifest import read_manifest
from joulewise.record.store import find
from joulewise.record.trace import LaneReader, open_lane

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A simulation for each load, with boards of its own, and two windows on each board.
LOADS: Final = ("resnet50", "alexnet", "vgg19", "inception3", "ecg")
WINDOWS: Final = 2
TIME_S: Final = 14
JOULEWISE: Final = (sys.executable, "-m", "joulewise")


def real_windows(seed: int = 1) -> list[tuple[str, Window]]:
    draw = np.random.default_rng(seed)
    found = []
    for number, load in enumerate(LOADS):
        with tempfile.TemporaryDirectory() as folder:
            print(f"recording {TIME_S} s of {load} on {', '.join(BOARDS)}", flush=True)
            found += _windows(Path(folder), load, seed + number, draw)
    return found


def _windows(
    folder: Path, load: str, seed: int, draw: np.random.Generator
) -> list[tuple[str, Window]]:
    truth = folder / "truth.csv"
    sim = ("sim", "--gpu", ",".join(BOARDS), "--workload", load, "--seed", str(seed))
    run = (*JOULEWISE, "--store", str(folder / "runs"), "run", "--", "sleep", str(TIME_S))
    subprocess.run(
        [*JOULEWISE, *sim, "--truth", str(truth), "--", *run],
        check=True,
        env=os.environ | {"JOULEWISE_STATE": str(folder / "state")},
        stderr=subprocess.DEVNULL,
    )
    path = find(folder / "runs", "last")
    manifest = read_manifest(path)
    (command,) = manifest.commands
    assert command.end_ns is not None
    devices = {device.info.key: device for device in manifest.devices}
    windows = []
    for gpu, board in enumerate(BOARDS):
        t_ns, energy_j, sensed_j = _truth(truth, gpu)
        for _ in range(WINDOWS):
            length_ns = int(draw.uniform(1, TIME_S - 1) * 1e9)
            start_ns = int(draw.integers(command.start_ns, command.end_ns - length_ns))
            span_ns = start_ns, start_ns + length_ns
            fast = open_lane(path, f"gpu{gpu}", Lane.FAST)
            buffer = open_lane(path, f"gpu{gpu}", Lane.BUFFER)
            assert fast is not None
            drawn_j, counted_j = (
                float(np.diff(np.interp(span_ns, t_ns, total))[0]) for total in (energy_j, sensed_j)
            )
            windows.append(
                (
                    board,
                    Window(
                        "training",
                        devices[f"gpu{gpu}"],
                        _kept(fast),
                        _kept(buffer) if buffer else None,
                        span_ns,
                        drawn_j,
                        counted_j,
                    ),
                )
            )
    return windows


def _kept(lane: LaneReader) -> ArrayLane:
    """In memory, since the folder goes."""
    chunks = list(lane.chunks(lane.columns))
    return ArrayLane({name: np.concatenate([c[name] for c in chunks]) for name in lane.columns})


def _truth(path: Path, gpu: int) -> tuple[NDArray[np.float64], ...]:
    rows = np.loadtxt(path, delimiter=",", skiprows=1)
    rows = rows[rows[:, 1] == gpu]
    return rows[:, 0], rows[:, 2], rows[:, 3]

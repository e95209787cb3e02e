"""Spans and runs in real time: simulated boards behind NVML, recorded by ``joulewise run``.

Programs that train and rest in turn, with a span around each, give the spans that are locked to
load edges; windows anywhere in the same recordings are the free ones; short commands are the
runs. The truth is what the simulation wrote down.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from helpers.truth_programs import BOARDS, Judged
from joulewise.analyse.energy.windows import window_energy
from joulewise.store.layout import StreamKind
from joulewise.store.manifest import read_manifest
from joulewise.store.runs import find
from joulewise.store.trace import open_device_stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

JOULEWISE: Final = (sys.executable, "-m", "joulewise")
_PHASES: Final = """
import random, sys, time
import joulewise
from joulewise.simulate import gpu

draw, device = random.Random(sys.argv[1]), gpu(0)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    network = draw.choice(["vgg19", "resnet50", "inception3", "alexnet"])
    with joulewise.span("work"):
        for _ in range(draw.randint(2, 7)):
            device.step(network, batch_size=16)
    with joulewise.span("idle"):
        time.sleep(draw.uniform(0.3, 1.8))
"""
_SHORT: Final = """
import random, sys, time
from joulewise.simulate import gpu

draw, device = random.Random(sys.argv[1]), gpu(0)
end = time.monotonic() + float(sys.argv[2])
time.sleep(draw.uniform(0, 0.5) * float(sys.argv[2]))
while time.monotonic() < end:
    device.step(draw.choice(["vgg19", "resnet50"]), batch_size=draw.choice([4, 8, 16]))
    time.sleep(draw.uniform(0, 0.3))
"""
PROGRAM_S: Final = 25
RUNS_S: Final = (0.3, 5.0)


def real_results(number: int, seed: int) -> list[Judged]:
    """About ``number`` of each family on each board, boards side by side."""
    with ThreadPoolExecutor(len(BOARDS)) as pool:
        found = pool.map(partial(_of_board, number=number, seed=seed), BOARDS)
        return [one for each in found for one in each]


def _of_board(board: str, number: int, seed: int) -> list[Judged]:
    draw = np.random.default_rng([seed, BOARDS.index(board)])
    found: list[Judged] = []
    with tempfile.TemporaryDirectory() as folder:
        while sum(len(one.value) for one in found if one.family == "locked") < number:
            found += _program(Path(folder), board, draw)
            print(f"recorded {PROGRAM_S} s on {board}", flush=True)
        found += [_short_run(Path(folder), board, draw) for _ in range(number)]
    return found


def _program(folder: Path, board: str, draw: np.random.Generator) -> list[Judged]:
    run, truth = _record(folder, board, _PHASES, PROGRAM_S, draw)
    result = json.loads((run / "result.json").read_text("utf-8"))
    start_ns = result["start_monotonic_ns"]
    spans = [span for span in result["spans"] if span["closed"]]
    locked_ns = np.array([[span["start_s"], span["end_s"]] for span in spans]) * 1e9 + start_ns
    actual = [span["energy_j"]["gpu0"] for span in spans]
    locked = Judged(
        board,
        "locked",
        np.array([one["value"] for one in actual]),
        np.array([one["error_sampling"] for one in actual]),
        _sensed_j(truth, locked_ns),
        np.diff(locked_ns, axis=1)[:, 0] / 1e9,
    )
    length_ns = np.exp(draw.uniform(np.log(0.2), np.log(3.0), len(spans))) * 1e9
    first_ns, last_ns = locked_ns.min(), locked_ns.max()
    begin_ns = draw.uniform(first_ns, last_ns - length_ns)
    free_ns = np.column_stack([begin_ns, begin_ns + length_ns]).astype(np.int64)
    device = next(one for one in read_manifest(run).devices if one.info.key == "gpu0")
    lanes = [open_device_stream(run, "gpu0", lane) for lane in (StreamKind.FAST, StreamKind.BUFFER)]
    energy = window_energy(device, *lanes, free_ns)
    free = Judged(
        board,
        "free",
        energy.energy_j,
        energy.error_sampling_j,
        _sensed_j(truth, free_ns),
        length_ns / 1e9,
    )
    return [locked, free]


def _short_run(folder: Path, board: str, draw: np.random.Generator) -> Judged:
    time_s = float(np.exp(draw.uniform(*np.log(RUNS_S))))
    run, truth = _record(folder, board, _SHORT, time_s, draw)
    result = json.loads((run / "result.json").read_text("utf-8"))
    start_ns = result["start_monotonic_ns"]
    run_ns = np.array([[start_ns, start_ns + result["time_s"] * 1e9]])
    payload = result["energy_j"]["gpu0"]
    return Judged(
        board,
        "run",
        np.array([payload["value"]]),
        np.array([payload["error_sampling"]]),
        _sensed_j(truth, run_ns),
        np.array([result["time_s"]]),
    )


def _record(
    folder: Path, board: str, program: str, time_s: float, draw: np.random.Generator
) -> tuple[Path, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    seed = int(draw.integers(1 << 31))
    truth = folder / f"{seed}.csv"
    sim = ("sim", "--gpu", board, "--seed", str(seed), "--truth", str(truth))
    run = ("--store", str(folder / str(seed)), "run", "--", sys.executable, "-c", program)
    subprocess.run(
        [*JOULEWISE, *sim, "--", *JOULEWISE, *run, str(seed), str(time_s)],
        check=True,
        env=os.environ | {"JOULEWISE_STATE": str(folder / "state")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    rows = np.loadtxt(truth, delimiter=",", skiprows=1)
    return find(folder / str(seed), "last"), (rows[:, 0], rows[:, 3])


def _sensed_j(
    truth: tuple[NDArray[np.float64], NDArray[np.float64]], windows_ns: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.asarray(np.diff(np.interp(windows_ns, *truth), axis=1)[:, 0])

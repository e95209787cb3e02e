"""A run of 100 million samples: its 1,000 epochs beside what numpy takes to load and sum them.

    python benchmarks/big_run.py [--rows N] [--counter] [--folder DIR]

The run is written as the recorder writes and packs it, once (a folder that is named keeps it).
Both sides read the same columns from a warm cache, each in a process of its own, imports left
out; each is timed some times in turn, and the quickest of each counts. ``--counter`` adds the
energy counter's column, which the analysis then reads too and numpy does not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from helpers.verdict import Verdicts

from joulewise.analyse.energy.windows import window_energy
from joulewise.data import DeviceInfo, Kind, SensorProfile, Source
from joulewise.store.arrow_stream import schema
from joulewise.store.layout import PACKED, STREAM, TRACE, StreamKind, stream_path
from joulewise.store.manifest import RecordedDevice
from joulewise.store.parquet import pack
from joulewise.store.trace import open_device_stream

ROWS = 100_000_000
WINDOWS = 1_000
TIMES = 3
BATCH_ROWS = 1_000_000
STEP_NS = 10_000_000
RATIO = 6.0
MEMORY_GIB = 1.5


def main(options: argparse.Namespace) -> int:
    if options.side:
        print(json.dumps(SIDES[options.side](options.folder)))
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        if not (folder / "power_w.npy").exists():
            make(folder, options.rows, counter=options.counter)
        verdicts = Verdicts()
        judge(folder, verdicts)
        verdicts.show()
        return 0 if verdicts.all_met else 1


def judge(folder: Path, verdicts: Verdicts) -> None:
    found: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for _ in range(TIMES + 1):
        for side, payload in found.items():
            command = [sys.executable, __file__, "--side", side, "--folder", str(folder)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            payload.append(json.loads(done.stdout))
    best = {
        side: min(payload[1:], key=lambda one: one["time_s"]) for side, payload in found.items()
    }
    for side, payload in best.items():
        print(f"{side:8} {payload['time_s']:7.2f} s, CPU {payload['cpu_s']:.2f} s", end="")
        print(f"  {payload['memory_gib']:.2f} GiB", end="")
        print(f"  {payload['rows']:,.0f} rows, {payload['energy_j']:.6g} J")
    size_b = stream_path(folder, "gpu0", StreamKind.FAST, PACKED).stat().st_size
    print(f"packed   {size_b / best['analysis']['rows']:7.2f} bytes a row")
    ratio = best["analysis"]["time_s"] / best["numpy"]["time_s"]
    verdicts.at_most("analysis beside numpy, time", ratio, RATIO, percent=False)
    memory = best["analysis"]["memory_gib"]
    verdicts.at_most("memory of the analysis, GiB", memory, MEMORY_GIB, percent=False)
    off = abs(best["analysis"]["energy_j"] / best["numpy"]["energy_j"] - 1)
    verdicts.at_most("energy of all epochs beside the plain sum", off, 1e-3)


def timed(work: Callable[[], tuple[float, float]]) -> dict[str, float]:
    start, cpu = time.perf_counter(), time.process_time()
    rows, energy_j = work()
    time_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
    # Not ru_maxrss: that is no less than what the parent had when it started this process.
    status = Path("/proc/self/status").read_text("ascii")
    peak_gib = int(status.split("VmHWM:")[1].split()[0]) / (1 << 20)
    return {
        "time_s": time_s,
        "cpu_s": cpu_s,
        "memory_gib": peak_gib,
        "rows": rows,
        "energy_j": energy_j,
    }


def numpy_side(folder: Path) -> dict[str, float]:
    def work() -> tuple[float, float]:
        t_ns, power_w = (np.load(folder / f"{name}.npy") for name in ("t_ns", "power_w"))
        _ = t_ns.sum()
        return len(t_ns), float(power_w.sum(dtype=np.float64)) * STEP_NS / 1e9

    return timed(work)


def analysis_side(folder: Path) -> dict[str, float]:
    payload = json.loads((folder / "told.json").read_text())
    info = DeviceInfo("gpu0", Kind.GPU, "board", "GPU-0", "NVIDIA")
    sources = dict.fromkeys(payload["columns"], Source.MEASURED)
    device = RecordedDevice(info, sources, SensorProfile(0.02, 0.01), maximum_w=300.0)
    edges_ns = np.linspace(payload["first_ns"], payload["last_ns"], WINDOWS + 1).astype(np.int64)
    windows_ns = np.stack([edges_ns[:-1], edges_ns[1:]], axis=1)
    _warm_imports()

    def work() -> tuple[float, float]:
        lane = open_device_stream(folder, "gpu0", StreamKind.FAST)
        assert lane is not None
        found = window_energy(device, lane, None, windows_ns)
        return lane.rows, float(found.energy_j.sum())

    return timed(work)


def _warm_imports() -> None:
    import pyarrow.parquet  # noqa: F401  (imports are not what is timed)


SIDES: dict[str, Callable[[Path], dict[str, float]]] = {
    "numpy": numpy_side,
    "analysis": analysis_side,
}


def make(folder: Path, rows: int, *, counter: bool) -> None:
    """A stream as the recorder leaves it, packed, and the columns as numpy keeps them."""
    import pyarrow as pa

    print(f"writing {rows:,} rows into {folder}", flush=True)
    (folder / TRACE).mkdir(parents=True, exist_ok=True)
    names = ("t_ns", "power_w", "energy_j")[: 3 if counter else 2]
    stream = stream_path(folder, "gpu0", StreamKind.FAST, STREAM)
    columns = {
        name: np.lib.format.open_memmap(
            folder / f"{name}.npy", "w+", np.int64 if name == "t_ns" else np.float32, (rows,)
        )
        for name in ("t_ns", "power_w")
    }
    draw = np.random.default_rng(0)
    drawn_j = 0.0
    with pa.OSFile(str(stream), "wb") as file, pa.ipc.new_stream(file, schema(names)) as writer:
        for first in range(0, rows, BATCH_ROWS):
            batch = _batch(draw, first, min(BATCH_ROWS, rows - first), drawn_j)
            drawn_j = float(batch["energy_j"][-1])
            writer.write_batch(pa.record_batch([batch[name] for name in names], schema(names)))
            for name, column in columns.items():
                column[first : first + len(batch[name])] = batch[name]
    payload = {"columns": names[1:], "first_ns": int(columns["t_ns"][0])}
    payload["last_ns"] = int(columns["t_ns"][-1])
    for column in columns.values():
        column.flush()
    pack(stream, stream.with_suffix(PACKED))
    stream.unlink()
    (folder / "told.json").write_text(json.dumps(payload))


def _batch(draw: np.random.Generator, first: int, rows: int, drawn_j: float) -> dict[str, Any]:
    """A training's power with steps, noise and repeats, polled a little late each time."""
    row = np.arange(first, first + rows)
    late_ns = draw.exponential(100_000, rows).astype(np.int64)
    t_ns = 1_000_000_000_000 + row * STEP_NS + late_ns
    level_w = 180.0 + 60.0 * ((row // 37) % 3 == 0) + 20.0 * np.sin(row / 5_000)
    power_w = np.rint(10 * (level_w + draw.normal(0, 0.3, rows))) / 10
    power_w[1::2] = power_w[: rows // 2 * 2 : 2]  # 100 Hz of polls, 50 Hz of values
    energy_j = drawn_j + np.cumsum(power_w) * (STEP_NS / 1e9)
    return {"t_ns": t_ns, "power_w": power_w.astype(np.float32), "energy_j": energy_j}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--counter", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    sys.exit(main(parser.parse_args()))

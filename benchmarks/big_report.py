"""The HTML report of a run of 100 million samples: CPU time and memory of the whole command.

    python benchmarks/big_report.py [--rows N] [--folder DIR]

The run has a counter, a slow lane and 1,000 epochs; it is written as the recorder writes and packs
it, once (a folder that is named keeps it). The report is made twice: with the result as ``run``
keeps it, which is judged, and before that without, so that the run is analysed first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
from big_run import ROWS, STEP_NS, make
from helpers.verdict import Verdicts

from joulewise.data import DeviceInfo, Kind, SensorProfile, Source
from joulewise.hooks.marks import Marks
from joulewise.store.arrow_stream import schema
from joulewise.store.layout import MARKS, PACKED, RESULT, STREAM, StreamKind, stream_path
from joulewise.store.manifest import CommandRecord, Manifest, RecordedDevice, write_manifest
from joulewise.store.parquet import pack

CPU_S = 15.0
MEMORY_GIB = 1.5
EPOCHS = 1_000
RUN = "20260101-000000-0000"
S = 10**9
START_NS = 1_000 * S


def main(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        store = options.folder or Path(scratch)
        if not (store / RUN).exists():
            with ProcessPoolExecutor(1) as maker:  # its memory would count as that of the report
                maker.submit(make_run, store / RUN, options.rows).result()
        (store / RUN / RESULT).unlink(missing_ok=True)
        verdicts = Verdicts()
        for what in ("analysed first", "result kept"):
            cpu_s, memory_gib = report(store)
            print(f"{what:15} CPU {cpu_s:6.2f} s, {memory_gib:.2f} GiB")
        verdicts.at_most("CPU of a report, s", cpu_s, CPU_S, percent=False)
        verdicts.at_most("memory of a report, GiB", memory_gib, MEMORY_GIB, percent=False)
        verdicts.show()
        return 0 if verdicts.all_met else 1


def report(store: Path) -> tuple[float, float]:
    command = [sys.executable, "-m", "joulewise", "--store", str(store), "report", RUN]
    process = subprocess.Popen(
        [*command, "-o", str(store / "report.html")], stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime, used.ru_maxrss / (1 << 20)


def make_run(run: Path, rows: int) -> None:
    make(run, rows, counter=True)
    end_ns = START_NS + rows * STEP_NS
    _slow_lane(run, rows * STEP_NS // S)
    (run / MARKS).mkdir()
    marks, edges_ns = Marks(run / MARKS), np.linspace(START_NS + S, end_ns - S, EPOCHS + 1)
    for epoch in range(EPOCHS):
        marks.whole("epoch", int(edges_ns[epoch]), int(edges_ns[epoch + 1]), epoch)
    info = DeviceInfo("gpu0", Kind.GPU, "board", "GPU-0", "nvidia")
    sources = dict.fromkeys(("power_w", "energy_j"), Source.MEASURED)
    manifest = Manifest(
        id=RUN,
        commands=(CommandRecord(1, ("python", "train.py"), START_NS + S, end_ns - S, 0, 1.0),),
        cwd="/",
        rate_hz=S / STEP_NS,
        wall_start_ns=1_700_000_000 * S,
        monotonic_start_ns=START_NS,
        boot_id="none",
        devices=(RecordedDevice(info, sources, SensorProfile(0.02, 0.01), maximum_w=300.0),),
        state="complete",
        exit_code=0,
    )
    write_manifest(run, manifest)


def _slow_lane(run: Path, seconds: int) -> None:
    draw = np.random.default_rng(0)
    columns = {
        "t_ns": START_NS + np.arange(seconds) * S,
        "gpu_utilisation_pct": draw.integers(85, 100, seconds).astype(np.float32),
        "temperature_c": draw.normal(60, 2, seconds).astype(np.float32),
        "sm_clock_mhz": draw.normal(1300, 50, seconds).astype(np.float32),
        "enforced_limit_w": np.full(seconds, 250, np.float32),
        "throttle_reasons": draw.choice([0.0, 4.0], seconds),
    }
    path = stream_path(run, "gpu0", StreamKind.SLOW, STREAM)
    shape = schema(tuple(columns))
    with pa.ipc.new_stream(path, shape) as stream:
        stream.write_batch(pa.record_batch([*map(pa.array, columns.values())], schema=shape))
    pack(path, path.with_suffix(PACKED))
    path.unlink()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--folder", type=Path)
    sys.exit(main(parser.parse_args()))

"""How well the recorder keeps its time, and what it costs: 8 simulated GPUs, in real time.

Polled at 100 Hz, with calls that take no time and with calls as long as a driver's; at the default
rate; and the driver's own buffers, of which no sample may be dropped or doubled, of any of their
seven types. The limits hold for a machine that is otherwise idle.

    .venv/bin/python benchmarks/recorder.py [--seconds 30] [--minutes 10]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from helpers.verdict import Verdicts

from joulewise.data import Quantity
from joulewise.devices import discover
from joulewise.record.recorder import Recorder, RecorderOptions
from joulewise.store.layout import BUFFERED_QUANTITIES, MISSES, StreamKind, buffer_stream_kind
from joulewise.store.manifest import read_manifest
from joulewise.store.runs import new_run
from joulewise.store.trace import open_device_stream

GPUS = [f"gpu{index}" for index in range(8)]
POLL_HZ = 100.0
WARM_UP_S = 2.0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=30.0)
    arguments.add_argument("--minutes", type=float, default=10.0)
    given = arguments.parse_args()
    verdicts = Verdicts()
    with tempfile.TemporaryDirectory() as folder:
        for latency in ("none", "driver"):
            run, cpu = recorded(Path(folder), POLL_HZ, given.seconds, latency)
            judge_time(verdicts, run, f"8 GPUs at 100 Hz, latency {latency}")
            if latency == "none":
                verdicts.at_most("CPU at 100 Hz, of one core", cpu, 0.05)
        _, cpu = recorded(Path(folder), None, given.seconds, "none")
        verdicts.at_most("CPU at the default rate, of one core", cpu, 0.01)
        run, _ = recorded(Path(folder), None, given.minutes * 60, "driver")
        for quantity in (Quantity.POWER, *BUFFERED_QUANTITIES):
            what = f"samples of {quantity.value} over {given.minutes:g} minutes"
            judge_buffer(verdicts, run, buffer_stream_kind(quantity), what)
    verdicts.show()
    sys.exit(not verdicts.all_met)


def judge_time(verdicts: Verdicts, run: Path, what: str) -> None:
    lanes = [read_manifest(run).recorder.lanes[gpu] for gpu in GPUS]  # type: ignore[union-attr]
    lines = [json.loads(line) for line in _lines(run / MISSES)]
    result = {gpu: sum(line["missed"] for line in lines if gpu in line["channels"]) for gpu in GPUS}
    met = min(lane["rows"] / (lane["rows"] + lane["missed"]) for lane in lanes)
    untold = sum(lane["missed"] - result[gpu] for gpu, lane in zip(GPUS, lanes, strict=True))
    verdicts.at_most(f"{what}: CV of the rate", max(lane["rate_cv"] for lane in lanes), 0.02)
    verdicts.at_least(f"{what}: deadlines met", met, 0.998, percent=True)
    verdicts.at_most(f"{what}: misses not recorded", untold, 0, percent=False)
    late_ms = max(lane["late_p99_ms"] for lane in lanes)
    verdicts.at_most(f"{what}: p99 lateness, ms", late_ms, 5, percent=False)
    effective_hz = np.mean([lane["effective_hz"] for lane in lanes])
    print(f"{what}: {effective_hz:.1f} Hz of new values")


def judge_buffer(verdicts: Verdicts, run: Path, lane: StreamKind, what: str) -> None:
    dropped = doubled = samples = 0
    for gpu in GPUS:
        reader = open_device_stream(run, gpu, lane)
        if reader is None:
            sys.exit(f"{gpu} has no buffer")
        t_ns = np.concatenate([chunk["t_ns"] for chunk in reader.chunks(["t_ns"])])
        apart_ns = np.diff(t_ns)
        steps = np.rint(apart_ns / np.median(apart_ns)).astype(int)
        samples += len(t_ns)
        dropped += int((steps - 1).clip(min=0).sum())
        doubled += int((steps < 1).sum())
    print(f"{what}: {samples} samples")
    verdicts.at_most(f"{what}: dropped", dropped, 0, percent=False)
    verdicts.at_most(f"{what}: doubled", doubled, 0, percent=False)


def recorded(
    store: Path, rate_hz: float | None, seconds: float, latency: str
) -> tuple[Path, float]:
    """A run, and the share of one core that its recorder used."""
    run = new_run(store)
    command = [sys.executable, "-m", "joulewise", "sim", "--gpu", "v100x8"]
    command += ["--workload", "resnet50", "--latency", latency, "--"]
    command += [sys.executable, __file__, "record", str(run), str(rate_hz or ""), str(seconds)]
    payload: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, capture_output=True).stdout
    )
    rate = f"{rate_hz:g} Hz" if rate_hz else "The default rate"
    print(f"{rate} for {seconds:g} s, latency {latency}: {payload['cpu']:.2%} of one core")
    return run, payload["cpu"]


def record(run: str, rate_hz: str, seconds: str) -> None:
    """In a process of its own, on the simulated GPUs."""
    discovery = discover()
    recorder = Recorder(
        Path(run), discovery, RecorderOptions(rate_hz=float(rate_hz) if rate_hz else None)
    )
    recorder.start()
    time.sleep(WARM_UP_S)
    used_s, began_s = time.process_time(), time.monotonic()
    time.sleep(float(seconds))
    cpu = (time.process_time() - used_s) / (time.monotonic() - began_s)
    recorder.stop()
    discovery.close()
    print(json.dumps({"cpu": cpu}))


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


if __name__ == "__main__":
    if sys.argv[1:2] == ["record"]:
        record(*sys.argv[2:])
    else:
        main()

"""Gains with a wall meter's log: under slow waves, and from a run that was recorded earlier."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from helpers.virtual_bench import VirtualBench, as_recording

from joulewise.calibrate.bench import draw_waves
from joulewise.calibrate.gain import WallMeter, gain_from_waves, gains_from_run
from joulewise.calibrate.gpu_load import HEAVY
from joulewise.data import DeviceInfo, Kind, Source, Unavailable
from joulewise.errors import UsageError
from joulewise.record.sensor_profiles import CalibratedValue
from joulewise.simulate.boards import load_board, make_unit
from joulewise.store.arrow_stream import schema
from joulewise.store.layout import STREAM, TRACE, StreamKind, stream_path
from joulewise.store.manifest import CommandRecord, Manifest, RecordedDevice, write_manifest
from joulewise.units import NS_PER_S

EFFICIENCY = 0.93
SUPPLY = CalibratedValue(EFFICIENCY, 0.005)
REST_W = 180.0
WALL_S = 1_800_000_000.0


def write_log(path, played, ahead_s=0.0):
    """What a meter of 1 Hz writes of a node with this board."""
    timeline = played.timeline
    t_ns = np.arange(timeline.start_ns + NS_PER_S, timeline.end_ns, NS_PER_S)
    mean_w = timeline.energy_at(t_ns) - timeline.energy_at(t_ns - NS_PER_S)
    at_wall_w = (mean_w + REST_W) / EFFICIENCY
    rows = [f"{t / NS_PER_S + ahead_s:.3f},{w:.1f}" for t, w in zip(t_ns, at_wall_w, strict=True)]
    path.write_text("\n".join(["time,power_w", *rows]) + "\n")


@dataclass(frozen=True)
class MeteredBench(VirtualBench):
    """Writes the log while the board is loaded."""

    log: Path = Path("nowhere")

    def play(self, bursts, kind):
        played = super().play(bursts, kind)
        write_log(self.log, played)
        return played


def started(path):
    path.write_text("time,power_w\n1,200\n")
    return path


@pytest.mark.parametrize(("key", "seed"), [("v100", 1), ("a100", 2), ("laptop", 3)])
def test_a_hidden_gain_is_found_under_slow_waves(key, seed, tmp_path):
    unit = make_unit(load_board(key), seed)
    log = started(tmp_path / "meter.csv")
    bench = MeteredBench(unit, log=log)
    found = gain_from_waves(bench, WallMeter(log, SUPPLY), progress=lambda _: None)
    assert abs(found.gain.value - unit.gain) <= found.gain.error < 0.05
    assert "meter.csv" in found.how


def test_a_supply_that_nobody_knows_reports_no_gain(tmp_path):
    log = started(tmp_path / "meter.csv")
    bench = MeteredBench(make_unit(load_board("v100"), 1), log=log)
    found = gain_from_waves(bench, WallMeter(log), progress=lambda _: None)
    assert isinstance(found.gain, Unavailable)
    assert "--psu-efficiency" in found.gain.fix


def test_a_log_that_cannot_be_read_is_refused_before_the_gpu_is_loaded(tmp_path):
    class Untouched:
        def record(self, *_):
            pytest.fail("it was loaded")

    with pytest.raises(UsageError, match="No such file"):
        gain_from_waves(Untouched(), WallMeter(tmp_path / "none.csv"), progress=lambda _: None)


def recorded_run(folder, units, seed=0):
    """A run of several boards under slow loads of their own, and its meter's log at the wall."""
    (folder / TRACE).mkdir(parents=True)
    devices, total = [], 0.0
    for number, unit in enumerate(units):
        waves = draw_waves(180.0, 4.0, 10.0, lead_s=5.0, seed=seed + number)
        played = VirtualBench(unit).play(waves, HEAVY)
        recording = as_recording(played)
        thin = slice(None, None, 100)  # 10 Hz
        columns = {"t_ns": np.rint(recording.t_s[thin] * NS_PER_S).astype(np.int64)}
        columns |= {
            q.value: c[thin] for q, c in recording.columns.items() if q != "power_instant_w"
        }
        shape = schema(tuple(columns))
        with pa.ipc.new_stream(
            stream_path(folder, f"gpu{number}", StreamKind.FAST, STREAM), shape
        ) as file:
            file.write_batch(pa.record_batch([pa.array(c) for c in columns.values()], shape))
        info = DeviceInfo(f"gpu{number}", Kind.GPU, unit.board.name, f"GPU-{number}", "nvidia", "1")
        devices.append(RecordedDevice(info, {"power_w": Source.MEASURED}))
        t_ns = np.arange(5, 180) * NS_PER_S
        total = total + played.timeline.energy_at(t_ns) - played.timeline.energy_at(t_ns - NS_PER_S)
    command = CommandRecord(1, ("train",), 0)
    wall_ns = round(WALL_S * NS_PER_S)
    write_manifest(
        folder, Manifest(folder.name, (command,), "/", 10.0, wall_ns, 0, "", tuple(devices))
    )
    at_wall_w = (total + REST_W) / EFFICIENCY
    log = folder.parent / "meter.csv"
    rows = [f"{t / NS_PER_S + WALL_S:.3f},{w:.1f}" for t, w in zip(t_ns, at_wall_w, strict=True)]
    log.write_text("timestamp,watts\n" + "\n".join(rows) + "\n")
    return log


def test_the_gains_of_two_boards_from_a_run(tmp_path):
    units = [make_unit(load_board("v100"), 4), make_unit(load_board("rtx6000"), 5)]
    log = recorded_run(tmp_path / "run", units)
    found = gains_from_run(tmp_path / "run", WallMeter(log, SUPPLY))
    assert [info.key for info in found] == ["gpu0", "gpu1"]
    for gain, unit in zip(found.values(), units, strict=True):
        assert abs(gain.gain.value - unit.gain) <= gain.gain.error < 0.05


def test_a_run_without_a_gpu_is_refused(tmp_path):
    log = recorded_run(tmp_path / "run", [make_unit(load_board("v100"), 4)])
    stream_path(tmp_path / "run", "gpu0", StreamKind.FAST, STREAM).unlink()
    with pytest.raises(UsageError, match="no trace of a GPU"):
        gains_from_run(tmp_path / "run", WallMeter(log, SUPPLY))

"""Whole recordings: of simulated GPUs through NVML, killed, with faults, and of a sleeper."""

import json
import platform
import select
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest

from joulewise.data import Quantity, Unavailable
from joulewise.devices import Discovery
from joulewise.record.recorder import Recorder, RecorderOptions
from joulewise.record.sensor_profiles import sensor_profile_for
from joulewise.store.layout import MISSES, StreamKind
from joulewise.store.manifest import CommandRecord, read_manifest
from joulewise.store.runs import new_run, status
from joulewise.store.trace import open_device_stream
from joulewise.testing.toy_device import ToyClock, ToyDevice
from tests.helpers.paths import ROOT

PROCESS = str(ROOT / "tests/helpers/recording_process.py")
SIM = [sys.executable, "-m", "joulewise", "sim", "--latency", "none"]
DEADLINE_S = 60
S = 10**9


def eventually(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not (result := condition()):
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
    return result


@contextmanager
def recording(run, *options, rate_hz=50):
    """A recorder on simulated GPUs; it ends in order when its input does."""
    command = [*SIM, *options, "--", sys.executable, PROCESS, str(run), str(rate_hz)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert select.select([process.stdout], [], [], DEADLINE_S)[0], "it never began"
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            pipe.close()


def column(run, key, name, lane=StreamKind.FAST):
    reader = open_device_stream(run, key, lane)
    return np.concatenate([chunk[name] for chunk in reader.chunks([name])]) if reader else []


def wait_for_rows(run, key, rows):
    eventually(lambda: len(column(run, key, "t_ns")) >= rows)


def codes(run, device):
    return {n["code"] for n in read_manifest(run).notes if n.get("device") == device}


def test_a_run_of_simulated_gpus(tmp_path):
    run = new_run(tmp_path)
    with recording(run, "--gpu", "v100x2", "--workload", "resnet50"):
        assert status(read_manifest(run)) == "recording"
        wait_for_rows(run, "gpu1", 60)
    manifest = read_manifest(run)
    assert status(manifest) == "complete"
    assert manifest.monotonic_end_ns > manifest.monotonic_start_ns
    gpus = [device for device in manifest.devices if device.info.key.startswith("gpu")]
    assert [device.info.key for device in gpus] == ["gpu0", "gpu1"]
    assert gpus[0].settings["power_limit_w"] == gpus[0].maximum_w == 300
    assert manifest.host["kernel"]
    for gpu in ("gpu0", "gpu1"):
        t_ns, power_w = column(run, gpu, "t_ns"), column(run, gpu, "power_w")
        energy_j = column(run, gpu, "energy_j")
        assert (np.diff(t_ns) > 0).all()
        assert manifest.monotonic_start_ns < t_ns[0] < t_ns[-1] < manifest.monotonic_end_ns
        assert ((power_w > 20) & (power_w < 400)).all()
        assert (np.diff(energy_j) >= 0).all()
        assert energy_j[-1] > energy_j[0]
        assert manifest.recorder.lanes[gpu]["rows"] == len(t_ns)
        assert column(run, gpu, "sm_clock_mhz", StreamKind.SLOW).min() > 0
        stamps_ns = column(run, gpu, "t_ns", StreamKind.BUFFER)
        assert set(np.diff(stamps_ns) // 1_000_000) <= {19, 20}  # each sample of 50 Hz, once
        assert stamps_ns[-1] < manifest.monotonic_end_ns
    assert manifest.recorder.cpu_s > 0


def test_a_gpu_that_is_lost_and_comes_back_is_a_gap(tmp_path):
    run = new_run(tmp_path)
    with recording(run, "--gpu", "v100x2", "--fault", "gpu0:lost@3s-4.5s"):
        eventually(lambda: "device_back" in codes(run, "gpu0"))
    gap = np.isnan(column(run, "gpu0", "energy_j"))
    t_ns = column(run, "gpu0", "t_ns")
    assert gap.any()
    assert not gap[-1]
    assert 0.5 < np.ptp(t_ns[gap]) / S < 2.5
    assert not np.isnan(column(run, "gpu1", "energy_j")).any()
    assert codes(run, "gpu0") == {"device_unavailable", "device_back"}
    assert codes(run, "gpu1") == set()


def test_a_gpu_that_hangs_is_a_gap_of_its_own(tmp_path):
    run = new_run(tmp_path)
    with recording(run, "--gpu", "v100x3", "--fault", "gpu1:slow=700ms@3s"):
        wait_for_rows(run, "gpu1", 20)
        before = len(column(run, "gpu2", "t_ns"))
        wait_for_rows(run, "gpu2", before + 200)
    slow, other = column(run, "gpu1", "t_ns"), column(run, "gpu2", "t_ns")
    assert np.diff(slow).max() > 0.7 * S
    since = slow[np.argmax(np.diff(slow) > 0.7 * S)]
    assert np.median(np.diff(other[other > since])) < 0.05 * S
    assert read_manifest(run).recorder.lanes["gpu1"]["missed"] > 10
    lines = [json.loads(line) for line in (run / MISSES).read_text().splitlines()]
    assert any(line["channels"] == ["gpu1"] and line["missed"] >= 10 for line in lines)


def test_what_takes_long_to_tell_delays_no_recording(tmp_path):
    run = new_run(tmp_path)
    with recording(run, "--gpu", "v100x2", "--fault", "gpu1:slow=3s,call=GetFanSpeed"):
        first = read_manifest(run).devices[1]
        wait_for_rows(run, "gpu1", 5)
        assert first.info.key == "gpu1"
        assert first.sources
        assert not first.settings
        eventually(lambda: len(column(run, "gpu1", "sm_clock_mhz", StreamKind.SLOW)))
    for gpu in read_manifest(run).devices[:2]:
        assert gpu.settings["power_limit_w"] == gpu.maximum_w == gpu.default_limit_w == 300
        assert gpu.info.memory_b
    assert "gap" not in codes(run, "gpu1")


def test_a_driver_that_hangs_in_its_samples_is_read_by_its_counter(tmp_path):
    run = new_run(tmp_path)
    with recording(run, "--gpu", "v100x2", "--fault", "gpu1:slow=600s,call=GetSamples"):
        wait_for_rows(run, "gpu1", 5)
    assert not np.isnan(column(run, "gpu1", "energy_j")).any()
    assert len(column(run, "gpu0", "t_ns", StreamKind.BUFFER))
    assert not len(column(run, "gpu1", "t_ns", StreamKind.BUFFER))
    assert codes(run, "gpu1") == {"gap"}
    assert codes(run, "gpu0") == set()
    assert column(run, "gpu1", "sm_clock_mhz", StreamKind.SLOW).min() > 0


def test_what_a_device_raises_when_it_is_completed_costs_its_settings_alone(tmp_path):
    class Broken(ToyDevice):
        is_complete = False

        def complete(self):
            raise ZeroDivisionError

    run = new_run(tmp_path)
    recorder = Recorder(run, Discovery((Broken(ToyClock()),), {}), RecorderOptions(rate_hz=50))
    recorder.start()
    recorder.stop()
    noted = [note for note in read_manifest(run).notes if "ZeroDivisionError" in note["message"]]
    assert [note["quantity"] for note in noted] == ["settings"]
    assert len(column(run, "gpu0", "energy_j"))


def test_killed_at_once_it_is_readable_up_to_the_last_second_and_a_half(tmp_path):
    run = new_run(tmp_path)
    with recording(run, "--gpu", "v100", rate_hz=20) as process:
        wait_for_rows(run, "gpu0", 50)
        pid = read_manifest(run).recorder.pid
        killed_ns = time.monotonic_ns()
        subprocess.run(["kill", "-9", str(pid)], check=True)
        process.wait(DEADLINE_S)
        manifest = read_manifest(run)
        assert status(manifest) == "killed"
        for lane in (StreamKind.FAST, StreamKind.BUFFER, StreamKind.SLOW):
            t_ns = column(run, "gpu0", "t_ns", lane)
            assert (np.diff(t_ns) > 0).all()
            # A machine that is busy with other tests may be late by as much again.
            assert killed_ns - t_ns[-1] < 3 * S
        process.returncode = 0


class Sleeper(ToyDevice):
    """Asleep until something else wakes it."""

    def __init__(self, real):
        super().__init__(ToyClock())
        self.awake = False
        self.asleep = True
        self._real = real
        self.sensors = {}
        self.touched = False

    def reopened(self):
        self.asleep = self.asleep and not self.awake
        return self._real if self.awake else None

    def read(self, quantity):
        self.touched = True
        return super().read(quantity)


def test_a_gpu_that_sleeps_is_not_read_until_it_is_awake(tmp_path, monkeypatch):
    monkeypatch.setattr("joulewise.record.channels._SILENT_HZ", 50.0)
    real = ToyDevice(ToyClock())
    sleeper = Sleeper(real)
    run = new_run(tmp_path)
    recorder = Recorder(run, Discovery((sleeper,), {}), RecorderOptions(rate_hz=50))
    recorder.start()
    asleep = read_manifest(run).devices[0]
    assert (asleep.sources, asleep.awake_ns) == ({}, None)
    woken_ns = time.monotonic_ns()
    sleeper.awake = True
    wait_for_rows(run, "gpu0", 10)
    now = recorder.manifest
    assert now.devices[0].sources.keys() == {"power_w", "energy_j"}
    assert now.devices[0].card == sensor_profile_for(real, {})
    manifest = recorder.stop()
    assert not sleeper.touched
    assert woken_ns < manifest.devices[0].awake_ns < manifest.monotonic_end_ns
    assert manifest.monotonic_start_ns < manifest.devices[0].asleep_ns
    assert manifest.devices[0].asleep_ns < manifest.devices[0].awake_ns
    assert read_manifest(run).devices == manifest.devices
    assert manifest.devices[0].sources.keys() == {"power_w", "energy_j"}
    assert [note["code"] for note in manifest.notes] == ["device_back"]
    assert real._closed


def test_a_gpu_that_was_lost_is_not_recorded_as_asleep(tmp_path, monkeypatch):
    monkeypatch.setattr("joulewise.record.channels._SILENT_HZ", 50.0)
    lost = Sleeper(ToyDevice(ToyClock()))
    lost.asleep = False
    lost.sensors = {Quantity.POWER: Unavailable("NVML error 999")}
    run = new_run(tmp_path)
    recorder = Recorder(run, Discovery((lost,), {}), RecorderOptions(rate_hz=50))
    recorder.start()
    lost.awake = True
    wait_for_rows(run, "gpu0", 10)
    (device,) = recorder.stop().devices
    assert device.awake_ns is not None
    assert device.asleep_ns is None
    assert device.unavailable == Unavailable("NVML error 999")


@pytest.fixture
def recorder(tmp_path):
    run = new_run(tmp_path)
    recorder = Recorder(run, Discovery((ToyDevice(ToyClock()),), {}), RecorderOptions(name="toy"))
    recorder.start()
    yield recorder
    recorder.stop()


def test_commands_are_recorded_by_process_and_without_secrets(recorder):
    recorder.tell(CommandRecord(10, ("train.py", "--token", "abc"), 5))
    recorder.tell(CommandRecord(9, ("other",), 3))
    recorder.tell(CommandRecord(10, ("train.py", "--token", "abc"), 5, 8, 3, 1.25))
    manifest = recorder.stop(state="stopped", exit_code=3)
    assert manifest.commands == (
        CommandRecord(9, ("other",), 3),
        CommandRecord(10, ("train.py", "--token", "***"), 5, 8, 3, 1.25),
    )
    assert read_manifest(recorder._run) == manifest
    assert (manifest.state, manifest.exit_code, manifest.name) == ("stopped", 3, "toy")


def test_a_note_is_in_the_manifest_at_once(recorder):
    recorder.note("host_process_ids", "who is who is not known", "gpu0")
    (note,) = recorder.manifest.notes
    assert (note["code"], note["device"]) == ("host_process_ids", "gpu0")


def test_it_shows_life_though_nothing_happens(recorder, monkeypatch):
    monkeypatch.setattr("joulewise.record.recorder._SAVE_NS", 0)
    first = read_manifest(recorder._run)
    assert first.host["name"] == platform.node()
    saved_ns = first.recorder.saved_wall_ns
    eventually(lambda: read_manifest(recorder._run).recorder.saved_wall_ns > saved_ns)


def test_a_command_is_in_the_manifest_before_anything_else_is_due(tmp_path, monkeypatch):
    monkeypatch.setattr("joulewise.record.writer._FIRST_S", 600.0)
    run = new_run(tmp_path)
    recorder = Recorder(run, Discovery((ToyDevice(ToyClock()),), {}), RecorderOptions())
    recorder.start()
    try:
        recorder.tell(CommandRecord(10, ("train.py",), 5))
        eventually(lambda: read_manifest(run).commands)
    finally:
        recorder.stop()


def test_a_command_is_in_the_manifest_while_it_runs(recorder):
    recorder.tell(CommandRecord(10, ("train.py",), 5))
    eventually(lambda: read_manifest(recorder._run).commands)
    assert recorder.manifest.devices[0].awake_ns is None


def test_a_wall_clock_that_is_set_is_noted(recorder, monkeypatch):
    wall_ns = time.time_ns
    monkeypatch.setattr(recorder._clocks, "_wall_ns", lambda: wall_ns() - 3600 * S)
    eventually(lambda: read_manifest(recorder._run).notes)
    (note,) = read_manifest(recorder._run).notes
    assert note["code"] == "wall_clock_set"
    assert "-3600.0" in note["message"]
    monkeypatch.undo()

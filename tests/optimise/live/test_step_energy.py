"""Joules of windows from the streams of a run that is still being written.

"Broken" names what was broken in ``step_energy.py`` to see a test fail.
"""

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.analyse.device_energy import bounded_energy
from joulewise.data import SensorProfile
from joulewise.optimise.live import step_energy
from joulewise.optimise.live.step_energy import LiveEnergy
from joulewise.store.layout import STREAM, StreamKind, stream_path
from joulewise.store.manifest import read_manifest, write_manifest
from joulewise.store.trace import open_device_stream
from joulewise.units import NS_PER_S
from tests.helpers.run_directories import START, MadeRun, device
from tests.optimise.live.live_jobs import live_job, poll_until, true_energy_j

S = NS_PER_S
A100 = SensorProfile(0.1, 0.025)


def windows(*pairs_s):
    return START + np.rint(np.array(pairs_s, float).reshape(-1, 2) * S).astype(np.int64)


def constant(power_w):
    return lambda _: power_w


def made(path, *devices, power_w=200.0, **more):
    run = MadeRun(path, **more)
    for number, recorded in enumerate(devices):
        run.fast(recorded, constant(power_w * (number + 1)))
    return run.write()


@pytest.mark.parametrize("measured", [("power_w", "energy_j"), ("power_w",), ("energy_j",)])
def test_energies_are_summed_over_the_devices(tmp_path, measured):
    """By key or uid. Broken: the last device only."""
    run = made(tmp_path / "r", *(device(key, measured=measured) for key in ("gpu0", "gpu1")))
    energy_j, error_j = LiveEnergy(run, ["gpu0", "uid-gpu1"]).energies(windows((1, 3), (4, 4.5)))
    assert energy_j == pytest.approx([1200, 300], rel=0.001)
    assert (error_j < 0.1 * energy_j).all()
    single_j, _ = LiveEnergy(run, ["gpu1"]).energies(windows((1, 3)))
    assert single_j == pytest.approx([800], rel=0.001)


def test_what_is_not_covered_yet_is_not_known(tmp_path):
    """Broken: ``is_known`` true for all."""
    run = made(tmp_path / "r", device("gpu0"), device("gpu1"))
    live = LiveEnergy(run, ["gpu0", "gpu1"])
    until_s = (live.covered_until_ns() - START) / S
    assert 10.4 < until_s < 10.49  # the last reading is of 10.48 s
    energy_j, error_j = live.energies(windows((9, until_s - 0.01), (9, until_s + 0.01)))
    assert np.isnan(energy_j).tolist() == np.isnan(error_j).tolist() == [False, True]


def test_nothing_is_known_before_the_streams_are_there(tmp_path):
    run = made(tmp_path / "r", device("gpu0"))
    stream = stream_path(run, "gpu1", StreamKind.FAST, STREAM)
    for live in (LiveEnergy(run, ["gpu0", "gpu1"]), LiveEnergy(tmp_path / "none", ["gpu0"])):
        assert live.covered_until_ns() == 0
        assert np.isnan(live.energies(windows((1, 2)))[0]).all()
    found = read_manifest(run)
    write_manifest(run, replace(found, devices=(*found.devices, device("gpu1"))))
    live = LiveEnergy(run, ["gpu0", "gpu1"])
    assert live.covered_until_ns() == 0
    stream.write_bytes(stream_path(run, "gpu0", StreamKind.FAST, STREAM).read_bytes())
    assert live.energies(windows((1, 2)))[0] == pytest.approx([400], rel=0.001)


def test_a_lost_device_has_no_energy_and_a_reason(tmp_path):
    """Broken: the lower bound of ``bounded_energy`` taken for the energy."""
    run = MadeRun(tmp_path / "r")
    run.fast(device("gpu0"), constant(200.0))
    run.fast(device("gpu1"), constant(200.0), lost=[(5, 99)])
    live = LiveEnergy(run.write(), ["gpu0", "gpu1"])
    energy_j, _ = live.energies(windows((1, 2), (4, 6), (7, 8)))
    assert np.isnan(energy_j).tolist() == [False, True, True]
    assert live.covered_until_ns() > START + 10 * S
    assert "gpu1 has not answered" in live.fault(START + 11 * S)


def test_a_recorder_that_is_gone_is_told(tmp_path):
    live = LiveEnergy(made(tmp_path / "r", device("gpu0")), ["gpu0"])
    assert not live.fault(START + 11 * S)
    assert "no readings" in live.fault(START + 60 * S)


def test_only_rows_around_the_windows_are_read(tmp_path, monkeypatch):
    """Broken: ``between`` gives all batches."""
    run = made(tmp_path / "r", device("gpu0"), seconds=200.0)
    path = stream_path(run, "gpu0", StreamKind.FAST, STREAM)
    import pyarrow as pa

    table = pa.ipc.open_stream(path.read_bytes()).read_all()
    with pa.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table, max_chunksize=50)  # one second each, as it is recorded
    rows = []
    bounded = step_energy.bounded_energy
    monkeypatch.setattr(
        step_energy,
        "bounded_energy",
        lambda d, f, *rest: rows.append(f.rows) or bounded(d, f, *rest),
    )
    monkeypatch.setattr(step_energy, "KEPT_S", 60.0)
    energy_j, _ = LiveEnergy(run, ["gpu0"]).energies(windows((180, 182), (100, 102)))
    assert energy_j[0] == pytest.approx(400, rel=0.001)
    assert np.isnan(energy_j[1])
    assert rows[0] <= 24 * 50


@settings(max_examples=20, deadline=None)
@given(
    pairs=st.lists(
        st.tuples(st.floats(0, 8), st.floats(0.1, 2)).map(lambda w: (w[0], w[0] + w[1])),
        min_size=1,
        max_size=8,
    ),
    levels=st.lists(st.floats(50, 300), min_size=2, max_size=4),
)
def test_it_agrees_with_the_finished_run(tmp_path_factory, pairs, levels):
    path = tmp_path_factory.mktemp("store") / "r"
    course = MadeRun(path).fast(device("gpu0"), lambda t: levels[int(max(t, 0) / 3) % len(levels)])
    run, windows_ns = course.write(), windows(*pairs)
    energy_j, error_j = LiveEnergy(run, ["gpu0"]).energies(windows_ns)
    (recorded,) = read_manifest(run).devices
    fast = open_device_stream(run, "gpu0", StreamKind.FAST)
    final, _, _ = bounded_energy(recorded, fast, None, windows_ns)
    assert energy_j == pytest.approx(final.energy_j, rel=1e-6)
    assert error_j == pytest.approx(final.error_sampling_j, rel=1e-6)


@pytest.mark.parametrize(
    ("card", "measured", "settle_s", "block_s"),
    [
        (SensorProfile(0.02, 0.01, 0.005, 0.02), ("power_w", "energy_j"), (1.0, 1.1), (1, 3)),
        (A100, ("power_w", "energy_j"), (1.1, 1.3), (4, 9)),
        (A100, ("power_w",), (1.1, 1.4), (10, 20)),
        (SensorProfile(0.1, 1.0), ("power_w",), (2.0, 2.4), (4, 9)),
    ],
)
def test_what_the_sensor_can_resolve(tmp_path, card, measured, settle_s, block_s):
    run = made(tmp_path / "r", device("gpu0", card=card, measured=measured))
    live = LiveEnergy(run, ["gpu0"])
    assert settle_s[0] <= live.settle_s("gpu0") <= settle_s[1]
    assert block_s[0] <= live.shortest_block_s("gpu0") <= block_s[1]


def test_after_settling_readings_show_the_new_power_only(tmp_path):
    """A sensor that averages over a second."""
    card = SensorProfile(0.1, 1.0, 0.02)
    recorded = device("gpu0", card=card, measured=("power_w",))

    def shown_w(t_s):  # 300 W until the control loop is done at 4 s, then 150 W
        return 300 - 150 * min(max(t_s - 0.02 - 4, 0.0), 1.0)

    live = LiveEnergy(MadeRun(tmp_path / "r").fast(recorded, shown_w).write(), ["gpu0"])
    start_s = 4 - step_energy._CONTROL_LOOP_S + live.settle_s("gpu0")
    energy_j, _ = live.energies(windows((start_s, start_s + 2), (4.2, 6.2)))
    assert energy_j[0] == pytest.approx(300, rel=0.001)
    assert energy_j[1] > 301


@pytest.mark.parametrize("board", ["v100", "a100"])
def test_joules_of_a_real_job_while_it_runs(tmp_path, board):
    """In real time, against the truth."""
    with live_job(tmp_path, board=board) as (run, end):
        live = LiveEnergy(run, ["gpu0"])
        poll_until(live.covered_until_ns, lambda: None)
        start_ns = live.covered_until_ns() + S  # the first readings reach back less
        edges_ns = start_ns + np.arange(4) * round(2.5 * S)
        windows_ns = np.column_stack([edges_ns[:-1], edges_ns[1:]])
        poll_until(lambda: live.covered_until_ns() >= edges_ns[-1], lambda: None)
        behind_s = (time.monotonic_ns() - live.covered_until_ns()) / S
        energy_j, error_j = live.energies(windows_ns)
        assert not live.fault(time.monotonic_ns())
        end()
    assert behind_s > 0
    off_j = np.abs(energy_j - true_energy_j(tmp_path, windows_ns))
    assert (off_j < 1.5 * error_j).all()  # one in twenty is beyond its error, and none of many
    assert off_j.sum() < 0.03 * energy_j.sum()
    (recorded,) = (each for each in read_manifest(run).devices if each.info.key == "gpu0")
    streams = (
        open_device_stream(run, "gpu0", kind) for kind in (StreamKind.FAST, StreamKind.BUFFER)
    )
    final, _, _ = bounded_energy(recorded, *streams, windows_ns)
    assert (np.abs(energy_j - final.energy_j) < final.error_sampling_j + error_j).all()

"""A workload like a recorded run: what is simulated of it is what it took."""

from dataclasses import replace

import numpy as np
import pytest

from joulewise.data.sweeps import POWER_LIMIT, Planned, Setting
from joulewise.errors import UsageError
from joulewise.hooks import marks as written
from joulewise.simulate.boards import load_board
from joulewise.store.layout import CHECKSUMS
from joulewise.store.manifest import read_manifest, write_manifest
from joulewise.store.spans import RECORD
from joulewise.sweep.boards import boards
from joulewise.sweep.lifecycle import prepare, run_sweep
from joulewise.sweep.runners.virtual import VirtualRunner
from joulewise.sweep.space import resolve
from joulewise.sweep.spec import SimulationSpec, SweepSpec
from joulewise.sweep.workload import load_like


def virtual(store, **simulated):
    asked = SweepSpec(
        axes={POWER_LIMIT: "150:300:50"},
        seed=3,
        simulated=SimulationSpec(run_noise=0.0, **simulated),
    )
    return VirtualRunner(asked, resolve(asked, boards(asked, {})), store, "20260101-000000-abcd")


def at(limit_w):
    return Planned(Setting.of({POWER_LIMIT: float(limit_w)}), 0)


@pytest.fixture
def recorded(tmp_path):
    return virtual(tmp_path, gpu="v100", workload="resnet50")


@pytest.mark.parametrize(("limit_w", "most"), [(300, 0.01), (200, 0.02)])
def test_at_its_own_limit_and_at_another(tmp_path, recorded, limit_w, most):
    run, true = recorded.run(at(300)), recorded.run(at(limit_w))
    predicted = virtual(tmp_path, gpu="v100", like=run.run).run(at(limit_w))
    assert predicted.time_s == pytest.approx(true.time_s, rel=most)
    assert predicted.energy["gpu"].value == pytest.approx(true.energy["gpu"].value, rel=most)
    assert predicted.spans["step"].count == true.spans["step"].count


class Nobody:
    def began(self, *_): ...
    def started(self, *_): ...
    def ended(self, *_): ...
    def said(self, *_): ...


def test_a_sweep_tells_more_than_a_run(tmp_path):
    asked = SweepSpec(
        axes={POWER_LIMIT: "150:300:75"}, repeat=1, simulated=SimulationSpec("v100", "ecg", "", 0.0)
    )
    sweep = run_sweep(prepare(asked), tmp_path, Nobody())
    workload = load_like(sweep.id, tmp_path, load_board("v100"))
    assert workload.source == "fitted to 3 runs at 3 settings"
    assert workload.step.phases[1].compute == pytest.approx(0.5, abs=0.05)


def test_of_a_board_that_cannot_be_simulated_watts_are_scaled(tmp_path, recorded):
    run = tmp_path / recorded.run(at(300)).run
    manifest = read_manifest(run)
    device = manifest.devices[0]
    other = replace(
        device, info=replace(device.info, name="NVIDIA H100"), default_limit_w=600.0, settings={}
    )
    write_manifest(run, replace(manifest, devices=(other,), options={}))
    workload = load_like(run.name, tmp_path, load_board("v100"))
    assert workload.source.startswith("of NVIDIA H100 nothing is known")
    own = load_like(recorded.run(at(300)).run, tmp_path, load_board("v100"))
    forward, its = workload.step.phases[1], own.step.phases[1]
    assert forward.time_s == pytest.approx(its.time_s, rel=0.05)
    assert forward.core_w < 0.5 * its.core_w


def test_unpredictable_batch_size_is_refused(tmp_path, recorded):
    run = recorded.run(at(300)).run
    asked = SweepSpec(axes={"batch_size": "32,64"}, simulated=SimulationSpec("v100", like=run))
    with pytest.raises(UsageError, match="cannot predict other batch sizes"):
        VirtualRunner(asked, resolve(asked, boards(asked, {})), tmp_path, "20260101-000000-abcd")
    with pytest.raises(UsageError, match="no run 'nothing'"):
        load_like("nothing", tmp_path, load_board("v100"))


@pytest.mark.parametrize("kept", [(), ("epoch",)])
def test_a_run_that_marks_no_steps_is_as_long(tmp_path, kept):
    true = virtual(tmp_path, gpu="v100", workload="ecg").run(at(200))
    run = tmp_path / true.run
    (marks,) = (run / "marks").iterdir()
    records = np.fromfile(marks, RECORD)
    names = {code for code, name in enumerate(("training", "epoch")) if name in kept}
    result = np.isin(records["name"], list(names)) | (records["kind"] <= written.NAME)
    records[result].tofile(marks)
    (run / CHECKSUMS).unlink()
    predicted = virtual(tmp_path, gpu="v100", like=true.run).run(at(200))
    assert predicted.time_s == pytest.approx(true.time_s, rel=0.02)
    assert predicted.energy["gpu"].value == pytest.approx(true.energy["gpu"].value, rel=0.02)
    assert predicted.spans["epoch"].count == (10 if kept else 1)

"""What was recorded in virtual time before *simulated* was a source is read as simulated."""

import json
import re
from dataclasses import replace

import pytest

from joulewise.analyse.stored_result import read_result
from joulewise.data import Source
from joulewise.data.codec import (
    name_simulated_manifest,
    name_simulated_result,
    name_simulated_sweep,
)
from joulewise.data.sweeps import POWER_LIMIT, Planned, Setting
from joulewise.store.manifest import read_manifest
from joulewise.store.runs import read_summary
from joulewise.sweep.boards import boards
from joulewise.sweep.runners.virtual import VirtualRunner
from joulewise.sweep.space import resolve
from joulewise.sweep.spec import SimulationSpec, SweepSpec
from joulewise.sweep.stored_sweeps import as_text, create_sweep, load_sweep
from tests.helpers.run_directories import MadeRun, device

ASKED = SweepSpec(axes={POWER_LIMIT: "200,300"}, seed=3, simulated=SimulationSpec("v100", "ecg"))


def as_before(path):
    """The file as a version wrote it that had no such source, and no checksums."""
    text = re.sub(r',\s*"(head_)?crc32": "\w+"', "", path.read_text("utf-8"))
    for key in ("power_w", "energy_j", "source"):
        text = text.replace(f'"{key}": "simulated"', f'"{key}": "measured"')
    path.write_text(text, "utf-8")


@pytest.fixture(scope="module")
def virtual(tmp_path_factory):
    store = tmp_path_factory.mktemp("store")
    space = resolve(ASKED, boards(ASKED, {}))
    folder = create_sweep(store, ASKED, space)
    runner = VirtualRunner(ASKED, space, store, folder.name)
    trial = runner.run(Planned(Setting.of({POWER_LIMIT: 200.0}), 0))
    sweep = load_sweep(folder)
    (folder / "sweep.json").write_text(as_text(replace(sweep, trials=(trial,))))
    return store, store / trial.run, folder


def test_a_run_in_virtual_time_is_simulated(virtual):
    _, run, _ = virtual
    result = read_result(run)
    assert result.run.total.source is Source.SIMULATED
    assert set(read_manifest(run).devices[0].sources.values()) == {Source.SIMULATED}


def test_an_older_run_in_virtual_time_is_read_as_simulated(virtual):
    _, run, _ = virtual
    new = read_result(run)
    for name in ("run.json", "result.json"):
        as_before(run / name)
    assert '"source": "simulated"' not in (run / "result.json").read_text()
    assert set(read_manifest(run).devices[0].sources.values()) == {Source.SIMULATED}
    assert read_result(run) == new
    assert read_summary(run)["energy_j"]["total"]["value"] == new.run.total.value


def test_an_older_sweep_in_virtual_time_is_read_as_simulated(virtual):
    _, _, folder = virtual
    new = load_sweep(folder)
    assert new.trials[0].energy["gpu"].source is Source.SIMULATED
    as_before(folder / "sweep.json")
    assert load_sweep(folder) == new


def test_what_was_measured_stays_measured(tmp_path):
    made = MadeRun(tmp_path / "real").fast(device("gpu0"), lambda _: 200.0)
    made.write()
    assert set(read_manifest(tmp_path / "real").devices[0].sources.values()) == {Source.MEASURED}


@pytest.mark.parametrize("damaged", [[], {"devices": 3}, {"devices": [3, {"info": 3}]}])
def test_a_damaged_file_is_left_to_its_decoder(damaged):
    for bring in (name_simulated_manifest, name_simulated_result, name_simulated_sweep):
        payload = damaged if isinstance(damaged, dict) else {"trials": [3], "spans": [4]}
        before = json.dumps(payload)
        bring(payload)
        assert json.dumps(payload) == before

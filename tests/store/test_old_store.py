"""A store that an earlier version recorded stays readable, with the numbers that it had.

``stores/store-0.1.0.dev0.tar.xz`` has four runs on simulated GPUs, recorded before lower bounds,
the source *simulated*, sample streams by type and the present error model: steps on a V100, an
idle A100, an RTX 6000 that was lost after 2 s, and a machine without a GPU.
"""

import json
import tarfile
from pathlib import Path

import pytest

from joulewise.analyse.run_result import analyse
from joulewise.analyse.stored_result import load_or_compute_result

ARCHIVE = Path(__file__).parent / "stores" / "store-0.1.0.dev0.tar.xz"
STEADY, IDLE, LOST, NONE = (
    "20261116-191458-f869",
    "20261116-191503-9127",
    "20261116-191506-d651",
    "20261116-191510-7c51",
)


@pytest.fixture
def store(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        # Python 3.11.2, which Debian 12 has, does not know filters.
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path, **safely)
    return tmp_path


def figures(energy):
    return None if energy is None else (energy.value, energy.error_sampling, energy.error_gain)


@pytest.mark.parametrize("run", [STEADY, IDLE, LOST, NONE])
def test_its_results_are_the_ones_it_was_stored_with(store, run):
    kept = json.loads((store / run / "result.json").read_text("utf-8"))
    result = load_or_compute_result(store / run)
    assert result.counted == tuple(kept["counted"])
    for key, stored in kept["energy_j"].items():
        energy = result.run.total if key == "total" else result.run.devices[key].energy
        names = ("value", "error_sampling", "error_gain")
        assert figures(energy) == (
            None if stored is None else tuple(stored[name] for name in names)
        )
        assert energy is None or not energy.at_least
    assert len(result.spans) == len(kept["spans"])


@pytest.mark.parametrize("run", [STEADY, IDLE, NONE])
def test_its_traces_give_the_same_energies_within_their_errors(store, run):
    before = load_or_compute_result(store / run)
    (store / run / "result.json").unlink()
    after = analyse(store / run)
    for key, use in before.run.devices.items():
        again = after.run.devices[key]
        allowed = use.energy.error_sampling + again.energy.error_sampling
        assert again.energy.value == pytest.approx(use.energy.value, abs=allowed)
        # Each stream was read: the counter, and the power readings.
        assert (again.counter_j is None) == (use.counter_j is None)
        assert again.peak_w == pytest.approx(use.peak_w, rel=0.01)


def test_what_it_left_out_is_a_lower_bound_now(store):
    (store / LOST / "result.json").unlink()
    after = analyse(store / LOST)
    assert after.run.total.at_least
    assert "gpu0" in after.counted
    assert any(warning.device == "gpu0" for warning in after.warnings)

"""Trainings in each framework, which know nothing of joulewise, are tuned from the command line."""

import json
from pathlib import Path

import pytest

from joulewise.data.tuning import StepSource, TuningState
from joulewise.store.spans import read_spans
from joulewise.store.tuning_file import read_tuning
from tests.optimise.live.tuned_jobs import BEFORE_W, STATUS, tuning

SCRIPTS = Path(__file__).parent / "scripts"
PROGRAMS = {
    "torch_loop.py": "torch",
    "keras_fit.py": "keras",
    "lightning_module.py": "lightning",
    "hugging_face.py": "transformers",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_unchanged_program_is_tuned(name, tmp_path):
    store, report = tmp_path / "store", tmp_path / "tuned.json"
    options = ("--axis", "power-limit", "--by", "energy", "--json", str(report))
    with tuning(store, *options, program=(SCRIPTS / name,)) as job:
        held = job.held()
        assert job.limit_w() == held.chosen["power_limit_w"] < BEFORE_W
        out, _, status = job.finish()
        assert (out, status) == ("trained\n", STATUS)
        assert job.limit_w() == BEFORE_W
        run = job.run
    payload = json.loads(report.read_text())["tune"]
    assert payload["settled"]
    assert len(payload["tried"]) > 1  # the setting was changed while it ran
    tuned = read_tuning(run)
    assert tuned.state is TuningState.ENDED
    assert tuned.step_source is StepSource.MARKS
    spans = read_spans(run)
    assert {"training", "epoch", "step"} <= {span.name for span in spans}
    # Guessed are only those of a loop without a trainer, whose own steps would be taken instead.
    assert ("steps are guessed" in " ".join(tuned.notes)) == (PROGRAMS[name] == "torch")
    frameworks = json.loads((run / "run.json").read_text())["frameworks"]
    assert PROGRAMS[name] in frameworks

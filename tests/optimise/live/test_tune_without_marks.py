"""`joulewise tune` in real time on programs that mark no steps."""

import re
from pathlib import Path

from joulewise.data.tuning import StepSource, TuningState
from joulewise.store.tuning_file import read_tuning
from tests.helpers.processes import eventually
from tests.helpers.run_processes import runs
from tests.optimise.live.tuned_jobs import BEFORE_W, STATUS, tuning

UNMARKED = str(Path(__file__).parent / "scripts/unmarked.py")


def test_by_the_lines_of_its_output(tmp_path):
    words = ("--axis", "power-limit", "--by", "energy", "--progress", r"(?P<step>\d+)/\d+ \[")
    with tuning(tmp_path, *words, program=(UNMARKED, "bar")) as job:
        held = job.held()
        assert held.step_source is StepSource.PROGRESS
        assert job.limit_w() == held.chosen["power_limit_w"] < BEFORE_W
        out, said, status = job.finish()
        assert (out, status) == ("trained\n", STATUS)
        assert job.limit_w() == BEFORE_W
    bars = [int(number) for number in re.findall(r"\r\x1b\[32m +(\d+)\x1b\[0m \|##   \|", said)]
    assert bars == list(range(len(bars)))
    assert "steps are known by the lines of its output" in " ".join(said.split())


def test_lines_that_never_match_leave_it_untouched(tmp_path):
    words = ("--axis", "power-limit", "--progress", "epoch done")
    with tuning(tmp_path, *words, program=(UNMARKED, "bar")) as job:
        out, said, status = job.finish()
        assert (out, status) == ("trained\n", STATUS)
        assert job.limit_w() == BEFORE_W
    assert not read_tuning(job.run).settled
    assert "no two lines of the output matched --progress" in said


def test_by_the_period_of_the_power(tmp_path):
    words = ("--axis", "power-limit", "--by", "energy")
    with tuning(tmp_path, *words, program=(UNMARKED, "periodic")) as job:
        eventually(lambda: job.limit_w() != BEFORE_W)
        eventually(lambda: len(read_tuning(job.run).tried) > 1)
        out, said, status = job.finish()
        assert (out, status) == ("trained\n", STATUS)
        assert job.limit_w() == BEFORE_W
    tuned = read_tuning(job.run)
    assert tuned.step_source is StepSource.POWER
    (before,) = (one for one in tuned.tried if one.settings == tuned.reference)
    # 16 steps of resnet50 at this batch size, and 0.6 s of waiting.
    assert 1.4 < before.step_time_s.mean < 2.2
    assert "steps are known by the period of the power signal" in " ".join(said.split())


def test_an_irregular_load_is_left_untouched(tmp_path):
    with tuning(tmp_path, "--axis", "power-limit", program=(UNMARKED, "irregular")) as job:
        eventually(lambda: runs(tmp_path) and read_tuning(job.run) is not None)
        eventually(lambda: read_tuning(job.run).state is TuningState.ENDED)
        assert job.limit_w() == BEFORE_W
        out, said, status = job.finish()
        assert (out, status) == ("trained\n", STATUS)
    tuned = read_tuning(job.run)
    assert {phase.settings for phase in tuned.phases} <= {None, tuned.reference}
    assert said.count("tuning ended: the program marked no steps, ") == 1

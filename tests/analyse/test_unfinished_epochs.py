"""An epoch that was broken off is in the run, and in no figure of epochs."""

import pytest

from joulewise.analyse.run_result import analyse
from joulewise.analyse.validation import ValidationPlace, place_validations
from joulewise.hooks.marks import Marks
from joulewise.store.layout import MARKS
from tests.helpers.run_directories import PID, START, MadeRun, S, device


def run_of(tmp_path, *spans, cut=()):
    made = MadeRun(tmp_path / "run").fast(device("gpu0"), lambda _t: 200.0).spans(*spans)
    made.processes("gpu0", (0, [(PID, "python", True)]))
    marks = Marks(made.path / MARKS)
    for name, index, start_s, end_s in cut:
        token = marks.begin(name, index, t_ns=START + round(start_s * S))
        marks.end(token, START + round(end_s * S), cut=True)
    return analyse(made.write())


def test_an_epoch_cut_by_ctrl_c_is_no_epoch(tmp_path):
    """It counted as one: three epochs of 2.3 s instead of two of 3 s."""
    result = run_of(tmp_path, ("epoch", 0, 1, 4), ("epoch", 1, 4, 7), cut=[("epoch", 2, 7, 8)])
    summary = result.details["spans"]["epoch"]
    assert (summary["count"], summary["unfinished"]) == (2, 1)
    assert summary["time_s"]["mean"] == pytest.approx(3)
    assert summary["energy_j"]["mean"] == pytest.approx(600, rel=0.02)
    cut = result.spans[-1]
    assert (cut.span.closed, cut.span.end_ns) == (False, START + 8 * S)  # not to the run's end
    assert cut.total.value == pytest.approx(200, rel=0.05)


@pytest.mark.parametrize(
    ("validations", "place"),
    [
        ([], ValidationPlace.NONE),
        ([(4, 5)], ValidationPlace.WITHIN),
        ([(5.1, 6)], ValidationPlace.OUTSIDE),
        ([(4, 5), (5.1, 6)], ValidationPlace.BOTH),
    ],
)
def test_where_the_validations_lie(tmp_path, validations, place):
    spans = [("validation", at, *times) for at, times in enumerate(validations)]
    assert place_validations(run_of(tmp_path, ("epoch", 0, 1, 5), *spans)) is place

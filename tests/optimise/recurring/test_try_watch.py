"""Following a try: which cost it has had, and when it is to end, with the time told."""

import json

import pytest

from joulewise.data.jobs import JobDefinition, JobTarget
from joulewise.hooks.marks import Marks
from joulewise.optimise.recurring.try_watch import StopReason, TryLimits, TryWatch
from joulewise.units import NS_PER_S

S = NS_PER_S
JOB = JobDefinition("j", "b", (8,), 8, JobTarget("acc", 0.5, is_at_least=True), 3, 0.5, "p", 0)
POWER_W, MAXIMUM_W = 100.0, 300.0
# 0.5 * 100 W + 0.5 * 300 W
COST_PER_S = 200.0


class Try:
    """A try that draws 100 W on its GPU, on a clock that is set by hand; it starts at 100 s."""

    def __init__(self, folder, **limits):
        self.now_ns = 100 * S
        self.run = folder / "run"
        (self.run / "marks").mkdir(parents=True)
        self.marks = Marks(self.run / "marks")
        given = {"budget": None, "max_power_w": MAXIMUM_W, **limits}
        self.watch = TryWatch(JOB, TryLimits(**given), now_ns=lambda: self.now_ns)
        self.watch.begin(self.run)

    def look(self, at_s):
        """The recorder writes what was drawn by then, and the watch is asked."""
        self.now_ns = at_s * S
        time_s = at_s - 100
        energies = {"gpu0": {"value": POWER_W * time_s}, "cpu0": {"value": 1e6}}
        live = {"t_ns": at_s * S, "time_s": time_s, "energy_j": energies}
        (self.run / "live.json").write_text(json.dumps({**live, "counted": list(energies)}))
        return self.watch.check()

    def epoch(self, start_s, end_s, value=None):
        token = self.marks.begin("epoch", t_ns=start_s * S)
        self.marks.end(token, t_ns=end_s * S)
        if value is not None:
            self.marks.figure("acc", value, t_ns=end_s * S + 1)


def test_a_budget_is_of_the_cost_since_the_first_epoch(tmp_path):
    it = Try(tmp_path, budget=10.5 * COST_PER_S)
    assert it.look(110) == ""
    it.epoch(110, 115, 0.1)
    assert it.look(115) == ""  # 5 s since the first epoch
    it.epoch(115, 120, 0.2)
    assert it.look(120) == ""  # 10 s
    assert it.look(125) == ""  # 15 s, and no epoch has ended meanwhile


def test_what_was_drawn_between_the_last_reading_and_the_first_epoch_is_no_part_of_it(tmp_path):
    it = Try(tmp_path, budget=2 * COST_PER_S)
    assert it.look(110) == ""  # the recorder writes every few seconds: not again before 120 s
    it.epoch(119, 120, 0.1)
    it.now_ns = 120 * S
    assert it.watch.check() == ""  # 1 s since the first epoch
    it.epoch(120, 122, 0.2)
    it.now_ns = 122 * S
    assert "is not worth more than" in it.watch.check()


def test_it_ends_at_the_end_of_an_epoch_that_is_too_dear(tmp_path):
    it = Try(tmp_path, budget=4 * COST_PER_S)
    assert it.look(110) == ""
    it.epoch(110, 115, 0.1)
    assert "is not worth more than" in it.look(115)
    assert it.watch.stop is StopReason.BUDGET
    assert it.look(120) == ""  # said once


@pytest.mark.parametrize("stops", [False, True])
def test_a_target_that_is_reached_ends_it_only_if_asked(stops, tmp_path):
    it = Try(tmp_path, budget=1.0, stop_at_target=stops)
    it.epoch(110, 115, 0.6)
    assert bool(it.look(116)) == stops
    assert it.watch.stop is (StopReason.REACHED if stops else None)
    assert it.watch.progress.epochs_to_target == 1
    it.epoch(116, 120, 0.1)
    assert it.look(121) == ""  # neither its budget nor its epochs count any more


def missed(folder, **limits):
    """A try that has run the three epochs of the job."""
    it = Try(folder, **limits)
    for number in range(3):
        assert it.look(110 + 5 * number) == ""
        it.epoch(110 + 5 * number, 114 + 5 * number, 0.1)
    return it


def test_it_ends_when_it_begins_another_epoch_than_those_of_the_job(tmp_path):
    it = missed(tmp_path)
    assert it.look(130) == ""  # it may save its model now, and end by itself
    it.marks.begin("epoch", t_ns=131 * S)
    assert "missed in 3 epochs" in it.look(132)
    assert it.watch.stop is StopReason.MAX_EPOCHS


def test_after_its_last_epoch_it_is_not_ended_for_its_cost(tmp_path):
    it = missed(tmp_path, budget=12 * COST_PER_S)
    assert it.look(124) == ""


def test_a_later_value_of_the_last_epoch_counts(tmp_path):
    it = missed(tmp_path)
    assert it.look(130) == ""
    it.marks.figure("acc", 0.6, t_ns=131 * S)
    assert it.look(132) == ""
    assert it.watch.progress.epochs_to_target == 3


def test_without_epochs_it_ends_with_one_more_value(tmp_path):
    it = Try(tmp_path)
    for number in range(3):
        it.marks.figure("acc", 0.1, t_ns=(110 + number) * S)
        assert it.look(111 + number) == ""
    it.marks.figure("acc", 0.1, t_ns=113 * S)
    assert "missed in 3 epochs" in it.look(114)


def test_nothing_is_ended_where_the_cost_is_not_known(tmp_path):
    it = Try(tmp_path, budget=1.0)
    it.epoch(110, 115, 0.1)
    assert it.watch.check() == ""  # there is no live.json
    (it.run / "live.json").write_text("{")
    it.epoch(115, 120, 0.1)
    assert it.watch.check() == ""


def test_the_names_that_are_logged_are_known(tmp_path):
    it = Try(tmp_path)
    it.marks.figure("loss", 0.3)
    it.watch.check()
    assert (it.watch.names, it.watch.progress.best) == (("loss",), None)

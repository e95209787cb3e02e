"""Whether a program ran out of memory, and what fits in it."""

import signal

import pytest

from joulewise.data.jobs import JobDefinition, JobTarget
from joulewise.hooks.marks import Marks
from joulewise.optimise.recurring.memory_search import MemoryLook, _FewSteps, search_memory
from joulewise.optimise.recurring.out_of_memory import count_oom_kills, infer_out_of_memory
from joulewise.optimise.recurring.try_cost import TryCost

KILLED = 128 + signal.SIGKILL
JOB = JobDefinition("j", "b", (8, 16, 32, 64), 8, JobTarget("acc", 1.0, is_at_least=True), 5, 0.5,
                    "p", 0)  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "RuntimeError: HIP out of memory.",
        "tensorflow ... ResourceExhaustedError: OOM when allocating tensor",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory",
        "RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "MemoryError",
        "terminate called after throwing an instance of 'std::bad_alloc'",
    ],
)
def test_what_frameworks_write(words):
    assert infer_out_of_memory(1, f"Traceback\n{words}\n", 0)
    assert not infer_out_of_memory(0, words, 0)  # it went on all the same


@pytest.mark.parametrize("words", ["ValueError: memory", "KeyError: 'x'", "oom pah pah", ""])
def test_other_last_words(words):
    assert not infer_out_of_memory(1, words, 0)
    assert not infer_out_of_memory(1, words, 3)


def test_a_killed_program_ran_out_of_memory_only_if_the_kernel_says_so():
    assert infer_out_of_memory(KILLED, "", 1)
    assert not infer_out_of_memory(KILLED, "", 0)


def test_the_kernel_counts_what_it_kills(tmp_path):
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("nr_free_pages 7\noom_kill 12\nnuma_hit 1\n")
    none = tmp_path / "none"  # no control groups
    assert count_oom_kills(vmstat, none, none) == 12
    vmstat.write_text("nr_free_pages 7\n")
    assert count_oom_kills(vmstat, none, none) == 0
    assert count_oom_kills(none, none, none) == 0


def test_those_of_its_own_control_group_are_counted_where_it_counts_them(tmp_path):
    (tmp_path / "vmstat").write_text("oom_kill 12\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("4:memory:/other\n0::/job/1\n")
    group = tmp_path / "groups" / "job" / "1"
    group.mkdir(parents=True)

    def count():
        return count_oom_kills(
            tmp_path / "vmstat", tmp_path / "self" / "cgroup", tmp_path / "groups"
        )

    assert count() == 12
    (group / "memory.events").write_text("low 0\noom 4\noom_kill 3\noom_group_kill 0\n")
    assert count() == 3


def look(crash_at=1000, fail_at=1000, whole_at=1000, *, is_unseen=False):
    seen = []

    def at(value):
        seen.append(value)
        if value >= crash_at:
            return MemoryLook(value, "it said so")
        if value >= fail_at:
            return MemoryLook(value, "", "it failed", is_unseen=is_unseen)
        return MemoryLook(value, "", is_whole=value >= whole_at)

    return at, seen


def test_it_doubles_until_it_crashes():
    at, seen = look(crash_at=32)
    limit = search_memory(JOB.values, at, lambda _: None)
    assert seen == [8, 16, 32]
    assert limit.crashed.value == 32


@pytest.mark.parametrize(
    ("seen", "largest"),
    [
        ({}, 64),
        ({"crash_at": 16}, 16),
        ({"whole_at": 16}, 16),
        ({"fail_at": 16}, None),  # the next recurrence searches again
        ({"fail_at": 16, "is_unseen": True}, 64),  # and would see nothing more
    ],
)
def test_what_it_ended_with_is_the_largest_value_from_then_on(seen, largest):
    at, _ = look(**seen)
    assert search_memory(JOB.values, at, lambda _: None).largest == largest


def test_the_first_may_not_fit():
    at, _ = look(crash_at=8)
    limit = search_memory(JOB.values, at, lambda _: None)
    assert limit.crashed.value == 8


def test_a_failure_says_nothing_of_memory():
    at, seen = look(fail_at=16)
    limit = search_memory(JOB.values, at, lambda _: None)
    assert seen == [8, 16]
    assert (limit.crashed, limit.failed, limit.ended_by) == (None, None, "it failed")


def test_a_command_that_fails_at_the_least_value_is_known_to_fail():
    at, _ = look(fail_at=8)
    assert search_memory(JOB.values, at, lambda _: None).failed.value == 8


def test_more_than_all_data_is_not_tried():
    at, seen = look(whole_at=16)
    limit = search_memory(JOB.values, at, lambda _: None)
    assert seen == [8, 16]
    assert limit.crashed is None


@pytest.mark.parametrize("is_bound", [False, True])
def test_what_did_not_fit_cost_what_the_whole_search_did(is_bound):
    def at(value):
        cost = TryCost(1.0, 10.0, value, None, is_at_least=is_bound and value == 16)
        return MemoryLook(value, "it said so" if value == 32 else "", cost=cost)

    outcome = search_memory(JOB.values, at, lambda _: None).outcome()
    whole = (8.0 + 16.0 + 32.0, 30.0, 3.0)
    assert (outcome.cost, outcome.energy_j, outcome.time_s) == ((None,) * 3 if is_bound else whole)


class Looked:
    """A look at a program that marks and logs by hand."""

    def __init__(self, folder):
        (folder / "marks").mkdir()
        self.marks = Marks(folder / "marks")
        self.watch = _FewSteps("acc", None)
        self.watch.begin(folder)

    def step(self, number):
        self.marks.end(self.marks.begin("step", t_ns=number * 10), t_ns=number * 10 + 5)


def test_a_figure_before_the_first_step_says_nothing_of_memory(tmp_path):
    it = Looked(tmp_path)
    it.marks.figure("learning_rate", 0.1)
    assert it.watch.check() == ""
    assert not it.watch.has_sign


def test_a_value_of_the_metric_counts_where_no_steps_are_marked(tmp_path):
    it = Looked(tmp_path)
    it.marks.figure("acc", 0.1)
    assert "it fits in memory" in it.watch.check()


def test_where_steps_are_marked_a_value_does_not_count(tmp_path):
    it = Looked(tmp_path)
    it.step(1)
    it.step(2)
    it.marks.figure("acc", 0.1)
    assert it.watch.check() == ""
    for number in range(3, 11):
        it.step(number)
    assert "it fits in memory" in it.watch.check()

"""Whether a program ran out of memory, and what fits in it."""

import signal

import pytest

from joulewise.data.jobs import JobDefinition, JobTarget
from joulewise.optimise.recurring.memory_search import MemoryLook, search_memory
from joulewise.optimise.recurring.out_of_memory import count_oom_kills, infer_out_of_memory

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
    assert count_oom_kills(vmstat) == 12
    vmstat.write_text("nr_free_pages 7\n")
    assert count_oom_kills(vmstat) == 0
    assert count_oom_kills(tmp_path / "none") == 0


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
    assert (limit.fits, limit.crashed.value) == (16, 32)


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
    assert (limit.fits, limit.crashed.value) == (None, 8)


def test_a_failure_says_nothing_of_memory():
    at, seen = look(fail_at=16)
    limit = search_memory(JOB.values, at, lambda _: None)
    assert seen == [8, 16]
    assert (limit.fits, limit.crashed, limit.ended_by) == (8, None, "it failed")


def test_more_than_all_data_is_not_tried():
    at, seen = look(whole_at=16)
    limit = search_memory(JOB.values, at, lambda _: None)
    assert seen == [8, 16]
    assert (limit.fits, limit.crashed) == (16, None)

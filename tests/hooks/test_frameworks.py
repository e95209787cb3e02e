"""Trainers of the frameworks, in scripts that know nothing of us."""

import math

import pytest

from joulewise.store.logged_values import read_logged
from tests.helpers.hooked_programs import assert_around, untimed


def by_epoch(said):
    return [times[-2:] for times in said]


def whole_epochs(done):
    """Of each training whether its epochs are whole, one after the other."""
    return [
        [
            epoch.closed
            for epoch in done.named("epoch")
            if training.start_ns <= epoch.start_ns < training.end_ns
        ]
        for training in done.named("training")
    ]


@pytest.mark.parametrize(
    ("script", "epochs", "steps"),
    [("keras_cnn.py", 3, 12), ("lightning_module.py", 3, 12), ("hugging_face.py", 2, 10)],
)
def test_a_trainer_is_marked_and_notices_nothing(execute, script, epochs, steps):
    done = execute(script)
    assert done.exit_code == 0, done.stderr
    assert_around(done.named("epoch"), by_epoch(done.said("epoch")))
    assert done.indices("epoch") == done.indices("validation") == list(range(epochs))
    assert {span.total for span in done.named("epoch")} == {epochs}
    assert done.indices("step") == list(range(steps))
    (training,) = done.named("training")
    assert all(training.start_ns <= span.start_ns < span.end_ns for span in done.spans)
    assert all(span.end_ns <= training.end_ns and span.closed for span in done.spans)

    bare = execute(script, hooks=False)
    assert bare.exit_code == 0, bare.stderr
    assert not bare.spans
    assert "weights" in bare.stdout
    assert untimed(bare.stdout) == untimed(done.stdout)


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("keras_cnn.py", {"loss", "accuracy", "val_loss", "val_accuracy"}),
        ("lightning_module.py", {"loss", "train_loss"}),
        ("hugging_face.py", {"eval_loss", "train_loss"}),
    ],
)
def test_what_a_trainer_logs_is_read(execute, script, names):
    done = execute(script)
    logged = read_logged(done.run)
    assert {value.name for value in logged} == names
    epochs = {epoch.index: epoch for epoch in done.named("epoch")}
    for value in logged:
        assert math.isfinite(value.value)
        assert epochs[value.epoch].start_ns <= value.t_ns
    assert len({value.t_ns for value in logged}) < len(logged) or script != "keras_cnn.py"
    by_epoch = [value for value in logged if value.name == min(names)]
    assert [value.epoch for value in by_epoch][: len(epochs)] == list(epochs)
    (training,) = done.named("training")
    assert all(training.start_ns < value.t_ns for value in logged)


def test_keras_in_all_the_ways_it_can_end(execute):
    done = execute("keras_ways.py")
    assert (done.exit_code, done.stdout) == (0, "the data ran out\n"), done.stderr
    seen = []
    for training in done.named("training"):
        inside = [
            span
            for span in done.spans
            if training.start_ns <= span.start_ns < training.end_ns and span is not training
        ]
        assert all(span.end_ns <= training.end_ns for span in inside)
        epochs = [span for span in inside if span.name == "epoch"]
        steps = [span.index for span in inside if span.name == "step"]
        seen.append(([span.index for span in epochs], {span.total for span in epochs}, steps))
    assert seen == [
        ([0], {5}, [0, 1]),  # stopped by a callback
        ([0], {2}, [0]),  # ended by an exception, in the second step
        ([3, 4], {5}, [0, 1, 2, 3]),  # resumed
        ([0], {5}, [0]),  # stopped by a callback, after the first of two steps
        ([0], {1}, [0, 3]),  # three steps in one execution, then the last one
    ]
    assert done.indices("training") == [0, 1, 2, 3, 4]
    # The epochs that the exception left and that a callback stopped are none of their kind.
    assert whole_epochs(done) == [[True], [False], [True, True], [False], [True]]
    assert all(span.closed for span in done.spans if span.name != "epoch")
    assert not done.named("validation")


def test_lightning_told_in_steps_and_ended_by_an_exception(execute):
    done = execute("lightning_ways.py")
    assert done.exit_code == 0, done.stderr
    assert "the data ran out" in done.stdout
    assert "[Callback]" not in done.stdout  # in the profile
    assert done.indices("training") == list(range(7))
    epochs = [(span.index, span.total) for span in done.named("epoch")]
    assert epochs[:5] == [(0, 2), (1, 2), (0, 7), (0, 2), (1, 2)]
    assert done.indices("step")[:5] == [0, 1, 2, 3, 4]
    assert whole_epochs(done) == [
        [True, False],  # 5 steps in epochs of 4 batches
        [False],  # broken off in the first step
        [True, True],  # 8 steps: the data end as the steps do
        [True, False],  # 5 steps in epochs that are limited to 3 batches
        [True, False],  # 6 steps of a stream of 4 batches, whose length is not known
        [True, True],  # 8 steps of it
        [False],  # stopped by a callback after 2 of 4 batches
    ]
    assert all(span.closed for span in done.spans if span.name != "epoch")
    assert not done.named("validation")


@pytest.mark.parametrize(
    ("options", "steps", "whole"),
    [
        (["--max-steps=7"], 7, [True, False]),
        (["--max-steps=10"], 10, [True, True]),  # the data end as the steps do
        (["--epochs=1.4"], 7, [True, False]),
        (["--max-steps=7", "--stream"], 7, [True, False]),
        (["--max-steps=7", "--stop-epoch-after=3"], 7, [False, False]),
    ],
    ids=["steps", "steps of whole epochs", "part of an epoch", "stream", "stopped by a callback"],
)
def test_an_epoch_of_a_trainer_that_the_steps_end_is_cut(execute, options, steps, whole):
    """An epoch has 10 batches, and 5 steps of 2 batches each."""
    done = execute("hugging_face.py", *options)
    assert done.exit_code == 0, done.stderr
    epochs = done.named("epoch")
    assert [span.index for span in epochs[:2]] == [0, 1]
    assert {span.total for span in epochs} == {None if "--stream" in options else 2}
    result = [(span.index, span.total) for span in done.named("step")]
    assert result == [(i, steps) for i in range(steps)]
    assert [span.closed for span in epochs[:2]] == whole


def test_an_epoch_of_a_trainer_that_goes_on_in_its_middle_is_cut(execute):
    done = execute("hugging_face.py", "--max-steps=10", "--resume-at=7")
    assert done.exit_code == 0, done.stderr
    # Up to step 7, then from there to the end of the second epoch.
    assert [span.index for span in done.named("epoch")] == [0, 1, 1]
    assert whole_epochs(done) == [[True, False], [False]]

"""Trainers of the frameworks, in scripts that know nothing of us."""

import pytest
from hooked import assert_around, untimed


def by_epoch(said):
    return [times[-2:] for times in said]


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
        ([0], {1}, [0, 3]),  # three steps in one execution, then the last one
    ]
    assert done.indices("training") == [0, 1, 2, 3]
    # The epoch that the exception left is none of its kind.
    assert [span.closed for span in done.named("epoch")] == [True, False, True, True, True]
    assert all(span.closed for span in done.spans if span.name != "epoch")
    assert not done.named("validation")


def test_lightning_told_in_steps_and_ended_by_an_exception(execute):
    done = execute("lightning_ways.py")
    assert done.exit_code == 0, done.stderr
    assert "the data ran out" in done.stdout
    assert "[Callback]" not in done.stdout  # in the profile
    # Fit for 5 steps in epochs of 4 batches, then broken off in the first step.
    assert done.indices("training") == [0, 1]
    assert [(span.index, span.total) for span in done.named("epoch")] == [(0, 2), (1, 2), (0, 7)]
    assert done.indices("step") == [0, 1, 2, 3, 4]
    assert [span.closed for span in done.named("epoch")] == [True, True, False]
    assert all(span.closed for span in done.spans if span.name != "epoch")
    assert not done.named("validation")


def test_a_trainer_told_in_steps(execute):
    done = execute("hugging_face.py", "7")
    assert done.exit_code == 0, done.stderr
    assert [(span.index, span.total) for span in done.named("epoch")] == [(0, 2), (1, 2)]
    assert [(span.index, span.total) for span in done.named("step")] == [(i, 7) for i in range(7)]

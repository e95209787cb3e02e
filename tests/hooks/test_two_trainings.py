"""A program that trains twice: each training has its own epochs, in the marks and on the way."""

from dataclasses import replace

import pytest

from joulewise.session.forecast import Forecaster


def news(spans):
    """What a follower that misses nothing would be told, one by one."""
    begun = [
        (span.start_ns, 1, replace(span, end_ns=span.start_ns, closed=False)) for span in spans
    ]
    ended = [(span.end_ns, 0, span) for span in spans]
    return [span for *_, span in sorted(begun + ended, key=lambda event: event[:2])]


@pytest.mark.parametrize("framework", ["keras", "lightning", "hugging_face", "loop"])
def test_each_training_has_its_own_epochs(execute, framework):
    done = execute("two_trainings.py", framework)
    assert done.exit_code == 0, done.stderr
    totals = (None, None) if framework == "loop" else (5, 3)
    assert done.indices("training") == [0, 1]
    assert [(span.index, span.total) for span in done.named("epoch")] == [
        *((index, totals[0]) for index in range(5)),
        *((index, totals[1]) for index in range(3)),
    ]
    course, result = Forecaster(0), []
    for span in news([span for span in done.spans if span.name in {"training", "epoch"}]):
        course.add_spans([span])
        result.append(tuple(course.epochs.values()))
    expected = [
        (done, total, training)
        for training, (epochs, announced) in enumerate(zip((5, 3), totals, strict=True))
        for done, total in [(0, None), *((done, announced) for done in range(epochs + 1))]
    ]
    assert list(dict.fromkeys(result)) == list(dict.fromkeys(expected))

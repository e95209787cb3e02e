"""When a training reached its target, from its epochs and the values that it logged."""

import math

import pytest

from joulewise.data import Span
from joulewise.data.jobs import JobTarget
from joulewise.optimise.recurring.target_progress import follow_target
from joulewise.store.logged_values import LoggedValue

TARGET = JobTarget("acc", 0.5, is_at_least=True)


def epochs(*ends_ns, is_open=False):
    """Epochs of 10 ns, from 0 on with gaps of 2 ns, that end at these times."""
    spans = [Span("epoch", n, end - 10, end) for n, end in enumerate(ends_ns)]
    if is_open:
        start = ends_ns[-1] + 2
        spans.append(Span("epoch", len(spans), start, start, closed=False))
    return spans


def values(*pairs):
    return [LoggedValue("acc", value, t_ns) for t_ns, value in pairs]


def test_nothing_is_known_of_nothing():
    progress = follow_target([], [], TARGET)
    assert (progress.epochs, progress.reached_ns, progress.best) == (0, None, None)


def test_a_value_after_an_epoch_belongs_to_it():
    progress = follow_target(epochs(10, 22), values((11, 0.4), (23, 0.6)), TARGET)
    assert (progress.epochs, progress.epochs_to_target, progress.reached_ns) == (2, 2, 23)
    assert progress.best == 0.6


def test_a_value_within_an_epoch_counts_at_its_end():
    progress = follow_target(epochs(10, 22), values((5, 0.6)), TARGET)
    assert (progress.epochs_to_target, progress.reached_ns) == (1, 10)


def test_only_the_last_value_within_an_epoch_counts():
    assert follow_target(epochs(10), values((5, 0.6), (8, 0.4)), TARGET).reached_ns is None


def test_an_epoch_under_way_has_reached_nothing_yet():
    progress = follow_target(epochs(10, is_open=True), values((11, 0.1), (15, 0.9)), TARGET)
    assert (progress.epochs, progress.judged, progress.reached_ns) == (1, 1, None)


def test_an_epoch_is_judged_by_a_value_or_by_the_next_epoch():
    assert follow_target(epochs(10), [], TARGET).judged == 0
    assert follow_target(epochs(10), values((11, 0.1)), TARGET).judged == 1
    assert follow_target(epochs(10, is_open=True), [], TARGET).judged == 1


def test_a_value_before_the_first_epoch_reaches_nothing():
    found = [Span("epoch", 0, 100, 110)]
    assert follow_target(found, values((50, 0.9)), TARGET).reached_ns is None


def test_without_epochs_each_value_is_one():
    progress = follow_target([], values((3, 0.1), (7, 0.5), (9, 0.9)), TARGET)
    assert (progress.epochs, progress.epochs_to_target, progress.reached_ns) == (3, 2, 7)
    assert progress.began_ns is None


def test_a_loss_goes_down():
    target = JobTarget("loss", 0.5, is_at_least=False)
    progress = follow_target([], values((1, 0.9), (2, 0.4), (3, 0.6)), target)
    assert (progress.reached_ns, progress.best) == (2, 0.4)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_what_is_no_number_reaches_nothing(value):
    assert follow_target([], values((1, value)), TARGET).reached_ns is None
    assert follow_target(epochs(10), values((11, math.nan)), TARGET).best is None


def test_windows_reach_to_the_next_epoch():
    assert follow_target(epochs(10, 22), [], TARGET).windows_ns == ((0, 12), (12, 22))

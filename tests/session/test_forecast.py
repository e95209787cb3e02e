"""What the whole run will take, from its first epochs."""

import json
import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from joulewise.data import Span, Unavailable
from joulewise.session.forecast import Forecaster, as_json, student

S = 1_000_000_000


def epoch(start_ns, index, total, pid=0, *, closed=False):
    return Span("epoch", index, start_ns, start_ns + S * closed, pid, total, closed)


def follow(periods_s, total, *, power_w=200.0, setup_s=3.0, epochs=None, **options):
    """A training told as the recorder would: energies once a second, then what the marks say."""
    course = Forecaster(7 * S, epochs=epochs, **options)
    begins_s = [setup_s]
    for period_s in periods_s:
        begins_s.append(begins_s[-1] + period_s)
    for second in range(1, math.ceil(begins_s[-1]) + 1):
        course.add_energy((7 + second) * S, power_w * second)
    for index, begin_s in enumerate(begins_s):
        course.add_spans([epoch(7 * S + round(begin_s * S), index, total)])
        if index < len(periods_s):
            course.add_spans([epoch(7 * S + round(begin_s * S), index, total, closed=True)])
    return course, 7 * S + round(begins_s[-1] * S)


def test_a_steady_training_is_foretold():
    course, now_ns = follow([10.0] * 4, 10)
    forecast = course.forecast(now_ns)
    assert forecast.time_s.value == pytest.approx(103)
    assert forecast.energy_j.value == pytest.approx(103 * 200)
    assert forecast.time_s.low < 103 < forecast.time_s.high
    assert course.epochs == {"done": 4, "total": 10, "training": 0}


def test_a_slow_first_epoch_is_left_out():
    course, now_ns = follow([30.0, 10.0, 10.1, 9.9], 10)
    assert course.forecast(now_ns).time_s.value == pytest.approx(3 + 60 + 60)


def test_a_first_epoch_like_the_others_is_not():
    course, now_ns = follow([10.3, 9.9, 10.1, 9.7], 10)
    assert course.forecast(now_ns).time_s.value == pytest.approx(3 + 100)


def test_what_lies_between_epochs_counts():
    """Validation after each epoch: its end is not the next one's begin."""
    course = Forecaster(0)
    for index in range(4):
        course.add_energy((index * 12 + 1) * S, 100.0 * (index * 12 + 1))
        course.add_spans([epoch(index * 12 * S, index, 5, closed=True)])
    assert course.forecast(36 * S).time_s.value == pytest.approx(60)


def test_a_drift_goes_on():
    drifting, now_ns = follow([10.0 + 0.5 * epoch for epoch in range(8)], 20)
    steady, _ = follow([11.75 + 0.01 * (-1) ** epoch for epoch in range(8)], 20)
    ahead, level = drifting.forecast(now_ns).time_s, steady.forecast(now_ns).time_s
    assert ahead.value > level.value
    assert ahead.high - ahead.low > level.high - level.low
    # Between "stays where it is" and "goes on for as long again".
    stays_s = 3 + 94 + 12 * 13.5
    assert ahead.low < stays_s < ahead.value < ahead.high


def test_noise_is_no_drift():
    course, now_ns = follow([10.2, 9.8, 10.1, 9.9, 10.2, 9.8], 12)
    assert course.forecast(now_ns).time_s.value == pytest.approx(3 + 120)


def test_an_epoch_under_way_takes_at_least_what_it_has_taken():
    course, now_ns = follow([10.0] * 4, 6)
    late_ns = now_ns + 25 * S
    forecast = course.forecast(late_ns)
    assert forecast.time_s.value == pytest.approx(3 + 40 + 25 + 10)
    assert forecast.time_s.low >= 3 + 40 + 25


def test_the_interval_narrows():
    widths = []
    for epochs in (2, 3, 5, 9):
        course, now_ns = follow([10.0] * epochs, 20)
        time_s = course.forecast(now_ns).time_s
        widths.append(time_s.high - time_s.low)
    assert widths == sorted(widths, reverse=True)


def test_the_gain_widens_energy_and_not_time():
    course, now_ns = follow([10.0] * 6, 12)
    plain, off = course.forecast(now_ns), course.forecast(now_ns, gain_error=0.05)
    assert off.time_s == plain.time_s
    half_j = (plain.energy_j.high - plain.energy_j.low) / 2
    assert off.energy_j.high - off.energy_j.value == pytest.approx(
        math.hypot(half_j, 0.05 * plain.energy_j.value)
    )


def test_costs_follow_the_energy():
    course, now_ns = follow([10.0] * 4, 10, per_kwh={"gco2": 400.0, "price": 0.3})
    forecast = course.forecast(now_ns)
    kwh = forecast.energy_j.value / 3.6e6
    assert forecast.costs["gco2"].value == pytest.approx(400 * kwh)
    assert forecast.costs["price"].high == pytest.approx(0.3 * forecast.energy_j.high / 3.6e6)
    payload = json.loads(json.dumps(as_json(forecast)))
    assert set(payload) == {"time_s", "energy_j", "gco2", "price"}
    assert payload["time_s"] == {"value": forecast.time_s.value, "low": forecast.time_s.low,
                              "high": forecast.time_s.high}  # fmt: skip


def test_without_a_readable_device_time_is_foretold():
    course = Forecaster(0)
    for index in range(4):
        course.add_spans([epoch(index * 5 * S, index, 10)])
    forecast = course.forecast(15 * S)
    assert forecast.energy_j is None
    assert forecast.time_s.value == pytest.approx(50)
    assert as_json(forecast)["energy_j"] is None


@pytest.mark.parametrize(
    ("epochs", "total", "reason"),
    [
        (4, None, "number of epochs is not known"),
        (0, 10, "two complete epochs"),
        (1, 10, "two complete epochs"),
        (4, 4, "last epoch is over"),
    ],
)
def test_too_little_is_known(epochs, total, reason):
    course, now_ns = follow([10.0] * epochs, total)
    forecast = course.forecast(now_ns)
    assert isinstance(forecast, Unavailable)
    assert reason in forecast.reason
    assert as_json(forecast)["reason"] == forecast.reason


def test_the_user_knows_how_many_epochs_there_are():
    course, now_ns = follow([10.0] * 3, None, epochs=8)
    assert course.forecast(now_ns).time_s.value == pytest.approx(3 + 80)
    course, now_ns = follow([10.0] * 3, 5, epochs=8)
    assert course.epochs["total"] == 8


def test_ranks_tell_of_the_same_epoch():
    course = Forecaster(0)
    for index in range(4):
        for rank in range(4):
            course.add_energy((index * 10 * S) + rank + 1, 1000.0 * index)
            course.add_spans([epoch(index * 10 * S + rank, index, 8, 100 + rank)])
        for rank in range(4):
            course.add_spans([epoch(index * 10 * S + rank, index, 8, 100 + rank, closed=True)])
    assert course.epochs == {"done": 4, "total": 8, "training": 0}
    assert course.forecast(30 * S).time_s.value == pytest.approx(80)


@pytest.mark.parametrize("pids", [(1, 1), (1, 2)])
def test_another_training_starts_anew(pids):
    course = Forecaster(0)
    for index in range(3):
        course.add_spans([epoch(index * 10 * S, index, 3, pids[0], closed=True)])
    for index in range(3):
        course.add_spans([epoch((40 + index * 20) * S, index, 10, pids[1], closed=True)])
    assert course.epochs == {"done": 3, "total": 10, "training": 1}
    assert course.forecast(80 * S).time_s.value == pytest.approx(40 + 10 * 20)


def test_a_training_that_is_taken_up_again_has_fewer_epochs_left():
    course = Forecaster(0)
    for place, index in enumerate(range(50, 54)):
        course.add_spans([epoch(place * 10 * S, index, 60)])
    assert course.forecast(30 * S).time_s.value == pytest.approx(100)


def test_other_spans_do_not_matter():
    course, now_ns = follow([10.0] * 4, 10)
    before = course.forecast(now_ns)
    course.add_spans([Span("validation", 0, now_ns + 1, now_ns + 1, closed=False)])
    assert course.forecast(now_ns) == before


def test_ten_thousand_epochs_are_no_burden():
    course = Forecaster(0)
    for index in range(10_000):
        course.add_energy(index * S + 1, 10.0 * index)
        course.add_spans([epoch(index * S, index, 20_000)])
    assert len(course._epoch_starts_ns) < 1000
    assert len(course._points) < 2000
    forecast = course.forecast(9_999 * S)
    assert forecast.time_s.value == pytest.approx(20_000)
    assert forecast.energy_j.value == pytest.approx(200_000, rel=1e-3)


@given(st.integers(1, 400))
def test_student(degrees):
    assert student(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=3e-3)


@given(
    st.lists(st.floats(0.1, 1e4), min_size=2, max_size=12),
    st.integers(1, 1000),
    st.floats(0, 0.2),
)
def test_the_estimate_lies_in_its_interval_and_not_in_the_past(periods_s, left, gain):
    course = Forecaster(0)
    t_ns = 0
    for index, period_s in enumerate([*periods_s, 0]):
        course.add_energy(t_ns + 1, 100 * t_ns / S)
        course.add_spans([epoch(t_ns, index, len(periods_s) + left)])
        t_ns += round(period_s * S)
    forecast = course.forecast(t_ns, gain)
    time_s, energy_j = forecast.time_s, forecast.energy_j
    assert t_ns / S * (1 - 1e-9) <= time_s.low <= time_s.value <= time_s.high < math.inf
    assert 0 <= energy_j.low <= energy_j.value <= energy_j.high < math.inf


@pytest.mark.parametrize("after", [2, 3, 5])
def test_trainings_end_inside_their_forecast(after):
    """A small share of ``benchmarks/outlook.py``: 95 % is meant, of 60."""
    from outlook import BOARDS, judge, train

    draw = random.Random(after)
    scores = []
    for seed, name in enumerate(["alexnet", "mnist-small", "mnist-big", "ecg"] * 15):
        training = train(name, BOARDS[seed % 3], seed, "cold" if seed % 2 else "warm")
        scores.append(judge(training, after, draw.gauss(1, 0.025)))
    assert sum(score.energy_hit for score in scores) >= 52
    assert sum(score.time_hit for score in scores) >= 52
    assert statistics.median(score.energy_width for score in scores) < 0.08


def training(start_ns, index, pid=0, *, closed=False):
    return Span("training", index, start_ns, start_ns + S * closed, pid, closed=closed)


def test_a_second_training_begins_at_none_of_its_own():
    """Fits of five and of three epochs: it said "epoch 5 of 3 is done"."""
    course = Forecaster(0)
    course.add_spans([training(0, 0)])
    for index in range(5):
        course.add_spans([epoch(index * 10 * S, index, 5, closed=True)])
    assert course.epochs == {"done": 5, "total": 5, "training": 0}
    course.add_spans([training(0, 0, closed=True), training(60 * S, 1)])
    assert course.epochs == {"done": 0, "total": None, "training": 1}
    course.add_spans([epoch(60 * S, 0, 3)])
    assert course.epochs == {"done": 0, "total": 3, "training": 1}
    assert course.forecast(61 * S).reason == "a forecast needs two complete epochs"
    for index in range(3):
        course.add_spans([epoch((60 + index * 10) * S, index, 3, closed=index < 2)])
    assert course.epochs == {"done": 2, "total": 3, "training": 1}
    assert course.forecast(81 * S).time_s.value == pytest.approx(90)


def test_a_second_training_that_counts_on_is_another():
    """fit(epochs=3), then fit(initial_epoch=3, epochs=5)."""
    course = Forecaster(0)
    course.add_spans([training(0, 0)])
    for index in range(3):
        course.add_spans([epoch(index * 10 * S, index, 3, closed=True)])
    course.add_spans([training(0, 0, closed=True), training(40 * S, 1)])
    course.add_spans([epoch(40 * S, 3, 5)])
    assert course.epochs == {"done": 3, "total": 5, "training": 1}
    assert isinstance(course.forecast(41 * S), Unavailable)


def test_a_second_training_without_marks_of_it_begins_where_the_index_does():
    course = Forecaster(0)
    for index in range(5):
        course.add_spans([epoch(index * 10 * S, index, 5, closed=True)])
    course.add_spans([epoch(60 * S, 0, 3)])
    assert course.epochs == {"done": 0, "total": 3, "training": 1}


def test_trainings_side_by_side_are_not_taken_for_one():
    """Two processes: the first is followed to its end, and then the other one."""
    course = Forecaster(0)
    course.add_spans([training(0, 0, 1), training(1, 0, 2)])
    for index in range(3):
        course.add_spans([epoch(index * 10 * S + 2, index, 3, 1, closed=True)])
        course.add_spans([epoch(index * 10 * S + 3, index, 30, 2, closed=True)])
    assert course.epochs == {"done": 3, "total": 3, "training": 0}
    course.add_spans([training(0, 0, 1, closed=True), epoch(30 * S, 3, 30, 2)])
    assert course.epochs == {"done": 3, "total": 30, "training": 1}


def test_the_epochs_that_the_user_gave_are_of_all_trainings():
    course = Forecaster(0, epochs=6)
    for fold in range(2):
        course.add_spans([training(fold * 30 * S, fold)])
        for index in range(3):
            course.add_spans([epoch((fold * 30 + index * 10) * S, index, None, closed=True)])
    assert course.epochs == {"done": 6, "total": 6, "training": 1}
    course.add_spans([training(60 * S, 2), epoch(60 * S, 0, None)])
    assert course.epochs == {"done": 6, "total": None, "training": 2}
    forecast = course.forecast(61 * S)
    assert isinstance(forecast, Unavailable)
    assert "--epochs" in forecast.fix

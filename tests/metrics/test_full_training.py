import pytest

from joulewise.data.sweeps import Work
from joulewise.errors import UsageError
from joulewise.metrics.boundary import Training, View
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.metric import parse
from joulewise.metrics.projection import next_run, year
from joulewise.metrics.result import Interval
from tests.helpers.sweeps import grid, limit, measured, sweep, trial

START_S, START_J = 20.0, 1000.0


def short_runs(epochs=2, blocks=3, steps=None, noise=(1.0, 1.02, 0.98)):
    """Short runs: a start of 20 s and 1 kJ, then epochs of 10 s and 2 kJ (300 W) or 1.5 kJ."""
    trials = []
    for w, epoch_s, epoch_j in ((300, 10.0, 2000.0), (200, 12.0, 1500.0)):
        for block in range(blocks):
            time_s = epochs * epoch_s * noise[block]
            energy_j = epochs * epoch_j * noise[block]
            spans = {"epoch": Work(epochs, time_s, {"gpu": measured(energy_j)})}
            if steps:
                spans["step"] = Work(steps, 0.9 * time_s)
            trials.append(
                trial(
                    limit(w, batch_size="32"),
                    block,
                    START_S + time_s,
                    START_J + energy_j,
                    spans=spans,
                )
            )
    return sweep(trials, limit(300, batch_size="32"))


def of_training(made, **training):
    return evaluate(made, [parse("energy")], View(training=Training(**training)))


def test_the_start_counts_once():
    result = of_training(short_runs(), epochs=90)
    assert result.per == "training"
    assert result.reference.time_s.mean == pytest.approx(START_S + 90 * 10)
    assert result.reference.energy_j.mean == pytest.approx(START_J + 90 * 2000)
    assert result.best["energy"].energy.mean == pytest.approx(
        (START_J + 90 * 1500) / (START_J + 90 * 2000), rel=1e-4
    )


def test_the_look_itself_is_the_look():
    of_look, of_run = of_training(short_runs(), epochs=2), evaluate(short_runs(), [parse("energy")])
    assert of_look.reference.energy_j.mean == pytest.approx(of_run.reference.energy_j.mean)
    assert of_look.reference.gain_j == pytest.approx(of_run.reference.gain_j)


def test_more_samples_are_more_work():
    result = of_training(short_runs(steps=100), epochs=90, samples=16_000)  # seen: twice 1,600
    assert result.reference.time_s.mean == pytest.approx(START_S + 90 * 100)


def test_what_the_runs_do_not_tell_can_be_said():
    said = of_training(short_runs(), epochs=90, samples=16_000, look_samples=1600)
    assert said.reference.time_s.mean == pytest.approx(START_S + 90 * 100)
    unmarked = grid(lambda w: (10.0, w), (200, 300), 300)
    whole = of_training(unmarked, epochs=90, look_epochs=1)
    assert whole.reference.time_s.mean == pytest.approx(900)


@pytest.mark.parametrize(
    ("training", "hint"),
    [
        ({"epochs": 90}, "--look-epochs"),
        ({"epochs": 90, "samples": 100, "look_epochs": 1}, "--look-samples"),
    ],
)
def test_what_nobody_knows_is_not_extrapolated(training, hint):
    with pytest.raises(UsageError) as caught:
        of_training(grid(lambda w: (10.0, w), (200, 300), 300), **training)
    assert hint in caught.value.hint


def test_the_spread_grows_with_the_work():
    short, long = (
        of_training(short_runs(), epochs=epochs).reference.energy_j for epochs in (2, 90)
    )
    assert long.high - long.mean == pytest.approx(45 * (short.high - short.mean))


@pytest.mark.parametrize(
    ("per", "time_s", "energy_j"), [("epoch", 10.0, 2000.0), ("sample", 20 / 3200, 4000 / 3200)]
)
def test_an_epoch_and_a_sample(per, time_s, energy_j):
    reference = evaluate(short_runs(steps=100), [parse("energy")], View(per=per)).reference
    assert reference.time_s.mean == pytest.approx(time_s)
    assert reference.energy_j.mean == pytest.approx(energy_j)


def test_steps_without_joules_have_a_time():
    reference = evaluate(short_runs(steps=100), [parse("time")], View(per="step")).reference
    assert reference.time_s.mean == pytest.approx(0.9 * 20 / 100)
    assert reference.energy_j is None


@pytest.mark.parametrize(("per", "hint"), [("epoch", "per run"), ("sample", "batch_size")])
def test_what_is_not_marked_cannot_be_counted(per, hint):
    with pytest.raises(UsageError) as caught:
        evaluate(grid(lambda w: (10.0, w), (200, 300), 300), view=View(per=per))
    assert hint in caught.value.hint


def test_the_next_run_is_less_sure_than_the_mean():
    made = grid(lambda w: (10.0, w), (200, 300), 300, noise=0.02, gain=0.0)
    mean = evaluate(made, [parse("energy")]).reference
    coming = next_run(made, limit(300), View())
    assert coming.energy_j.mean == pytest.approx(mean.energy_j.mean)
    wider = (coming.energy_j.high - coming.energy_j.low) / (mean.energy_j.high - mean.energy_j.low)
    assert wider == pytest.approx(6**0.5)


def test_the_next_runs_joules_bear_the_gain():
    made = grid(lambda w: (10.0, w), (200, 300), 300, gain=0.05)
    assert next_run(made, limit(300), View()).energy_j == Interval(
        pytest.approx(300), pytest.approx(285), pytest.approx(315)
    )
    assert next_run(made, limit(300), View()).time_s == Interval(*[pytest.approx(10)] * 3)


def test_a_year_is_so_many_runs():
    made = grid(lambda w: (12.0 if w == 200 else 10.0, w * 1e4), (200, 300), 300, gain=0.05)
    result = evaluate(made, [parse("energy")])
    found = year(result, "energy", 360, price_per_kwh=0.3, gco2_per_kwh=400)
    assert found.energy_kwh == Interval(pytest.approx(100), pytest.approx(95), pytest.approx(105))
    assert found.time_h.mean == pytest.approx(360 * 2 / 3600)
    assert found.money.low == pytest.approx(0.3 * 95)
    assert found.co2_kg.high == pytest.approx(0.4 * 105)


def test_without_a_price_there_is_no_money():
    result = evaluate(grid(lambda w: (10.0, w), (200, 300), 300, blocks=1), [parse("energy")])
    found = year(result, "energy", 10)
    assert (found.money, found.co2_kg) == (None, None)
    assert found.energy_kwh.low is None
    with pytest.raises(UsageError):
        year(result, "energy", 0)

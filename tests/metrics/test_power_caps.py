import pytest

from joulewise.data.sweeps import SM_CLOCK
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.result import SweepWarningCode
from tests.helpers.sweeps import grid, limit, sweep, trial

LIMITS = (100, 150, 200, 250, 300)
NEVER, FLOOR = SweepWarningCode.CAP_NEVER_BINDS, SweepWarningCode.CAP_BELOW_FLOOR


def warnings_by_code(of):
    return {it.code: it for it in evaluate(of).warnings}


def course(by_limit, **others):
    """``by_limit`` gives time, energy and what was seen of the clocks."""
    trials = [
        trial(limit(w, **others), block, *by_limit(w)[:2], **by_limit(w)[2])
        for w in LIMITS
        for block in range(3)
    ]
    return sweep(trials, limit(300, **others))


def test_a_limit_that_holds_nothing_down_never_binds():
    found = warnings_by_code(course(lambda _: (100.0, 9000.0, {"capped": 0.0})))
    assert found[NEVER].message == "no power limit down to 100 W held the clocks down"
    assert "--sm-clock" in found[NEVER].hint


def test_bursts_below_the_limit_on_average_bind():
    found = warnings_by_code(
        course(lambda w: (100.0, 8000.0, {"capped": 0.03 if w < 200 else 0.0}))
    )
    assert NEVER not in found


def test_where_nobody_looked_clocks_tell():
    idle = course(lambda _: (100.0, 9000.0, {"clock_mhz": 1500.0}))
    held = course(lambda w: (100.0, 9000.0, {"clock_mhz": 1500.0 - 2 * (300 - w)}))
    assert NEVER in warnings_by_code(idle)
    assert NEVER not in warnings_by_code(held)
    assert [point.binds for point in evaluate(held).points] == [True] * 4 + [None]


def test_mean_power_alone_says_nothing():
    assert not {NEVER, FLOOR} & set(warnings_by_code(course(lambda _: (100.0, 9000.0, {}))))


def at_the_floor(w):
    """No less than 160 W is drawn, and what is below costs time."""
    time_s = 100 + (300 - w) / 2
    return time_s, max(w, 160) * time_s, {"capped": 1.0 if w < 300 else 0.2}


def test_a_limit_below_what_the_lowest_clocks_draw():
    found = warnings_by_code(course(at_the_floor))
    assert "limits of 100 W and less are below what the lowest clocks draw" in found[FLOOR].message
    assert "--sm-clock" in found[FLOOR].hint


def test_a_limit_that_still_saves_is_not_below_the_floor():
    def still(w):
        return 100.0, max(w, 120 + w / 3) * 100.0, {"capped": 1.0}

    assert FLOOR not in warnings_by_code(course(still))


def test_a_limit_that_is_kept_is_not_below_the_floor():
    assert FLOOR not in warnings_by_code(course(lambda w: (100.0, 0.95 * w * 100, {"capped": 1.0})))


def test_several_gpus_draw_several_limits():
    def each_95_w(gpus):
        return course(lambda _: (100.0, 3 * 95 * 100.0, {"capped": 1.0, "gpu": gpus}))

    assert FLOOR not in warnings_by_code(each_95_w("a,b,c"))
    assert FLOOR in warnings_by_code(each_95_w("a"))


def test_only_where_it_is_so_it_is_said():
    trials = [
        trial(limit(w, batch_size=size), block, 100.0, 50.0 * w, capped=share)
        for w in LIMITS
        for size, share in (("8", 0.0), ("64", 0.9))
        for block in range(2)
    ]
    message = warnings_by_code(sweep(trials, limit(300, batch_size="8")))[NEVER].message
    assert message.endswith("held the clocks down with batch_size 8")


def test_locked_clocks_need_no_limit():
    trials = [
        trial(limit(w, **{SM_CLOCK: clock}), block, 100.0, 50.0 * w, capped=share)
        for w in LIMITS
        for clock, share in ((None, 0.9), (900.0, 0.0))
        for block in range(2)
    ]
    assert NEVER not in warnings_by_code(sweep(trials, limit(300, **{SM_CLOCK: None})))


def test_a_single_limit_is_no_range():
    assert NEVER not in warnings_by_code(grid(lambda w: (100, w), [300], 300, capped=0.0))


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_noise_does_not_hide_the_floor(noise):
    made = grid(lambda w: at_the_floor(w)[:2], LIMITS, 300, noise=noise, capped=1.0)
    assert FLOOR in warnings_by_code(made)

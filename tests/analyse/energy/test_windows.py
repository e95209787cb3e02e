"""Joules of windows on lanes whose truth is known."""

from dataclasses import replace

import numpy as np
import pytest

from joulewise.analyse.energy.windows import energy_of, window_energy
from joulewise.data import SensorProfile, Source
from tests.helpers.ideal_sensors import (
    S,
    Sensor,
    constant,
    device,
    lane,
    lanes,
    ramp,
    square,
    windows,
)

TURING = Sensor(period_s=0.1, window_s=0.1, lag_s=0.05)


def measure(energy_at, *pairs_s, sensor=None, counter=True, buffer=True, change=None, **options):
    fast, samples = lanes(energy_at, sensor=sensor, **options)
    if change:
        change(fast, samples)
    if not counter:
        del fast["energy_j"]
    return window_energy(
        device(sensor, counter=counter),
        lane(fast),
        lane(samples) if buffer else None,
        windows(*pairs_s),
    )


def cut(start_s, end_s, *names):
    """Nothing could be read from ``start_s`` to ``end_s``."""

    def change(fast, samples):
        gone = (fast["t_ns"] >= windows((start_s, end_s))[0, 0]) & (
            fast["t_ns"] < windows((start_s, end_s))[0, 1]
        )
        for name in names or ("power_w", "energy_j"):
            fast[name] = np.where(gone, np.nan, fast[name])
        if not names:
            kept = ~(
                (samples["t_ns"] >= windows((start_s, end_s))[0, 0])
                & (samples["t_ns"] < windows((start_s, end_s))[0, 1])
            )
            samples.update({name: column[kept] for name, column in samples.items()})

    return change


def counter_from(start_s, new):
    """The counter from ``start_s`` on as ``new`` makes it of what it would be."""

    def change(fast, _):
        late = fast["t_ns"] >= windows((start_s, start_s))[0, 0]
        fast["energy_j"] = np.where(late, new(fast["energy_j"]), fast["energy_j"])

    return change


class TestConstantLoad:
    @pytest.mark.parametrize("counter", [True, False])
    @pytest.mark.parametrize("buffer", [True, False])
    def test_is_exact_wherever_it_is_cut(self, counter, buffer):
        found = measure(
            constant(200), (1, 11), (2.0371, 2.9), (3, 3.25), counter=counter, buffer=buffer
        )
        slack = 0.01 if buffer or not counter else 4.1  # ticks of 20 ms that nobody saw
        assert found.energy_j == pytest.approx([2000, 172.58, 50], abs=slack)
        assert found.mean_w == pytest.approx([200, 200, 200], abs=20 * slack)
        assert found.peak_w == pytest.approx([200] * 3, abs=0.001)
        assert not found.disagree.any()
        assert not found.gap_s.any()

    def test_has_a_tiny_error(self):
        found = measure(constant(200), (1, 11), sensor=Sensor(noise_w=0.3))
        assert abs(found.energy_j[0] - 2000) < found.error_sampling_j[0] < 0.1

    def test_counter_and_integral_are_both_given(self):
        found = measure(constant(200), (1, 11), sensor=Sensor(noise_w=0.3))
        assert found.counter_j[0] == pytest.approx(2000, abs=0.1)
        assert found.integral_j[0] == pytest.approx(2000, abs=1)
        assert found.integral_j[0] != found.counter_j[0]


class TestEdges:
    def test_a_reading_belongs_to_the_time_before_it_less_its_lag(self):
        found = measure(ramp(50, 20), (2, 4), sensor=TURING, counter=False)
        assert found.energy_j[0] == pytest.approx(50 * 2 + 10 * (16 - 4), abs=0.1)

    def test_polls_of_a_held_reading_too(self):
        found = measure(
            ramp(50, 20), (2, 4), sensor=TURING, counter=False, buffer=False, rate_hz=100
        )
        assert found.energy_j[0] == pytest.approx(220, abs=0.3)

    def test_a_reading_that_repeats_is_held(self):
        """The trapezoid over what is left without repeats would tell far more."""
        level = square(50, 250, 4.0, duty=0.25)
        found = measure(level, (1.5, 9.5), sensor=TURING, counter=False, buffer=False, rate_hz=100)
        truth_j = level(9.5) - level(1.5)
        assert abs(found.energy_j[0] - truth_j) < found.error_sampling_j[0] < 0.1 * truth_j

    def test_a_counter_is_spread_between_its_ticks_as_the_readings_were(self):
        """A load that starts between two polls, and a window that ends right before it."""
        start_s = 5.06

        def energy_at(t):
            t = np.asarray(t)
            return 50 * (t + 1) + 200 * np.maximum(t - start_s, 0)

        found = measure(energy_at, (2, start_s), (start_s, 8))
        truth_j = np.array([50 * (start_s - 2), 250 * (8 - start_s)])
        assert np.all(np.abs(found.energy_j - truth_j) < 2.1)
        assert np.all(np.abs(found.energy_j - truth_j) < found.error_sampling_j)

    def test_what_two_ticks_tell_bounds_the_edge(self):
        found = measure(square(50, 250, 0.02), (2.013, 8.007))
        assert found.error_sampling_j[0] < 2 * 150 * 0.1

    def test_changing_load_has_a_wider_error_than_constant(self):
        steady = measure(constant(150), (2.013, 8.007), sensor=Sensor(noise_w=0.3))
        bursts = measure(square(50, 250, 0.073), (2.013, 8.007), sensor=Sensor(noise_w=0.3))
        assert bursts.error_sampling_j[0] > 5 * steady.error_sampling_j[0]

    def test_a_wave_in_step_with_the_sensor_is_counted_and_widens_the_error(self):
        wave = square(50, 250, 0.02, duty=0.25)
        found = measure(wave, (2.013, 8.007), sensor=Sensor(noise_w=0.3))
        truth_j = wave(8.007) - wave(2.013)
        assert abs(found.integral_j[0] - truth_j) > 10
        assert abs(found.energy_j[0] - truth_j) < found.error_sampling_j[0] < 4
        assert not found.disagree[0]


class TestShortWindows:
    def test_shorter_than_a_period_all_is_in_doubt(self):
        found = measure(constant(200), (5.003, 5.013), (2, 8))
        assert found.too_short.tolist() == [True, False]
        assert found.energy_j[0] == pytest.approx(2.0, abs=0.01)
        assert found.error_sampling_j[0] > 0.4 * found.energy_j[0]

    def test_of_no_length(self):
        found = measure(constant(200), (5.003, 5.003))
        assert found.energy_j[0] == 0
        assert found.error_sampling_j[0] == 0
        assert np.isnan(found.mean_w[0])


class TestCountersThatBreak:
    @pytest.mark.parametrize(
        "new",
        [
            pytest.param(lambda count: count - count.min() - 1_100, id="reset"),
            pytest.param(lambda count: count - 100, id="backwards"),
            pytest.param(lambda count: count + 100, id="forwards"),
        ],
    )
    def test_readings_stand_in_for_the_jump(self, new):
        found = measure(constant(200), (1, 11), (1, 4), (6, 11), change=counter_from(5, new))
        assert found.energy_j == pytest.approx([2000, 600, 1000], abs=0.1)
        assert found.counter_broken.tolist() == [True, False, False]

    @pytest.mark.parametrize("lost_j", [3, 10, 25, 50])
    def test_one_that_steps_back_by_less_than_a_poll_is_mended_or_in_the_error(self, lost_j):
        """At 200 W and 10 Hz a poll is 20 J; the driver's samples show that they are missing."""
        found = measure(
            constant(200),
            (1, 11),
            (6, 11),
            sensor=Sensor(noise_w=0.3),
            change=counter_from(5, lambda count: count - lost_j),
        )
        assert abs(found.energy_j[0] - 2000) < found.error_sampling_j[0]
        assert found.error_sampling_j[0] < max(1.5 * lost_j, 5)
        assert found.counter_broken[0] == (lost_j >= 25)
        assert found.error_sampling_j[1] < 1

    def test_one_that_stops_leaves_the_rest_to_the_readings(self):
        found = measure(
            square(50, 250, 0.3), (1, 11), change=counter_from(5, lambda c: np.full_like(c, c[50]))
        )
        assert found.energy_j[0] == pytest.approx(1500, rel=0.02)
        assert abs(found.energy_j[0] - 1500) < found.error_sampling_j[0]

    def test_one_that_stands_still_and_goes_on_from_there(self):
        def paused(fast, _):
            t_s = (fast["t_ns"] - fast["t_ns"][0]) / S
            fast["energy_j"] = 200 * (t_s - np.clip(t_s - 4, 0, 3))

        found = measure(constant(200), (1, 11), change=paused)
        assert found.energy_j[0] == pytest.approx(2000, rel=0.01)
        assert found.counter_broken[0]

    def test_one_that_catches_up_was_right(self):
        found = measure(constant(200), (1, 11), change=cut(4, 7, "energy_j"))
        assert found.energy_j[0] == pytest.approx(2000, abs=0.1)
        assert not found.counter_broken[0]

    def test_one_that_cannot_be_read_at_all(self):
        found = measure(constant(200), (1, 11), change=cut(0, 99, "energy_j"))
        assert np.isnan(found.counter_j[0])
        assert found.energy_j[0] == pytest.approx(2000, abs=0.1)

    @pytest.mark.parametrize("readings", [1, 2])
    def test_one_that_answered_hardly_ever(self, readings):
        found = measure(constant(200), (1, 11), change=cut(0.1 * readings, 99, "energy_j"))
        assert found.energy_j[0] == pytest.approx(2000, abs=1)

    def test_a_disagreement_is_marked_and_within_the_error(self):
        found = measure(
            constant(200),
            (1, 11),
            sensor=TURING,
            change=lambda fast, _: fast.update(energy_j=fast["energy_j"] / 4),
        )
        assert found.disagree[0]
        assert found.counter_j[0] == pytest.approx(500, abs=1)
        assert found.error_sampling_j[0] >= 1490

    def test_alone_without_readings_of_power(self):
        fast, _ = lanes(square(50, 250, 0.3))
        del fast["power_w"]
        found = window_energy(device(), lane(fast), None, windows((1, 10)))
        assert abs(found.energy_j[0] - 1350) < found.error_sampling_j[0] < 100
        assert np.isnan(found.integral_j[0])
        assert np.isnan(found.peak_w[0])


class TestGaps:
    def test_unseen_time_may_have_drawn_anything(self):
        found = measure(constant(200), (1, 11), counter=False, change=cut(4, 6))
        assert found.gap_s[0] == pytest.approx(2, abs=0.1)
        assert found.energy_j[0] == pytest.approx(2000, abs=1)
        assert found.error_sampling_j[0] == pytest.approx(2 * 170, rel=0.05)

    def test_a_counter_counts_through_them(self):
        whole = measure(constant(200), (1, 11), sensor=Sensor(noise_w=0.3))
        found = measure(constant(200), (1, 11), sensor=Sensor(noise_w=0.3), change=cut(4, 6))
        assert found.energy_j[0] == pytest.approx(2000, abs=0.1)
        assert whole.error_sampling_j[0] < found.error_sampling_j[0] < 10

    def test_an_edge_in_a_gap_is_bounded_by_what_the_counter_says_around_it(self):
        found = measure(square(50, 250, 1.0), (1, 5), change=cut(4, 6))
        assert abs(found.energy_j[0] - 600) < found.error_sampling_j[0] < 300

    def test_windows_before_and_after_the_streams_have_energies_too(self):
        found = measure(constant(200), (-2, 11), (1, 15))
        assert found.gap_s == pytest.approx([2, 3], abs=0.1)
        assert np.all(found.error_sampling_j > 300)

    def test_polls_stand_in_for_samples_that_ended_early(self):
        def ended(_, samples):
            samples.update({name: column[:100] for name, column in samples.items()})

        noisy = {"sensor": Sensor(noise_w=0.3), "counter": False}
        found = measure(constant(200), (1, 11), change=ended, **noisy)
        assert found.gap_s[0] == 0
        assert found.error_sampling_j[0] < 5

    def test_a_sensor_that_stands_still_is_no_reading(self):
        def stuck(fast, samples):
            for columns in (fast, samples):
                held = np.abs(columns["t_ns"] - windows((6, 6))[0, 0]) < 2 * S
                columns["power_w"] = np.where(held, 200.0, columns["power_w"])

        noisy = {"sensor": Sensor(noise_w=0.3), "counter": False}
        found = measure(constant(200), (1, 11), (5, 7), change=stuck, **noisy)
        assert found.stuck_s == pytest.approx([4, 2], abs=0.1)
        assert found.stuck.tolist() == [False, True]
        assert found.error_sampling_j[0] > 4 * 150

    def test_what_never_moves_is_a_constant(self):
        found = measure(constant(200), (1, 11), counter=False)
        assert not found.stuck_s.any()
        assert found.error_sampling_j[0] < 1


class TestPeak:
    def test_is_the_highest_reading_of_the_window(self):
        found = measure(ramp(50, 20), (2, 4), (3, 3.1), (1, 9))
        assert found.peak_w == pytest.approx([130, 112, 230], abs=1.1)


class TestNothing:
    @pytest.mark.parametrize("rows", [0, 12])
    def test_was_read(self, rows):
        never = {"t_ns": np.arange(rows) * S, "power_w": np.full(rows, np.nan)}
        found = window_energy(device(), lane(never), None, windows((1, 2)))
        assert np.isnan(found.energy_j[0])
        assert energy_of(found, 0, device()) is None

    def test_was_recorded(self):
        found = window_energy(device(), None, None, windows((1, 2), (3, 4)))
        assert np.isnan(found.energy_j).all()

    def test_no_windows_give_no_energies(self):
        assert measure(constant(200)).energy_j.shape == (0,)


def test_a_cards_gain_is_divided_out():
    fast, samples = lanes(constant(220))
    board = device(gain=1.1, gain_sigma=0.005)
    found = window_energy(board, lane(fast), lane(samples), windows((1, 11)))
    energy = energy_of(found, 0, board)
    assert energy.value == pytest.approx(2000, abs=0.1)
    assert energy.error_gain == pytest.approx(1.96 * 0.005 * 2000, rel=1e-3)
    assert energy.source is Source.MEASURED
    assert found.peak_w[0] == pytest.approx(200)


class TestComputedWhenAsked:
    """A counter without ticks, such as that of memory assumed to draw so many watts."""

    def assumed(self, rate_hz, *pairs_s, source=Source.ASSUMED, watts=6.0):
        t_s = np.arange(0.0, 12.0, 1 / rate_hz) + np.random.default_rng(1).uniform(0, 0.004)
        t_ns = windows(*np.column_stack([t_s, t_s]))[:, 0]
        fast = {"t_ns": t_ns, "power_w": np.full(len(t_s), watts), "energy_j": watts * t_s}
        sources = dict.fromkeys(("power_w", "energy_j"), source)
        card = SensorProfile(counter_period_s=0.0, gain_sigma=0.48)
        recorded = replace(device(maximum_w=None), sources=sources, card=card)
        return window_energy(recorded, lane(fast), None, windows(*pairs_s))

    @pytest.mark.parametrize("rate_hz", [1.0, 10.0, 100.0])
    def test_constant_power_is_exact_and_in_no_doubt(self, rate_hz):
        found = self.assumed(rate_hz, (1.03, 2.13), (0.05, 1.15), (2, 11.9), (3.001, 3.002))
        assert found.mean_w == pytest.approx([6.0] * 4)
        assert found.error_sampling_j == pytest.approx([0.0] * 4, abs=0.01)
        assert not found.counter_broken.any()

    def test_a_model_is_in_doubt_between_two_readings(self):
        found = self.assumed(1.0, (1.3, 2.6), source=Source.MODELLED)
        assert found.mean_w == pytest.approx([6.0])
        assert found.error_sampling_j[0] > 0.1


class TestAsleep:
    """A GPU that nobody could read before it was woken, 3 s into the run."""

    def test_it_drew_next_to_nothing_before_it_was_woken(self):
        fast, samples = lanes(constant(60))
        for columns in (fast, samples):
            late = columns["t_ns"] >= windows((3, 3))[0, 0]
            columns.update({name: column[late] for name, column in columns.items()})
        awake_ns = int(windows((3, 3))[0, 0])
        woken = replace(device(), awake_ns=awake_ns, asleep_ns=awake_ns)
        asked = windows((-2997, 11), (-2997, 3), (1, 2), (4, 6))
        found = window_energy(woken, lane(fast), lane(samples), asked)
        assert found.energy_j == pytest.approx([7500 + 480, 7500, 2.5, 120], abs=1)
        assert found.error_sampling_j == pytest.approx([7500, 7500, 2.5, 0], abs=2)
        assert found.mean_w == pytest.approx([7980 / 3008, 2.5, 2.5, 60], abs=0.1)
        assert np.isnan(found.peak_w).tolist() == [False, True, True, False]
        assert found.gap_s == pytest.approx([0, 0, 0, 0], abs=0.1)
        assert not found.disagree.any()

    def test_what_did_not_sleep_may_have_drawn_anything_before_it_answered(self):
        fast, samples = lanes(constant(60))
        lost = replace(device(), awake_ns=int(windows((3, 3))[0, 0]))
        asked = windows((1, 11), (1, 3), (2, 3.5), (4, 6))
        found = window_energy(lost, lane(fast), lane(samples), asked)
        most_w = lost.maximum_w
        assert found.energy_j == pytest.approx(
            [480 + most_w, np.nan, np.nan, 120], abs=1, nan_ok=True
        )
        assert found.error_sampling_j[[0, 3]] == pytest.approx([most_w, 0], abs=2)

    def test_from_its_last_sleep_to_its_first_answer_it_may_have_drawn_anything(self):
        fast, samples = lanes(constant(60))
        asleep_ns, awake_ns = (int(windows((t, t))[0, 0]) for t in (2, 3))
        woken = replace(device(), awake_ns=awake_ns, asleep_ns=asleep_ns)
        found = window_energy(woken, lane(fast), lane(samples), windows((1, 11)))
        assert found.energy_j == pytest.approx([480 + 2.5 + woken.maximum_w / 2], abs=1)

    def test_without_a_bound_nothing_is_known_of_it(self):
        fast, samples = lanes(constant(60))
        lost = replace(device(), awake_ns=int(windows((3, 3))[0, 0]), maximum_w=None)
        found = window_energy(lost, lane(fast), lane(samples), windows((1, 11), (4, 6)))
        assert np.isnan(found.energy_j).tolist() == [True, False]

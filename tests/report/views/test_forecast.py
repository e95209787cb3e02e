"""The outlook of a run that is being recorded, as ``show`` words it."""

from joulewise.report.views.run import outlook

EPOCHS = {"epochs": {"done": 6, "total": 90}}


def estimate(value):
    return {"value": value, "low": 0.9 * value, "high": 1.1 * value}


def test_what_the_run_will_take():
    result = {
        **EPOCHS,
        "time_s": estimate(50.0),
        "energy_j": estimate(2e5),
        "price": estimate(0.02),
    }
    assert list(outlook(result)) == [
        (
            "forecast: epoch 6 of 90 is done; the whole run takes 50.0 s (45.0-55.0 s) "
            "and 200 kJ (180-220 kJ)"
        ),
        "forecast: cost 0.0200 (0.0180-0.0220)",
    ]


def test_joules_that_nobody_could_read_are_left_out():
    (line,) = outlook({**EPOCHS, "time_s": estimate(50.0), "energy_j": None})
    assert line.endswith("takes 50.0 s (45.0-55.0 s)")


def test_why_there_is_none_yet():
    result = {"reason": "the number of epochs is not known", "fix": "joulewise run --epochs N"}
    assert list(outlook({"epochs": {"done": 0, "total": None}, **result})) == [
        (
            "no forecast: 0 epochs are done; the number of epochs is not known "
            "(joulewise run --epochs N)"
        )
    ]
    assert not list(outlook(None))


def test_what_is_foretold_from_a_lower_bound_is_one():
    energy_j = {"value": 20e3, "low": 19e3, "high": 21e3, "at_least": True}
    time_s = {"value": 100.0, "low": 99.0, "high": 101.0}
    cost = {"value": 3.0, "low": 2.9, "high": 3.1}
    result = {"epochs": {"done": 4, "total": 10}, "time_s": time_s, "energy_j": energy_j}
    whole, carbon = outlook({**result, "gco2": cost})
    assert "at least 19.0 kJ" in whole
    assert "21.0" not in whole
    assert carbon == "forecast: emissions at least 2.90 g CO₂"

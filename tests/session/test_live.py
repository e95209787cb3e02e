"""What is told of a run while it goes on."""

import json

import pytest

from joulewise.budget import parse_budget
from joulewise.data import Energy, Source, Span
from joulewise.session.recording import LiveProgress

S = 1_000_000_000


def gpu(joules):
    return Energy(joules, 0.01 * joules, 0.05 * joules, Source.MEASURED)


def follow(progress, epochs, *, total=10):
    events = []
    for index in range(epochs):
        began = Span("epoch", index, index * 10 * S, index * 10 * S, 7, total, closed=False)
        for second in range(10):
            t_ns = (index * 10 + second) * S + 5
            energy_j = {"gpu0": gpu(200 * t_ns / S), "gpu1": gpu(50 * t_ns / S), "cpu0": None}
            spans = [began] if second == 0 else []
            events += progress.check(t_ns, energy_j, {"gpu0", "cpu0"}, spans)
    return events


def test_what_is_reported(tmp_path):
    progress = LiveProgress(tmp_path, 0, per_kwh={"gco2": 400.0})
    assert follow(progress, 4) == []
    assert [path.name for path in tmp_path.iterdir()] == ["live.json"]
    payload = json.loads((tmp_path / "live.json").read_text())
    assert payload["t_ns"] == 39 * S + 5
    assert payload["time_s"] == pytest.approx(39)
    assert payload["energy_j"]["total"]["value"] == pytest.approx(39 * 200)
    assert payload["energy_j"]["gpu1"]["source"] == "measured"
    assert payload["energy_j"]["cpu0"] is None
    assert payload["epochs"] == {"done": 0, "total": 10, "training": 0}  # none of them has ended
    forecast = payload["outlook"]
    assert forecast["time_s"]["value"] == pytest.approx(100)
    assert forecast["energy_j"]["value"] == pytest.approx(20_000)
    half_j = forecast["energy_j"]["high"] - forecast["energy_j"]["value"]
    assert 0.05 * 20_000 < half_j < 0.08 * 20_000  # not without the gain's
    assert forecast["energy_j"]["at_least"]  # cpu0 counts and is not read
    assert payload["energy_j"]["total"]["at_least"]
    assert payload["counted"] == ["cpu0", "gpu0"]
    assert forecast["gco2"]["value"] == pytest.approx(20_000 / 3.6e6 * 400)


def test_at_first_there_is_a_reason(tmp_path):
    LiveProgress(tmp_path, 0).check(S, {}, ())
    payload = json.loads((tmp_path / "live.json").read_text())
    assert payload["energy_j"] == {"total": None}
    assert "not known" in payload["outlook"]["reason"]


def test_budgets_are_watched_by_what_is_counted(tmp_path):
    progress = LiveProgress(tmp_path, 0, budgets=[parse_budget("6kJ:stop")])
    foreseen, exceeded = follow(progress, 4)
    assert (foreseen.state, exceeded.state) == ("foreseen", "exceeded")
    assert exceeded.stop
    assert "after 30.0 s" in exceeded.message


def test_what_the_starting_process_found_is_known(tmp_path):
    progress = LiveProgress(tmp_path, 0, budgets=[parse_budget("1s:stop")])
    message = {"budget": "1s:stop", "state": "exceeded", "stop": True, "message": "enough"}
    assert progress.on_budget(message).message == "enough"
    assert progress.check(2 * S, {}, (), ended=True) == []


def test_a_folder_that_cannot_be_written_costs_the_view_alone(tmp_path):
    progress = LiveProgress(tmp_path / "gone", 0, budgets=[parse_budget("1s")])
    assert len(progress.check(2 * S, {}, ())) == 1

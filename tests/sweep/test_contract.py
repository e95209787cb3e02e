"""A sweep written and read: the same again, and nothing that is none."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.data import Energy, Source
from joulewise.data.sweeps import Setting, Sweep, Trial, TrialState, Work
from joulewise.sweep.stored_sweeps import as_line, as_text, from_json
from tests.helpers.fake_runner import setting

NUMBERS = st.floats(0, 1e12)
TEXT = st.text(max_size=8)
MAYBE = st.none() | NUMBERS
VALUES = st.none() | NUMBERS | TEXT
SETTINGS = st.dictionaries(TEXT, VALUES, max_size=4).map(Setting.of)
ENERGIES = st.dictionaries(
    TEXT,
    st.builds(Energy, NUMBERS, NUMBERS, NUMBERS, st.sampled_from(Source)),
    max_size=2,
)
TRIALS = st.builds(
    Trial,
    setting=SETTINGS,
    block=st.integers(-1, 10**6),
    state=st.sampled_from(TrialState),
    lane=st.integers(0, 16),
    look_s=MAYBE,
    run=st.none() | TEXT,
    gpu=TEXT,
    host=TEXT,
    start_wall_ns=st.integers(0, 2**63),
    attempts=st.integers(1, 9),
    time_s=MAYBE,
    energy=ENERGIES,
    spans=st.dictionaries(
        TEXT, st.builds(Work, st.integers(0, 10**9), NUMBERS, ENERGIES), max_size=2
    ),
    capped=MAYBE,
    clock_mhz=MAYBE,
    temperature_c=MAYBE,
    warnings=st.lists(TEXT, max_size=2).map(tuple),
    exit_code=st.none() | st.integers(-64, 255),
    reason=TEXT,
    log_tail=TEXT,
)
JSON = st.dictionaries(TEXT, st.integers() | TEXT | st.lists(NUMBERS, max_size=2), max_size=3)
SWEEPS = st.builds(
    Sweep,
    id=TEXT,
    asked=JSON,
    seed=st.integers(0, 2**64),
    reference=SETTINGS,
    settings=st.lists(SETTINGS, max_size=3).map(tuple),
    trials=st.lists(TRIALS, max_size=3).map(tuple),
    name=TEXT,
    state=st.sampled_from(["running", "finished"]),
    start_wall_ns=st.integers(0, 2**63),
    gpu_name=TEXT,
    limits_w=st.none() | st.tuples(NUMBERS, NUMBERS, NUMBERS),
    sure=JSON,
)


def written(sweep):
    return json.loads(as_text(sweep))


@given(SWEEPS)
def test_a_sweep_read_back_is_the_same(sweep):
    assert from_json(written(sweep)) == sweep


@given(SWEEPS)
def test_lines_that_are_known_are_not_written_again(sweep):
    assert as_text(sweep, [as_line(trial) for trial in sweep.trials]) == as_text(sweep)


def a_sweep(**more):
    trial = Trial(setting(150.0), 0, TrialState.DONE, **more)
    return Sweep("a", {}, 0, setting(None), (setting(150.0),), (trial,), limits_w=(1, 2, 3))


def test_a_setting_reads_as_in_the_design():
    payload = written(a_sweep())
    assert payload["reference"] == {"power_limit_w": None}
    assert payload["trials"][0]["setting"] == {"power_limit_w": 150.0}
    assert (payload["format"], payload["trials"][0]["state"]) == (1, "done")


def test_what_a_newer_joulewise_added_is_passed_over():
    payload = written(a_sweep())
    payload["new"] = payload["trials"][0]["new"] = [1]
    assert from_json(payload) == a_sweep()


def test_joules_that_are_no_number_are_left_out():
    lost = Energy(math.nan, 1, 1, Source.MEASURED)
    known = Energy(5.0, 1, 1, Source.MEASURED)
    works = {"step": Work(2, 3.0, {"gpu": lost}), "epoch": Work(1, math.inf, {"gpu": known})}
    sweep = a_sweep(time_s=math.nan, energy={"gpu": known, "rest": lost}, spans=works)
    (trial,) = from_json(written(sweep)).trials
    assert trial.energy == {"gpu": known}
    assert trial.spans == {"step": Work(2, 3.0)}
    assert trial.time_s is None


def without(name):
    return {key: value for key, value in written(a_sweep()).items() if key != name}


@pytest.mark.parametrize(
    "reported",
    [
        [],
        {},
        {"format": 1},
        without("reference"),
        {**written(a_sweep()), "format": 2},
        {**written(a_sweep()), "trials": {}},
        {**written(a_sweep()), "settings": [5]},
        {**written(a_sweep()), "reference": {"a": [1]}},
        {**written(a_sweep()), "reference": {"a": True}},
        {**written(a_sweep()), "limits_w": [1, 2]},
        {**written(a_sweep()), "trials": [{"setting": {}, "block": 0, "state": "odd"}]},
        {**written(a_sweep()), "trials": [{"setting": {}, "block": "0", "state": "done"}]},
    ],
)
def test_what_is_no_sweep_is_refused(reported):
    with pytest.raises(ValueError, match=r"not a sweep|odd"):
        from_json(reported)

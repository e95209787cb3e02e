"""tuning.json is the same when it is read back, and its JSON is the design's."""

import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.data import tuning as t
from joulewise.data.codec import decode, encode
from joulewise.data.sweeps import Setting

NUMBERS = st.floats(-1e9, 1e9)
MAYBE = st.none() | NUMBERS
COUNTS = st.integers(0, 10**9)
TEXT = st.text(max_size=6)
SETTINGS = st.dictionaries(st.sampled_from(["power_limit_w", "sm_clock_mhz"]), MAYBE).map(
    Setting.of
)
ESTIMATES = st.builds(t.StepEstimate, NUMBERS, MAYBE, MAYBE)
SHARES = st.builds(t.SavedShare, NUMBERS, NUMBERS)


def few(strategy):
    return st.lists(strategy, max_size=2).map(tuple)


TUNINGS = st.builds(
    t.Tuning,
    metric=TEXT,
    axes=few(TEXT),
    state=st.sampled_from(t.TuningState),
    settled=st.booleans(),
    reason=TEXT,
    reference=SETTINGS,
    chosen=st.none() | SETTINGS,
    devices=few(TEXT),
    max_slowdown=MAYBE,
    step_source=st.none() | st.sampled_from(t.StepSource),
    steps_to_settle=st.none() | COUNTS,
    time_to_settle_s=MAYBE,
    probability=MAYBE,
    tried=few(st.builds(t.SettingSteps, SETTINGS, COUNTS, ESTIMATES, ESTIMATES)),
    saving=st.none() | st.builds(t.Saving, SHARES, SHARES, TEXT, COUNTS),
    exploration=st.none() | st.builds(t.Exploration, COUNTS, NUMBERS, MAYBE, MAYBE, MAYBE),
    changes=few(st.builds(t.TuningRestart, NUMBERS, TEXT)),
    phases=few(
        st.builds(
            t.TuningPhase,
            st.sampled_from(t.TuningState),
            st.none() | SETTINGS,
            NUMBERS,
            NUMBERS,
            COUNTS,
        )
    ),
    fitted=few(st.builds(t.FittedSetting, SETTINGS, ESTIMATES, ESTIMATES)),
    program_metrics=few(
        st.builds(t.ProgramMetric, TEXT, ESTIMATES, ESTIMATES, ESTIMATES, st.none() | st.booleans())
    ),
    notes=few(TEXT),
)
SMALL = t.Tuning(
    "edp",
    ("power_limit_w",),
    t.TuningState.EXPLORING,
    False,
    "",
    Setting.of({"power_limit_w": 300}),
)


@given(TUNINGS)
def test_it_is_the_same_when_read_back(tuning):
    written = json.loads(json.dumps(encode(tuning)))
    assert decode(t.Tuning, written) == tuning


@given(TUNINGS)
def test_its_json_has_the_keys_of_the_design(tuning):
    payload = json.loads(json.dumps(t.tune_json(tuning), allow_nan=False))
    assert list(payload) == [
        *("metric", "axes", "settled", "reason", "chosen", "reference", "tried", "saving"),
        *("exploration", "changes", "step_source", "program_metrics", "early_end"),
    ]
    for tried in payload["tried"]:
        assert set(tried) == {"settings", "steps", "step_time_s", "step_energy_j"}
        assert set(tried["step_time_s"]) == {"mean", "low", "high"}
    if payload["saving"]:
        assert set(payload["saving"]) == {"energy", "time", "method", "pairs"}
        assert set(payload["saving"]["energy"]) == {"value", "error"}
    if payload["exploration"]:
        assert set(payload["exploration"]) == {"steps", "time_s", "energy_j"}
    assert all(set(change) == {"at_s", "reason"} for change in payload["changes"])


def test_nothing_known_yet_is_null():
    payload = t.tune_json(SMALL)
    assert payload["chosen"] is payload["saving"] is payload["exploration"] is None
    assert payload["reference"] == {"power_limit_w": 300}


def test_a_setting_is_an_object_of_its_axes():
    chosen = replace(SMALL, chosen=Setting.of({"power_limit_w": 200, "sm_clock_mhz": None}))
    assert t.tune_json(chosen)["chosen"] == {"power_limit_w": 200, "sm_clock_mhz": None}


def test_a_number_that_is_none_is_written_as_null():
    odd = replace(SMALL, exploration=t.Exploration(3, 1.5, float("nan")))
    assert t.tune_json(odd)["exploration"]["energy_j"] is None


def test_a_damaged_file_is_refused():
    written = encode(SMALL) | {"state": "asleep"}
    with pytest.raises((ValueError, msgspec.ValidationError), match="state"):
        decode(t.Tuning, written)

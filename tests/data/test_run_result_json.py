"""The JSON of a run: as the design says it, and the same again when it is read back."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.data import (
    Energy,
    Excluded,
    QualityWarning,
    RunResult,
    Source,
    Span,
    SpanResult,
    Use,
    WarningCode,
)
from joulewise.data.codec import encode
from joulewise.data.run_result_json import as_json, from_json

DAY_NS = 86_400 * 10**9
JOULES = st.floats(0, 1e12)
TEXT = st.text(max_size=8)
MAYBE_W = st.none() | st.floats(0, 1e5)
ENERGIES = st.builds(Energy, JOULES, JOULES, JOULES, st.sampled_from(Source))
USES = st.just(Use(None)) | st.builds(
    Use, ENERGIES, st.none() | ENERGIES, MAYBE_W, MAYBE_W, st.none() | JOULES, st.none() | JOULES
)
DEVICES = st.dictionaries(st.sampled_from(["gpu0", "gpu1", "cpu0", "dram0"]), USES)
START_NS = 5 * DAY_NS


def spans(name):
    times = st.integers(START_NS, START_NS + 30 * DAY_NS)
    return st.builds(
        Span,
        name,
        st.none() | st.integers(0, 10**9),
        times,
        times,
        st.integers(0, 2**22),
        st.none() | st.integers(1, 1000),
        st.booleans(),
    )


def span_results(name):
    return st.builds(SpanResult, spans(name), st.none() | ENERGIES, DEVICES)


WHOLE = st.builds(
    SpanResult,
    st.integers(0, 30 * DAY_NS).map(lambda ns: Span("run", None, START_NS, START_NS + ns)),
    st.none() | ENERGIES,
    DEVICES,
)
RESULTS = st.builds(
    RunResult,
    id=TEXT,
    exit_code=st.none() | st.integers(0, 255),
    state=st.sampled_from(["recording", "complete", "stopped", "killed"]),
    start_monotonic_ns=st.just(START_NS),
    start_wall_ns=st.none() | st.integers(0, 2**62),
    run=WHOLE,
    spans=st.lists(span_results(TEXT), max_size=3).map(tuple),
    counted=st.lists(TEXT, max_size=3).map(tuple),
    excluded=st.lists(st.builds(Excluded, TEXT, TEXT), max_size=3).map(tuple),
    warnings=st.lists(
        st.builds(
            QualityWarning,
            st.sampled_from(WarningCode),
            TEXT,
            TEXT,
            st.none() | TEXT,
            st.none() | TEXT,
        ),
        max_size=3,
    ).map(tuple),
    details=st.dictionaries(TEXT, st.integers() | TEXT | st.lists(st.integers()), max_size=3),
)


@given(RESULTS)
def test_a_result_read_back_is_the_same(result):
    assert from_json(json.loads(json.dumps(as_json(result), allow_nan=False))) == result


def a_result():
    gpu = Use(Energy(1000.0, 3.0, 4.0, Source.MEASURED), None, 100.0, 250.0, 1000.0, 990.0)
    epoch = Span("epoch", 0, START_NS + 10**9, START_NS + 3 * 10**9, 42, 5)
    uses = {"gpu0": gpu, "gpu1": Use(None)}
    return RunResult(
        "20261116-003512-7f3a",
        0,
        "complete",
        START_NS,
        SpanResult(Span("run", None, START_NS, START_NS + 10 * 10**9), gpu.energy, uses),
        (SpanResult(epoch, gpu.energy, uses),),
        ("gpu0",),
        (Excluded("gpu1", "cannot be read"),),
        (QualityWarning(WarningCode.GAP, "no reading for 2.1 s", "look", "gpu0"),),
        {"rate": math.nan},
    )


def test_the_shape_is_the_one_of_the_design():
    payload = as_json(a_result())
    assert payload["id"] == "20261116-003512-7f3a"
    assert payload["exit_code"] == 0
    assert payload["start_monotonic_ns"] == START_NS
    assert payload["start_wall_ns"] is None
    assert payload["time_s"] == 10
    assert payload["energy_j"]["total"] == {
        "value": 1000.0,
        "error": 5.0,  # error² = error_sampling² + error_gain²
        "error_sampling": 3.0,
        "error_gain": 4.0,
        "source": "measured",
        "at_least": False,
    }
    assert payload["energy_j"]["gpu0"].items() >= payload["energy_j"]["total"].items()
    assert payload["energy_j"]["gpu1"] is None
    (span,) = payload["spans"]
    assert (span["name"], span["index"], span["start_s"], span["end_s"]) == ("epoch", 0, 1, 3)
    assert span["energy_j"].keys() == {"total", "gpu0", "gpu1"}
    assert payload["counted"] == ["gpu0"]
    assert payload["excluded"] == [{"device": "gpu1", "reason": "cannot be read"}]
    (warning,) = payload["warnings"]
    assert warning.keys() == {"code", "message", "hint", "device", "span"}
    assert warning["code"] == "gap"


def test_a_lower_bound_is_marked_and_an_older_result_has_none():
    part = Energy(80.0, 3.0, 4.0, Source.MEASURED, at_least=True)
    result = replace(a_result(), run=replace(a_result().run, total=part))
    payload = as_json(result)
    assert payload["energy_j"]["total"]["at_least"] is True
    assert from_json(payload).run.total == part
    del payload["energy_j"]["total"]["at_least"]
    assert from_json(payload).run.total == replace(part, at_least=False)


def test_what_counts_and_has_no_energy_is_missing():
    result = replace(a_result(), counted=("gpu0", "gpu1"), excluded=())
    assert result.missing == ("gpu1",)
    assert from_json(as_json(result)).missing == ("gpu1",)


def test_simulated_devices_are_named_whether_they_count_or_can_be_read_or_not():
    lost = {"devices": {"gpu1": {"is_simulated": True}}}
    result = replace(a_result(), details=lost)
    assert as_json(result)["simulated"] == ["gpu1"]
    assert result.simulated_counted == ()
    counted = replace(result, counted=("gpu0", "gpu1"), excluded=())
    assert from_json(as_json(counted)).simulated_counted == ("gpu1",)
    assert a_result().simulated == ()


def test_what_is_no_number_is_null():
    assert as_json(a_result())["details"] == {"rate": None}
    assert encode({"a": [1.5, math.inf, {"b": -math.inf}]}) == {"a": [1.5, None, {"b": None}]}


@pytest.mark.parametrize(
    "payload",
    [{}, {"format": 1}, [], {**as_json(a_result()), "format": 2}, {"format": 1, "id": []}],
)
def test_what_is_no_result_is_refused(payload):
    with pytest.raises(ValueError, match="result"):
        from_json(payload)


class TestNetTotal:
    def payload(self, *nets):
        """Of so many GPUs, beside a CPU that has no baseline."""
        energy = Energy(1000.0, 3.0, 4.0, Source.MEASURED)
        uses = {f"n1/gpu{i}": Use(energy, net) for i, net in enumerate(nets)}
        uses["n1/cpu0"] = Use(energy)
        whole = SpanResult(Span("run", None, START_NS, START_NS), energy, uses)
        result = RunResult("a", 0, "complete", START_NS, whole, counted=tuple(uses))
        return as_json(result)["net_total"]

    def test_is_that_of_the_gpus(self):
        net = Energy(600.0, 3.0, 4.0, Source.MEASURED)
        assert self.payload(net, net)["value"] == 1200
        assert self.payload(net, net)["error"] == pytest.approx(math.hypot(5, 5))

    def test_is_none_where_one_has_no_baseline(self):
        assert self.payload(Energy(600.0, 3.0, 4.0, Source.MEASURED), None) is None
        assert self.payload() is None

    def test_is_a_lower_bound_where_one_was_not_read(self):
        net = Energy(600.0, 3.0, 4.0, Source.MEASURED)
        uses = {"gpu0": Use(net, net), "gpu1": Use(None)}
        whole = SpanResult(Span("run", None, START_NS, START_NS), net, uses)
        result = RunResult("a", 0, "complete", START_NS, whole, counted=tuple(uses))
        assert result.net_total == replace(net, at_least=True)

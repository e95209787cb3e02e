"""A comparison is told as documented."""

import json
import re
from dataclasses import replace

import pytest
from jsonschema import validate

from joulewise.compare.conditions import judge, parse_condition
from joulewise.compare.judgement import CompareOutcome, VerdictBasis
from joulewise.compare.result_json import judged_json, runs_json, sweeps_json
from joulewise.compare.runs import CompareWarningCode, compare_runs
from joulewise.compare.sweeps import compare_sweeps
from joulewise.data import Source
from tests.helpers.comparison_runs import joules, made, side
from tests.helpers.paths import DOCS
from tests.helpers.sweeps import grid

PAGE = (DOCS / "reference/compare-result.md").read_text("utf-8")
NUMBER = {"type": ["number", "null"]}
TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
SETTINGS = {"type": "object", "additionalProperties": {"type": ["number", "string", "null"]}}


def exactly(*, null=False, **properties):
    return {
        "type": ["object", "null"] if null else "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def listed(items):
    return {"type": "array", "items": items}


INTERVAL = exactly(null=True, mean=NUMBER, low=NUMBER, high=NUMBER)
OWN = exactly(null=True, mean=NUMBER, low=NUMBER, high=NUMBER, n={"type": "integer"})
COMPARED = exactly(
    quantity=TEXT,
    unit={"enum": ["J", "s", "W", "J·s"]},
    a=OWN,
    b=OWN,
    ratio=INTERVAL,
    verdict={"enum": [it.value for it in CompareOutcome]},
    basis={"enum": [None, *(it.value for it in VerdictBasis)]},
    reason={"type": ["string", "null"]},
)
CAUTIONS = listed(
    exactly(code={"enum": [it.value for it in CompareWarningCode]}, message=TEXT, hint=TEXT)
)
SIDE = exactly(
    name=TEXT, runs=TEXTS, simulated=TEXTS, left_out=listed(exactly(run=TEXT, reason=TEXT))
)
COUNTS = listed({"type": "integer"})
WORK = exactly(
    per={"enum": ["run", "epoch", "step", "sample"]},
    same={"type": ["boolean", "null"]},
    unit={"enum": [None, "epoch", "step", "sample"]},
    a=COUNTS,
    b=COUNTS,
)
RUNS = exactly(
    format={"const": 1},
    kind={"const": "runs"},
    a=SIDE,
    b=SIDE,
    work=WORK,
    quantities=listed(COMPARED),
    differences=listed(exactly(what=TEXT, a=TEXTS, b=TEXTS)),
    cautions=CAUTIONS,
)
SWEEP = exactly(
    id=TEXT,
    name=TEXT,
    gpu_name=TEXT,
    boundary={"enum": ["gpu", "node", "wall"]},
    per={"enum": ["run", "epoch", "step", "sample"]},
    simulated=listed({"enum": ["gpu", "rest"]}),
    reference=SETTINGS,
)
CHOICE = exactly(
    null=True, settings=SETTINGS, verdict=TEXT, energy_ratio=INTERVAL, time_ratio=INTERVAL
)
CHOICES = exactly(
    metric=TEXT,
    a=CHOICE,
    b=CHOICE,
    energy={**COMPARED, "type": ["object", "null"]},
    time={**COMPARED, "type": ["object", "null"]},
)
SWEEPS = exactly(
    format={"const": 1},
    kind={"const": "sweeps"},
    a=SWEEP,
    b=SWEEP,
    work=WORK,
    settings=listed(exactly(settings=SETTINGS, quantities=listed(COMPARED))),
    choices=listed(CHOICES),
    only_a=listed(SETTINGS),
    only_b=listed(SETTINGS),
    cautions=CAUTIONS,
)
CONDITION = exactly(
    condition=TEXT,
    is_the_case={"type": "boolean"},
    found=INTERVAL,
    within_noise={"type": "boolean"},
    sentence=TEXT,
)


def curve(w):
    return 100 + (300 - w) / 3, w * 90.0


def plain(reported):
    return json.loads(json.dumps(reported, allow_nan=False))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([made("1")], [made("2")]),
        ([made("1"), made("2", time_s=101.0)], [made("3")]),
        ([made("1")], [made("2", energies={}, counted=())]),
        ([made("1")], [made("2", energies={"cpu0": joules(9.0, Source.MODELLED)}, epochs=3)]),
    ],
    ids=["single runs", "groups", "no energy", "different things"],
)
def test_runs_are_told_as_documented(a, b):
    left_out = replace(side("b", *b), left_out=(("9", "it is damaged"),))
    validate(plain(runs_json(compare_runs(side("a", *a), left_out))), RUNS)


@pytest.mark.parametrize("limits", [(150, 300), (200, 250)], ids=["in common", "none in common"])
def test_sweeps_are_told_as_documented(limits):
    found = compare_sweeps(grid(curve, (150, 300), 300), grid(curve, limits, limits[-1], blocks=1))
    validate(plain(sweeps_json(found)), SWEEPS)


def test_conditions_are_told_as_documented():
    found = compare_runs(side("a", made("1")), side("b", made("2")))
    judged = [judge(parse_condition(it), found.get("time")) for it in ("time>+5%", "time>1s")]
    validate(plain(judged_json([(it, "why") for it in judged])), listed(CONDITION))


def test_every_key_and_word_is_documented():
    parts = (RUNS, SWEEPS, SIDE, WORK, SWEEP, COMPARED, OWN, CHOICE, CHOICES, CONDITION)
    keys = {key for part in parts for key in part["properties"]} | {"conditions", "finding", "what"}
    assert not keys - set(re.findall(r"`(\w+)`", PAGE))
    words = [it.value for kind in (CompareOutcome, VerdictBasis, CompareWarningCode) for it in kind]
    assert not [it for it in words if f"`{it}`" not in PAGE]

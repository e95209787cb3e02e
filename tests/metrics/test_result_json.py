import json
import re

import pytest
from jsonschema import validate

from joulewise.metrics.boundary import Training, View
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.metric import default_metrics, parse
from joulewise.metrics.result import as_json
from tests.helpers.paths import DOCS
from tests.helpers.sweeps import grid, limit, sweep

PAGE = DOCS / "reference/sweep-result.md"
NUMBER = {"type": ["number", "null"]}
INTERVAL = {
    "type": ["object", "null"],
    "properties": {"mean": NUMBER, "low": NUMBER, "high": NUMBER},
    "required": ["mean", "low", "high"],
    "additionalProperties": False,
}
INTERVALS = {"type": "object", "additionalProperties": INTERVAL}
SETTINGS = {"type": "object", "additionalProperties": {"type": ["number", "string", "null"]}}
POINT = {
    "type": "object",
    "properties": {
        "settings": SETTINGS,
        "n": {"type": "integer", "minimum": 0},
        "time_s": INTERVAL,
        "energy_j": INTERVAL,
        "energy_error_gain_j": NUMBER,
        "metrics": INTERVALS,
        "pareto": {"type": "boolean"},
        "time_ratio": INTERVAL,
        "energy_ratio": INTERVAL,
        "ratios": INTERVALS,
        "verdicts": {
            "type": "object",
            "additionalProperties": {
                "enum": ["better", "worse", "within noise", "too few runs", "reference"]
            },
        },
        "binds": {"type": ["boolean", "null"]},
        "capped": NUMBER,
        "clock_mhz": NUMBER,
        "choice": {"$ref": "#/$defs/choice"},
    },
    "required": ["settings", "n", "time_s", "energy_j", "metrics", "pareto"],
    "additionalProperties": False,
}
CHOICE = {
    "type": "object",
    "properties": {
        "settings": SETTINGS,
        "verdict": {"type": "string"},
        "recommended": SETTINGS,
        "score_ratio": INTERVAL,
        "time_ratio": INTERVAL,
        "energy_ratio": INTERVAL,
        "saved_j": INTERVAL,
        "energy_ratio_at": INTERVALS,
        "break_even_w": NUMBER,
        "band": {
            "type": ["object", "null"],
            "properties": {
                "axis": {"type": "string"},
                "low": {"type": "number"},
                "high": {"type": "number"},
                "sure": {"type": "array", "items": {"type": "number"}},
            },
            "required": ["axis", "low", "high", "sure"],
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}
SWEEP = {
    "$defs": {"point": POINT, "choice": CHOICE},
    "type": "object",
    "properties": {
        "format": {"const": 1},
        "id": {"type": "string"},
        "name": {"type": "string"},
        "gpu_name": {"type": "string"},
        "boundary": {"enum": ["gpu", "node", "wall"]},
        "per": {"enum": ["run", "epoch", "step", "sample", "training"]},
        "reference": {"$ref": "#/$defs/point"},
        "points": {"type": "array", "items": {"$ref": "#/$defs/point"}},
        "best": {"type": "object", "additionalProperties": {"$ref": "#/$defs/point"}},
        "choices": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "additionalProperties": {"$ref": "#/$defs/choice"},
            },
            "required": ["gpu", "node", "wall"],
        },
        "sources": {"type": "object", "additionalProperties": {"type": "string"}},
        "assumed": {"type": "array", "items": {"enum": ["node", "wall"]}},
        "simulated": {"type": "array", "items": {"enum": ["gpu", "rest"]}},
        "fits": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "quantity": {"enum": ["energy", "time", "edp"]},
                    "where": SETTINGS,
                    "coefficients": {"type": ["array", "null"], "minItems": 3, "maxItems": 3},
                    "r2": NUMBER,
                    "adjusted_r2": NUMBER,
                    "means_r2": NUMBER,
                    "dof": {"type": "integer"},
                    "minimum_w": NUMBER,
                    "problem": {"type": ["string", "null"]},
                },
                "additionalProperties": False,
            },
        },
        "cautions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["code", "message", "hint"],
                "maxProperties": 3,
                "additionalProperties": {"type": "string"},
            },
        },
    },
    "required": ["id", "reference", "points", "best"],
    "additionalProperties": False,
}


def result_json(of, metrics=(), view=None):
    return json.loads(json.dumps(as_json(evaluate(of, metrics, view)), allow_nan=False))


def curve(w):
    return 100 + (300 - w) / 3, w * 90.0


@pytest.mark.parametrize(
    "result",
    [
        result_json(grid(curve, range(150, 301, 25), 300, noise=0.01, capped=0.5)),
        result_json(grid(curve, range(150, 301, 25), 300, blocks=1)),
        result_json(grid(curve, (150, 300), 300), [parse("slowdown:1.1"), parse("cost:0.5")]),
        result_json(
            grid(curve, (150, 300), 300), view=View("wall", training=Training(9, look_epochs=1))
        ),
        result_json(sweep([], limit(300), [limit(150), limit(300)])),
    ],
    ids=["grid", "single runs", "ruled out", "training", "nothing"],
)
def test_a_sweep_is_told_as_documented(result):
    validate(result, SWEEP)


def test_the_words_of_the_design():
    result = result_json(grid(curve, (150, 300), 300, noise=0.01))
    assert result["id"] == "made"
    point = result["points"][0]
    assert point["settings"] == {"power_limit_w": 150}
    assert point["n"] == 5
    assert point["time_s"]["low"] < point["time_s"]["mean"] < point["time_s"]["high"]
    assert set(point["metrics"]) == {metric.name for metric in default_metrics()}
    assert result["reference"] == result["points"][1]
    best = dict(result["best"]["energy"])
    assert best.pop("choice")["verdict"] == "better"
    assert best == point


def test_a_setting_without_runs_has_null_figures():
    result = result_json(sweep([], limit(300), [limit(150), limit(300)]))
    point = result["points"][0]
    assert (point["n"], point["time_s"], point["metrics"]["edp"]) == (0, None, None)
    assert result["best"] == {}


def test_what_is_ruled_out_has_no_score():
    result = result_json(grid(curve, (150, 300), 300), [parse("slowdown:1.1")])
    point = result["points"][0]
    assert point["metrics"]["slowdown:1.1"] == {"mean": None, "low": None, "high": None}
    assert point["verdicts"]["slowdown:1.1"] == "worse"


def test_every_key_is_documented():
    page = PAGE.read_text("utf-8")
    documented = set(re.findall(r"`(\w+)`", page))
    parts = (SWEEP, POINT, CHOICE, SWEEP["properties"]["fits"]["items"], INTERVAL)
    assert not {key for part in parts for key in part["properties"]} - documented


def test_every_caution_is_documented():
    from joulewise.metrics.result import SweepWarningCode

    page = PAGE.read_text("utf-8")
    assert not [it.value for it in SweepWarningCode if f"`{it.value}`" not in page]

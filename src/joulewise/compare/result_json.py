"""A comparison as JSON: the documented form of ``--json`` (docs/reference/compare-result.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from joulewise.compare.conditions import ConditionVerdict
from joulewise.compare.judgement import ComparedQuantity
from joulewise.compare.quantities import WorkCompared
from joulewise.compare.runs import Comparison, Side
from joulewise.compare.sweeps import ChoiceComparison, SweepComparison
from joulewise.data import QualityWarning
from joulewise.data.codec import encode
from joulewise.metrics.result import Choice, SweepResult

COMPARE_RESULT_FORMAT: Final = 1  # version of the form, raised when a reader would misread it


def runs_json(compared: Comparison) -> dict[str, Any]:
    """The form of a comparison of runs."""
    return {
        "format": COMPARE_RESULT_FORMAT,
        "kind": "runs",
        "a": _side(compared.a),
        "b": _side(compared.b),
        "work": _work(compared.work),
        "quantities": [_compared(it) for it in compared.quantities],
        "differences": encode(compared.differences),
        "cautions": _warnings(compared.warnings),
    }


def sweeps_json(compared: SweepComparison) -> dict[str, Any]:
    """The form of a comparison of sweeps."""
    return {
        "format": COMPARE_RESULT_FORMAT,
        "kind": "sweeps",
        "a": _sweep(compared.a),
        "b": _sweep(compared.b),
        "work": _work(compared.work),
        "settings": [
            {
                "settings": it.setting.as_json(),
                "quantities": [_compared(each) for each in it.quantities],
            }
            for it in compared.settings
        ],
        "choices": [_choices(it) for it in compared.choices],
        "only_a": encode(compared.only_a),
        "only_b": encode(compared.only_b),
        "cautions": _warnings(compared.warnings),
    }


def judged_json(judged: Sequence[tuple[ConditionVerdict, str]]) -> list[dict[str, Any]]:
    """The verdicts on ``--fail-if`` conditions, each with the sentence that says why."""
    return [
        {
            "condition": it.condition.text,
            "is_the_case": it.is_the_case,
            "found": encode(it.found),
            "within_noise": it.within_noise,
            "sentence": sentence,
        }
        for it, sentence in judged
    ]


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "runs": [run.id for run in side.runs],
        "simulated": sorted({key for run in side.runs for key in run.result.simulated_counted}),
        "left_out": [{"run": run, "reason": why} for run, why in side.left_out],
    }


def _work(work: WorkCompared) -> dict[str, Any]:
    return {
        "per": work.per,
        "same": work.is_same,
        "unit": work.unit or None,
        "a": encode(work.a),
        "b": encode(work.b),
    }


def _sweep(result: SweepResult) -> dict[str, Any]:
    return {
        "id": result.id,
        "name": result.name,
        "gpu_name": result.gpu_name,
        "boundary": result.boundary,
        "per": result.per,
        "simulated": list(result.simulated),
        "reference": result.reference.setting.as_json(),
    }


def _compared(it: ComparedQuantity) -> dict[str, Any]:
    return {
        "quantity": it.quantity,
        "unit": it.unit,
        "a": _own_interval(it, 0),
        "b": _own_interval(it, 1),
        "ratio": encode(it.ratio),
        "verdict": it.verdict.value,
        "basis": it.basis and it.basis.value,
        "reason": it.reason or None,
    }


def _own_interval(it: ComparedQuantity, side: int) -> dict[str, Any] | None:
    interval = (it.a, it.b)[side]
    return {**encode(interval), "n": it.n[side]} if interval else None


def _choices(it: ChoiceComparison) -> dict[str, Any]:
    return {
        "metric": it.metric,
        "a": _choice(it.a),
        "b": _choice(it.b),
        "energy": it.energy and _compared(it.energy),
        "time": it.time and _compared(it.time),
    }


def _choice(choice: Choice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    return {
        "settings": choice.setting.as_json(),
        "verdict": choice.verdict.value,
        "energy_ratio": encode(choice.energy),
        "time_ratio": encode(choice.time),
    }


def _warnings(warnings: Sequence[QualityWarning]) -> list[dict[str, str]]:
    return [warning.as_summary() for warning in warnings]

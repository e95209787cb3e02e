"""A sweep's result as JSON: the documented form of ``--json`` (docs/reference/sweep-result.md)."""

from __future__ import annotations

from typing import Any, Final

from joulewise.data.contract import finite
from joulewise.metrics.result import Choice, Interval, PointResult, SweepResult

SWEEP_RESULT_FORMAT: Final = 1


def as_json(result: SweepResult) -> dict[str, Any]:
    """Numbers that JSON does not have, as an infinite score, are null."""
    told = {
        "format": SWEEP_RESULT_FORMAT,
        "id": result.id,
        "name": result.name,
        "gpu_name": result.gpu_name,
        "boundary": result.boundary,
        "per": result.per,
        "reference": _point(result.reference),
        "points": [_point(point) for point in result.points],
        "best": {
            metric: {**_point(result.point(choice.setting)), "choice": _choice(choice)}
            for metric, choice in result.best.items()
        },
        "choices": {
            boundary: {
                metric: {"settings": choice.setting.as_json(), **_choice(choice)}
                for metric, choice in chosen.items()
            }
            for boundary, chosen in result.choices.items()
        },
        "sources": dict(result.sources),
        "assumed": list(result.assumed),
        "simulated": list(result.simulated),
        "fits": [
            {
                "quantity": fit.quantity,
                "where": fit.where.as_json(),
                "coefficients": fit.coefficients,
                "r2": fit.r2,
                "adjusted_r2": fit.adjusted_r2,
                "means_r2": fit.means_r2,
                "dof": fit.dof,
                "minimum_w": fit.minimum_w,
                "problem": fit.problem or None,
            }
            for fit in result.fits
        ],
        "cautions": [
            {"code": it.code.value, "message": it.message, "hint": it.hint}
            for it in result.cautions
        ],
    }
    return {name: finite(value) for name, value in told.items()}


def interval_json(interval: Interval | None) -> dict[str, float | None] | None:
    if interval is None:
        return None
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}


def _point(point: PointResult) -> dict[str, Any]:
    return {
        "settings": point.setting.as_json(),
        "n": point.n,
        "time_s": interval_json(point.time_s),
        "energy_j": interval_json(point.energy_j),
        "energy_error_gain_j": point.gain_j,
        "metrics": {name: interval_json(score) for name, score in point.scores.items()},
        "pareto": point.pareto,
        "time_ratio": interval_json(point.time_ratio),
        "energy_ratio": interval_json(point.energy_ratio),
        "ratios": {name: interval_json(ratio) for name, ratio in point.ratios.items()},
        "verdicts": {name: verdict.value for name, verdict in point.verdicts.items()},
        "binds": point.binds,
        "capped": point.capped,
        "clock_mhz": point.clock_mhz,
    }


def _choice(choice: Choice) -> dict[str, Any]:
    band = choice.band
    return {
        "verdict": choice.verdict.value,
        "recommended": choice.recommended.as_json(),
        "score_ratio": interval_json(choice.score),
        "time_ratio": interval_json(choice.time),
        "energy_ratio": interval_json(choice.energy),
        "saved_j": interval_json(choice.saved_j),
        "energy_ratio_at": {name: interval_json(ratio) for name, ratio in choice.at.items()},
        "break_even_w": choice.break_even_w,
        "band": band
        and {"axis": band.axis, "low": band.low, "high": band.high, "sure": list(band.sure)},
    }

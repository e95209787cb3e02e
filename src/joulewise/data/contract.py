"""A run's result as JSON and back: the documented form of ``--json`` and of result.json."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from joulewise.data.devices import Source
from joulewise.data.energy import Energy
from joulewise.data.runs import (
    Caution,
    Excluded,
    RunResult,
    RunWarning,
    Span,
    SpanResult,
    Use,
)

RESULT_FORMAT: Final = 1
TOTAL: Final = "total"
_NONE: Final = type(None)
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "id": (str,),
    "state": (str,),
    "exit_code": (int, _NONE),
    "start_monotonic_ns": (int, _NONE),
    "start_wall_ns": (int, _NONE),
    "time_s": (int, float),
    "energy_j": (dict,),
    "counted": (list,),
    "excluded": (list,),
    "spans": (list,),
    "warnings": (list,),
    "outlook": (dict, _NONE),
    "details": (dict,),
}


def as_json(result: RunResult) -> dict[str, Any]:
    start_ns = result.run.span.start_ns
    return {
        "format": RESULT_FORMAT,
        "id": result.id,
        "state": result.state,
        "exit_code": result.exit_code,
        "start_monotonic_ns": result.start_monotonic_ns,
        "start_wall_ns": result.start_wall_ns,
        "time_s": result.time_s,
        "energy_j": _energies(result.run),
        "net_total": energy_json(result.net_total),
        "counted": list(result.counted),
        "simulated": list(result.simulated),
        "scopes": {key: scope.value for key, scope in result.power_scopes.items()},
        "parts": finite(result.details.get("parts", {})),
        "excluded": [{"device": out.device, "reason": out.reason} for out in result.excluded],
        "spans": [_span(span, start_ns) for span in result.spans],
        "warnings": [
            {
                "code": warning.code.value,
                "message": warning.message,
                "hint": warning.hint,
                "device": warning.device,
                "span": warning.span,
            }
            for warning in result.warnings
        ],
        "outlook": result.outlook,
        "details": finite(result.details),
    }


def from_json(told: Mapping[str, Any]) -> RunResult:
    """What :func:`as_json` made; anything else is a ValueError."""
    try:
        if told["format"] != RESULT_FORMAT:
            raise ValueError(f"a result of format {told['format']!r}")
        check_types(told)
        monotonic_ns, wall_ns = told["start_monotonic_ns"], told.get("start_wall_ns")
        start_ns: int = told["start_wall_ns"] if monotonic_ns is None else monotonic_ns
        whole = Span("run", None, start_ns, start_ns + _ns(told["time_s"]))
        return RunResult(
            id=told["id"],
            exit_code=told["exit_code"],
            state=told["state"],
            start_monotonic_ns=monotonic_ns,
            run=_uses(whole, told["energy_j"]),
            spans=tuple(_told_span(span, start_ns) for span in told["spans"]),
            counted=tuple(told["counted"]),
            excluded=tuple(Excluded(out["device"], out["reason"]) for out in told["excluded"]),
            warnings=tuple(
                RunWarning(**{**warning, "code": Caution(warning["code"])})
                for warning in told["warnings"]
            ),
            details=told["details"],
            outlook=told.get("outlook"),
            start_wall_ns=wall_ns,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no result of a run: {type(error).__name__} {error}") from None


def check_types(told: Mapping[str, Any]) -> None:
    """A ValueError where something that is there is not of its documented type."""
    for key, types in _TYPES.items():
        if key in told and not isinstance(told[key], types):
            raise ValueError(f"no result of a run: {key} is {told[key]!r}")
    if not all(isinstance(key, str) for key in told.get("counted", ())):
        raise ValueError(f"no result of a run: counted is {told['counted']!r}")
    total = told.get("energy_j", {}).get(TOTAL)
    is_energy = isinstance(total, dict) and isinstance(total.get("value"), int | float)
    if total is not None and not is_energy:
        raise ValueError(f"no result of a run: its total is {total!r}")


def finite(value: Any) -> Any:
    """The same with null where a number is none, which JSON cannot say."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def energy_json(energy: Energy | None) -> dict[str, Any] | None:
    if energy is None:
        return None
    return {
        "value": energy.value,
        "error": energy.error,
        "error_sampling": energy.error_sampling,
        "error_gain": energy.error_gain,
        "source": energy.source.value,
        "at_least": energy.at_least,
    }


def told_energy(told: Mapping[str, Any] | None) -> Energy | None:
    """What :func:`energy_json` made."""
    if told is None:
        return None
    parts = (told["value"], told["error_sampling"], told["error_gain"])
    # A result of an older joulewise does not say; its totals were of what was read.
    return Energy(*parts, Source(told["source"]), at_least=told.get("at_least", False))


def _energies(result: SpanResult) -> dict[str, Any]:
    return {
        TOTAL: energy_json(result.total),
        **{key: _use_json(use) for key, use in result.devices.items()},
    }


def _use_json(use: Use) -> dict[str, Any] | None:
    energy = energy_json(use.energy)
    return energy and {
        **energy,
        "mean_w": use.mean_w,
        "peak_w": use.peak_w,
        "net": energy_json(use.net),
        "counter_j": use.counter_j,
        "integral_j": use.integral_j,
        "read_s": use.read_s,
    }


def _span(result: SpanResult, origin_ns: int) -> dict[str, Any]:
    span = result.span
    return {
        "name": span.name,
        "index": span.index,
        "start_s": (span.start_ns - origin_ns) / 1e9,
        "end_s": (span.end_ns - origin_ns) / 1e9,
        "total": span.total,
        "closed": span.closed,
        "pid": span.pid,
        "energy_j": _energies(result),
    }


def _told_span(told: Mapping[str, Any], origin_ns: int) -> SpanResult:
    span = Span(
        told["name"],
        told["index"],
        origin_ns + _ns(told["start_s"]),
        origin_ns + _ns(told["end_s"]),
        told["pid"],
        told["total"],
        told["closed"],
    )
    return _uses(span, told["energy_j"])


def _uses(span: Span, told: Mapping[str, Any]) -> SpanResult:
    devices = {key: _use(use) for key, use in told.items() if key != TOTAL}
    return SpanResult(span, told_energy(told[TOTAL]), devices)


def _use(told: Mapping[str, Any] | None) -> Use:
    if told is None:
        return Use(None)
    return Use(
        told_energy(told),
        told_energy(told["net"]),
        told["mean_w"],
        told["peak_w"],
        told["counter_j"],
        told["integral_j"],
        told.get("read_s"),
    )


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)

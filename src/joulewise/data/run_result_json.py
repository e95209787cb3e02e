"""A run's result as JSON and back: the documented form of ``--json`` and of result.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypedDict

from joulewise.data.codec import decode, encode
from joulewise.data.energy import Energy
from joulewise.data.runs import (
    Excluded,
    QualityWarning,
    RunResult,
    Span,
    SpanResult,
    Use,
)

RESULT_FORMAT: Final = 1
"""Version of the form of result.json; a file of another one is computed again."""

TOTAL: Final = "total"
"""The key under which the sum over devices stands beside the devices' own keys."""


class _TotalTypes(TypedDict):
    value: float


class _EnergyTypes(TypedDict, total=False):
    total: _TotalTypes | None


class _ResultTypes(TypedDict, total=False):
    """Types of the keys that readers of a result rely on; any of them may be absent."""

    id: str
    state: str
    exit_code: int | None
    start_monotonic_ns: int | None
    start_wall_ns: int | None
    time_s: float
    energy_j: _EnergyTypes
    counted: list[str]
    excluded: list[Excluded]
    spans: list[Any]
    warnings: list[QualityWarning]
    outlook: dict[str, Any] | None
    details: dict[str, Any]


def as_json(result: RunResult) -> dict[str, Any]:
    """The documented form of a run's result, of plain values."""
    start_ns = result.run.span.start_ns
    return {
        "format": RESULT_FORMAT,
        "id": result.id,
        "state": result.state,
        "exit_code": result.exit_code,
        "start_monotonic_ns": result.start_monotonic_ns,
        "start_wall_ns": result.start_wall_ns,
        "time_s": result.time_s,
        "energy_j": _encode_energies(result.run),
        "net_total": encode_energy(result.net_total),
        "counted": list(result.counted),
        "simulated": list(result.simulated),
        "scopes": {key: scope.value for key, scope in result.power_scopes.items()},
        "parts": encode(result.details.get("parts", {})),
        "excluded": encode(result.excluded),
        "spans": [_encode_span(span, start_ns) for span in result.spans],
        "warnings": encode(result.warnings),
        "outlook": result.outlook,
        "details": encode(result.details),
    }


def from_json(payload: Mapping[str, Any]) -> RunResult:
    """What :func:`as_json` made; anything else is a ValueError."""
    try:
        if payload["format"] != RESULT_FORMAT:
            raise ValueError(f"a result of format {payload['format']!r}")
        result = check_result(payload)
        monotonic_ns, wall_ns = result["start_monotonic_ns"], result.get("start_wall_ns")
        # Spans are stored in seconds after the start; a group of runs has only the wall clock.
        start_ns = result["start_wall_ns"] if monotonic_ns is None else monotonic_ns
        whole = Span("run", None, start_ns, start_ns + _ns(result["time_s"]))
        return RunResult(
            id=result["id"],
            exit_code=result["exit_code"],
            state=result["state"],
            start_monotonic_ns=monotonic_ns,
            run=_decode_uses(whole, payload["energy_j"]),
            spans=tuple(_decode_span(span, start_ns) for span in result["spans"]),
            counted=tuple(result["counted"]),
            excluded=tuple(result["excluded"]),
            warnings=tuple(result["warnings"]),
            details=result["details"],
            outlook=result.get("outlook"),
            start_wall_ns=wall_ns,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not the result of a run: {type(error).__name__} {error}") from None


def check_result(payload: Any) -> Any:
    """The known keys of a result, decoded; a ValueError where one is not of its documented type."""
    try:
        return decode(_ResultTypes, payload)
    except ValueError as error:
        raise ValueError(f"not the result of a run: {error}") from None


def encode_energy(energy: Energy | None) -> dict[str, Any] | None:
    """An energy with its two errors and their sum in quadrature (``error``), in joules."""
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


def decode_energy(payload: Mapping[str, Any] | None) -> Energy | None:
    """What :func:`encode_energy` made; anything else is a ValueError.

    A result of an older joulewise has no ``at_least``: its totals were of what was read.
    """
    return None if payload is None else decode(Energy, payload)


def _encode_energies(result: SpanResult) -> dict[str, Any]:
    return {
        TOTAL: encode_energy(result.total),
        **{key: _encode_use(use) for key, use in result.devices.items()},
    }


def _encode_use(use: Use) -> dict[str, Any] | None:
    energy = encode_energy(use.energy)
    return energy and {
        **energy,
        "mean_w": use.mean_w,
        "peak_w": use.peak_w,
        "net": encode_energy(use.net),
        "counter_j": use.counter_j,
        "integral_j": use.integral_j,
        "read_s": use.read_s,
    }


def _encode_span(result: SpanResult, origin_ns: int) -> dict[str, Any]:
    span = result.span
    return {
        "name": span.name,
        "index": span.index,
        "start_s": (span.start_ns - origin_ns) / 1e9,
        "end_s": (span.end_ns - origin_ns) / 1e9,
        "total": span.total,
        "closed": span.closed,
        "pid": span.pid,
        "energy_j": _encode_energies(result),
    }


def _decode_span(payload: Mapping[str, Any], origin_ns: int) -> SpanResult:
    times_ns = {
        "start_ns": origin_ns + _ns(payload["start_s"]),
        "end_ns": origin_ns + _ns(payload["end_s"]),
    }
    return _decode_uses(decode(Span, {**payload, **times_ns}), payload["energy_j"])


def _decode_uses(span: Span, payload: Mapping[str, Any]) -> SpanResult:
    devices = {
        # In JSON the fields of an energy stand beside those of its use.
        key: Use(None) if use is None else decode(Use, {**use, "energy": use})
        for key, use in payload.items()
        if key != TOTAL
    }
    return SpanResult(span, decode_energy(payload[TOTAL]), devices)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)

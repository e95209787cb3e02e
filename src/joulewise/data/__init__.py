"""The plain classes that every layer may use."""

from __future__ import annotations

from joulewise.data.devices import (
    DeviceInfo,
    DriverSample,
    Kind,
    Knob,
    KnobInfo,
    PowerScope,
    Process,
    Quantity,
    Reading,
    SensorInfo,
    Source,
    Unavailable,
    listed_keys,
)
from joulewise.data.energy import Energy, SensorProfile, total, total_of_one
from joulewise.data.runs import (
    DOUBTFUL,
    Caution,
    Excluded,
    QualityWarningCode,
    RunResult,
    RunWarning,
    Span,
    SpanResult,
    Use,
)

__all__ = [
    "DOUBTFUL",
    "Caution",
    "DeviceInfo",
    "DriverSample",
    "Energy",
    "Excluded",
    "Kind",
    "Knob",
    "KnobInfo",
    "PowerScope",
    "Process",
    "QualityWarningCode",
    "Quantity",
    "Reading",
    "RunResult",
    "RunWarning",
    "SensorInfo",
    "SensorProfile",
    "Source",
    "Span",
    "SpanResult",
    "Unavailable",
    "Use",
    "listed_keys",
    "total",
    "total_of_one",
]

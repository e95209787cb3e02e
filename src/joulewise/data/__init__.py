"""The plain classes that every layer may use."""

from __future__ import annotations

from joulewise.data.devices import (
    DeviceInfo,
    Kind,
    Knob,
    KnobInfo,
    PowerScope,
    Process,
    Quantity,
    Reading,
    Sample,
    SensorInfo,
    Source,
    Unavailable,
    listed_keys,
)
from joulewise.data.energy import (
    Card,
    Energy,
    total,
    total_of_one,
)
from joulewise.data.runs import (
    DOUBTFUL,
    Caution,
    Excluded,
    RunResult,
    RunWarning,
    Span,
    SpanResult,
    Use,
)

__all__ = [
    "DOUBTFUL",
    "Card",
    "Caution",
    "DeviceInfo",
    "Energy",
    "Excluded",
    "Kind",
    "Knob",
    "KnobInfo",
    "PowerScope",
    "Process",
    "Quantity",
    "Reading",
    "RunResult",
    "RunWarning",
    "Sample",
    "SensorInfo",
    "Source",
    "Span",
    "SpanResult",
    "Unavailable",
    "Use",
    "listed_keys",
    "total",
    "total_of_one",
]

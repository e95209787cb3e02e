"""The plain classes that every layer may use, and their JSON.

::

    devices.py     a device: its sensors, its controls, one reading; which devices contain others
    energy.py      joules with their error and their source; what is known of a power sensor
    runs.py        a run: spans, what each device drew, warnings, the result
    sweeps.py      a sweep: settings, planned runs, trials
    jobs.py        a recurring job: its definition, its tries, its history
    tuning.py      the tuning of a run while it trains
    codec.py       data classes as plain JSON values, and back; files of older versions
    run_result_json.py  a run's result as JSON: ``--json`` and result.json
"""

from __future__ import annotations

from joulewise.data.devices import (
    ControlInfo,
    ControlKind,
    DeviceInfo,
    DriverSample,
    Kind,
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
    Excluded,
    QualityWarning,
    QualityWarningCode,
    RunResult,
    Span,
    SpanResult,
    Use,
    WarningCode,
)

__all__ = [
    "DOUBTFUL",
    "ControlInfo",
    "ControlKind",
    "DeviceInfo",
    "DriverSample",
    "Energy",
    "Excluded",
    "Kind",
    "PowerScope",
    "Process",
    "QualityWarning",
    "QualityWarningCode",
    "Quantity",
    "Reading",
    "RunResult",
    "SensorInfo",
    "SensorProfile",
    "Source",
    "Span",
    "SpanResult",
    "Unavailable",
    "Use",
    "WarningCode",
    "listed_keys",
    "total",
    "total_of_one",
]

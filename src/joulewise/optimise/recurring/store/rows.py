"""The data classes of a job as rows of the tables, and back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

from sqlalchemy.engine import Row

from joulewise.data.codec import encode
from joulewise.data.jobs import (
    JobDefinition,
    JobPolicyState,
    JobTarget,
    JobTry,
    TryOutcome,
    TryStatus,
)
from joulewise.data.sweeps import Setting

_OUTCOME_COLUMNS: Final = (
    "epochs",
    "cost",
    "epoch_cost",
    "energy_j",
    "time_s",
    "metric_value",
    "run",
    "exit_code",
)


def definition_row(definition: JobDefinition) -> dict[str, Any]:
    return {
        "name": definition.name,
        "parameter": definition.parameter,
        "parameter_values": json.dumps(definition.values),
        "default_value": definition.default,
        "target": definition.target.text,
        "max_epochs": definition.max_epochs,
        "eta": definition.eta,
        "policy": definition.policy,
        "seed": definition.seed,
        "is_open": definition.is_open,
        "metric_pattern": definition.metric_pattern,
    }


def definition_of(row: Row[Any]) -> JobDefinition:
    return JobDefinition(
        name=row.name,
        parameter=row.parameter,
        values=tuple(json.loads(row.parameter_values)),
        default=row.default_value,
        target=JobTarget.parse(row.target),
        max_epochs=row.max_epochs,
        eta=row.eta,
        policy=row.policy,
        seed=row.seed,
        is_open=row.is_open,
        metric_pattern=row.metric_pattern,
    )


def limited_definition(definition: JobDefinition, largest: int | None) -> JobDefinition:
    """A job on a GPU type for which larger values are left out; its default stays."""
    if largest is None:
        return definition
    most = max(largest, definition.default)
    return replace(definition, values=tuple(value for value in definition.values if value <= most))


def outcome_row(outcome: TryOutcome) -> dict[str, Any]:
    """The columns of a try that its outcome sets; NaN and infinity are stored as unknown."""
    row = {name: encode(getattr(outcome, name)) for name in _OUTCOME_COLUMNS}
    row["status"] = outcome.status.value
    if outcome.settings is not None:
        row["settings"] = json.dumps(encode(outcome.settings))
    return row


def try_of(row: Row[Any], job: Row[Any], now_ns: int | None = None) -> JobTry:
    """A try; with ``now_ns``, one whose lease is over has expired, before that is stored, too."""
    own = {job.parameter: row.value}
    status, ended_ns = TryStatus(row.status), row.ended_wall_ns
    if now_ns is not None and status is TryStatus.RUNNING and row.lease_ends_wall_ns < now_ns:
        status, ended_ns = TryStatus.EXPIRED, row.lease_ends_wall_ns
    return JobTry(
        key=row.key,
        job=job.name,
        recurrence=row.recurrence,
        number=row.number,
        gpu_type=row.gpu_type,
        settings=Setting.of(own | json.loads(row.settings) | own),
        budget=row.budget,
        status=status,
        max_power_w=row.max_power_w,
        host=row.host,
        started_wall_ns=row.started_wall_ns,
        ended_wall_ns=ended_ns,
        is_simulated=row.is_simulated,
        **{name: getattr(row, name) for name in _OUTCOME_COLUMNS},
    )


def policy_state_of(row: Row[Any]) -> JobPolicyState:
    return JobPolicyState(
        gpu_type=row.gpu_type,
        max_power_w=row.max_power_w,
        version=row.version,
        state=load_state(row.state),
        revision=row.revision,
        largest_value=row.largest_value,
    )


def load_state(text: str | None) -> dict[str, Any] | None:
    """The state of a policy; None where there is none, or where it is no JSON object."""
    try:
        state = json.loads(text or "null")
    except ValueError:
        return None
    return state if isinstance(state, dict) else None

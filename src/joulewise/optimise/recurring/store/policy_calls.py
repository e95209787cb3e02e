"""Calls of a job's policy, which may be anybody's plug-in: restored, told, asked, saved.

A policy is told of an outcome in the transaction that saves its new state, at the next ``ask``:
an outcome that is stored is therefore told exactly once, whoever is killed in between, and a policy
that raises loses nothing.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from joulewise.data.jobs import JobDefinition, JobTry, TryStatus
from joulewise.errors import PolicyError
from joulewise.optimise.recurring.policy.interface import (
    EarlierObservation,
    PolicyFactory,
    RecurringPolicy,
)
from joulewise.optimise.recurring.policy_plugins import (
    PLUGIN_ERRORS,
    describe_error,
    policy_error,
)
from joulewise.optimise.recurring.store.rows import load_state

_RESULTS: Final = {TryStatus.REACHED, TryStatus.MISSED, TryStatus.STOPPED_EARLY}


@dataclass(frozen=True)
class PolicyInputs:
    """All that a policy is made from.

    - ``state``, ``version``: what it saved last; None for a new one
    - ``untold``: the tries on its GPU type that do not stand as it knows them: those that have
      ended since, in that order, and then those that run without having been asked for
    - ``in_flight``: the keys of those that are in flight, as far as it knows
    - ``load_tries``: all tries of the job, those that ended in that order; called where the state
      is not enough
    """

    definition: JobDefinition
    gpu_type: str
    max_power_w: float
    state: str | None
    version: int | None
    untold: tuple[JobTry, ...]
    in_flight: frozenset[str]
    load_tries: Callable[[], tuple[JobTry, ...]]


def current_policy(
    factory: PolicyFactory, inputs: PolicyInputs, warn: Callable[[str], None]
) -> RecurringPolicy:
    """The policy as it was saved, and told of what has ended since.

    Where its state is damaged or of a version that it does not know, or where it can no longer be
    told, it is made again and told of all tries in order, and ``warn`` says so. Raises PolicyError.
    """
    problem = ""
    if inputs.state is not None:
        try:
            return _restored(factory, inputs)
        except PLUGIN_ERRORS as error:
            problem = describe_error(error)
    tries = inputs.load_tries()
    try:
        policy = _rebuilt(factory, inputs, tries)
    except PLUGIN_ERRORS as error:
        raise policy_error(inputs.definition, error) from error
    if problem:
        warn(
            f"what the policy of job {inputs.definition.name} had learned cannot be used "
            f"({problem}): it is learned again from the tries of the job"
        )
    return policy


def ask_policy(policy: RecurringPolicy, definition: JobDefinition) -> tuple[int, float | None]:
    """The value to try and the budget, None for no limit; a PolicyError where it has none."""
    try:
        value, budget = policy.ask()
        value, budget = int(value), float(budget)
    except PLUGIN_ERRORS as error:
        raise policy_error(definition, error) from error
    if value not in definition.values:
        raise PolicyError(
            f"the policy {definition.policy} asked for {definition.parameter} {value}, "
            f"which job {definition.name} does not have",
            "report this to who wrote the policy, or choose another one with --policy",
        )
    return value, budget if math.isfinite(budget) else None


def save_state(
    factory: PolicyFactory, policy: RecurringPolicy, definition: JobDefinition
) -> tuple[str, int]:
    """The state of a policy as it is stored, and its version."""
    try:
        return json.dumps(policy.state()), operator.index(factory.state_version)
    except PLUGIN_ERRORS as error:
        raise policy_error(definition, error) from error


def _restored(factory: PolicyFactory, inputs: PolicyInputs) -> RecurringPolicy:
    state = load_state(inputs.state)
    if state is None or inputs.version is None:
        raise ValueError("it is damaged")
    policy = factory.restore(state, inputs.version)
    _tell(policy, inputs.definition, inputs.untold, inputs.in_flight)
    return policy


def _rebuilt(
    factory: PolicyFactory, inputs: PolicyInputs, tries: Sequence[JobTry]
) -> RecurringPolicy:
    definition = inputs.definition
    own = [each for each in tries if each.gpu_type == inputs.gpu_type]
    policy = factory(
        batch_sizes=definition.values,
        default=definition.default,
        max_power_w=inputs.max_power_w,
        eta=definition.eta,
        max_epochs=definition.max_epochs,
        seed=definition.seed,
        earlier=[
            EarlierObservation(
                batch_size=_value(definition, each),
                reached=each.status is TryStatus.REACHED,
                epochs=each.epochs,
                epoch_cost=each.epoch_cost,
            )
            for each in tries
            if each.gpu_type != inputs.gpu_type
            and _says_something(each)
            and each.epochs
            and each.epoch_cost
            if _value(definition, each) in definition.values
        ],
    )
    _tell(policy, definition, own, frozenset())
    return policy


def _tell(
    policy: RecurringPolicy,
    definition: JobDefinition,
    tries: Sequence[JobTry],
    in_flight: frozenset[str],
) -> None:
    """Tell a policy how tries stand, of which it has those ``in_flight`` in flight."""
    for each in tries:
        value = _value(definition, each)
        is_running = each.status is TryStatus.RUNNING
        if value not in definition.values:  # it was limited since
            continue
        if each.key not in in_flight:
            if not is_running and not _says_something(each):
                continue
            policy.start(value)
        if not is_running:
            _end(policy, value, each)


def _end(policy: RecurringPolicy, value: int, job_try: JobTry) -> None:
    if job_try.status is TryStatus.CRASHED:
        policy.crash(value)
    elif _says_something(job_try):
        policy.tell(
            value,
            reached=job_try.status is TryStatus.REACHED,
            epochs=job_try.epochs or 0,
            cost=job_try.cost or 0.0,
            epoch_cost=job_try.epoch_cost or 0.0,
        )
    else:
        policy.cancel(value)


def _says_something(job_try: JobTry) -> bool:
    """Whether a try that ended says something of its value: not where it failed or was lost."""
    numbers = (job_try.epochs, job_try.cost, job_try.epoch_cost)
    is_measured = job_try.status in _RESULTS and all(number is not None for number in numbers)
    return job_try.status is TryStatus.CRASHED or (is_measured and bool(job_try.epochs))


def _value(definition: JobDefinition, job_try: JobTry) -> int:
    return int(str(job_try.settings[definition.parameter]))

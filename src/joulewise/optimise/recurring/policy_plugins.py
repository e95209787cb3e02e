"""The policy of a job, which may be anybody's plug-in: found by its name, and its errors in a line.

Where it cannot be loaded, or raises, the job goes on at its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from joulewise.data.jobs import JobDefinition
from joulewise.errors import JoulewiseError, PolicyError, UsageError
from joulewise.metrics.result import Interval
from joulewise.optimise.recurring.policy.interface import BatchSizeBelief
from joulewise.optimise.recurring.policy.plugins import load_policy

if TYPE_CHECKING:
    from joulewise.optimise.recurring.policy.interface import PolicyFactory, RecurringPolicy

PLUGIN_ERRORS: Final = (Exception, SystemExit)
"""What a plug-in may raise: sys.exit() in it must not end the command, either."""


def find_policy(name: str) -> PolicyFactory:
    """The factory of the policies of this name; a UsageError where there is none.

    One that cannot be loaded, such as after an update of its package, fails when it is asked.
    """
    try:
        return load_policy(name)
    except UsageError:
        raise
    except JoulewiseError as error:
        return _UnloadablePolicy(error)


def list_beliefs(policy: RecurringPolicy, definition: JobDefinition) -> tuple[BatchSizeBelief, ...]:
    """What a policy believes; a PolicyError where it raises, or returns something else."""
    try:
        beliefs = tuple(policy.beliefs())
        for belief in beliefs:
            _check_belief(belief)
    except PLUGIN_ERRORS as error:
        raise policy_error(definition, error, " to say what it believes") from error
    return beliefs


def _check_belief(belief: object) -> None:
    if not isinstance(belief, BatchSizeBelief):
        raise TypeError(f"a belief is of type {type(belief).__name__}, not BatchSizeBelief")
    intervals = (belief.reached_share, belief.epochs, belief.cost)
    if belief.reached_share is None or not all(
        one is None or isinstance(one, Interval) for one in intervals
    ):
        raise TypeError("a belief has something else in place of an Interval")
    float(belief.probability_best)


def policy_error(definition: JobDefinition, error: BaseException, what: str = "") -> PolicyError:
    """One line on what a policy raised, wherever it was."""
    return PolicyError(
        f"the policy {definition.policy} of job {definition.name} failed{what}: "
        f"{describe_error(error)}",
        "report this to who wrote the policy, or choose another one with --policy",
    )


def describe_error(error: BaseException) -> str:
    """The type and the text of an error in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _UnloadablePolicy:
    """Stands for a policy whose package cannot be imported."""

    state_version = 0

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __call__(self, **_: Any) -> RecurringPolicy:
        raise self._error

    def restore(self, state: Mapping[str, Any], version: int) -> RecurringPolicy:  # noqa: ARG002
        raise self._error

"""The policy of a job, also where its package cannot be loaded: the job goes on at its default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from joulewise.errors import JoulewiseError, UsageError
from joulewise.optimise.recurring.policy.plugins import load_policy

if TYPE_CHECKING:
    from joulewise.optimise.recurring.policy.interface import PolicyFactory, RecurringPolicy


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


class _UnloadablePolicy:
    """Stands for a policy whose package cannot be imported."""

    state_version = 0

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __call__(self, **_: Any) -> RecurringPolicy:
        raise self._error

    def restore(self, state: Mapping[str, Any], version: int) -> RecurringPolicy:  # noqa: ARG002
        raise self._error

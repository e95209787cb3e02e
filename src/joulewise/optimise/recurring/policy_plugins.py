"""The policy of a job, which may be anybody's plug-in: found by its name, and its errors in a line.

Where it cannot be loaded, or raises, the job goes on at its default.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from joulewise.data.jobs import JobDefinition
from joulewise.errors import JoulewiseError, PolicyError, UsageError
from joulewise.metrics.result import Interval
from joulewise.optimise.recurring.policy.interface import BatchSizeBelief
from joulewise.optimise.recurring.policy.plugins import load_policy

if TYPE_CHECKING:
    from joulewise.optimise.recurring.policy.interface import PolicyFactory, RecurringPolicy

LIMIT_S: Final = 60.0
"""How long a policy may take for an answer (chosen). Meanwhile nobody else can ask it, nor use the
SQLite file. Doubled, a PostgreSQL server would end its transaction first."""

_AT_ONCE_S: Final = 1e-3  # a timer of 0 s would be none
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


class _OverdueError(BaseException):
    """No plug-in catches it, as it would an Exception."""


@contextmanager
def limit_time(definition: JobDefinition) -> Iterator[None]:
    """End the calls of a policy with a PolicyError after LIMIT_S.

    They are interrupted in the main thread, where alone a signal can do that; elsewhere, and inside
    of compiled code, the error comes when they return.
    """

    def interrupt(*_: object) -> None:
        raise _OverdueError

    overdue = PolicyError(
        f"the policy {definition.policy} of job {definition.name} did not answer within "
        f"{LIMIT_S:g} s",
        "report this to who wrote the policy, or choose another one with --policy",
    )
    begin_s = time.monotonic()
    try:
        with _alarm(LIMIT_S, interrupt):
            yield
    except _OverdueError:
        raise overdue from None
    if time.monotonic() - begin_s > LIMIT_S:
        raise overdue


@contextmanager
def _alarm(after_s: float, handler: Callable[..., None]) -> Iterator[None]:
    """Call a handler by SIGALRM, in the main thread; a timer of somebody else goes on after it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    begin_s = time.monotonic()
    handler_before = signal.signal(signal.SIGALRM, handler)
    left_s, period_s = signal.setitimer(signal.ITIMER_REAL, after_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler_before)
        if left_s:
            left_s = max(left_s - (time.monotonic() - begin_s), _AT_ONCE_S)
            signal.setitimer(signal.ITIMER_REAL, left_s, period_s)


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

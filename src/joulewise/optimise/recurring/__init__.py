"""Recurring jobs: learns from the trainings that come back which batch size costs least.

- ``policy/``: which batch size to try next, and up to what cost
- ``store/``: the database of jobs, their tries, and the states of their policies

One recurrence of a job, as ``joulewise job run`` makes it:

- ``job_definition``: what the job is, by the options and by what is stored
- ``job_hardware``: the GPUs that it trains on, and their maximum power
- ``recurrence``: asks, runs a try, tells; again where the target was missed
- ``try_runner``: one try: the command, tuned while it runs, and what became of it
- ``try_watch``: follows its epochs and its metric, and ends it early; ``target_progress`` judges
- ``try_cost``: what it cost, up to the target
- ``try_output``: what it writes, and the metric in that
- ``out_of_memory``: whether it ended because its batch does not fit; ``memory_search``: what does
- ``heartbeat``: tells the store that it is alive
- ``untold_outcomes``: kept for a store that could not be reached
- ``policy_plugins``: the policy by its name, also where it cannot be loaded
- ``job_standing``: where a job stands: the best so far, and what it saves

After recurrences: ``job_standing`` says what is best by now, ``job_saving`` what was saved so far.

Each name is imported at its first use, as a policy loads numpy: so do all verbs that ask one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joulewise.optimise.recurring.policy.batch_size_policy import make_policy
    from joulewise.optimise.recurring.policy.interface import (
        BatchSizeBelief,
        EarlierObservation,
        PolicyFactory,
        RecurringPolicy,
    )
    from joulewise.optimise.recurring.policy.plugins import load_policy

__all__ = [
    "BatchSizeBelief",
    "EarlierObservation",
    "PolicyFactory",
    "RecurringPolicy",
    "load_policy",
    "make_policy",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES.get(name, "policy.interface")
    return getattr(import_module(f"{__name__}.{module}"), name)


_MODULES = {
    "load_policy": "policy.plugins",
    "make_policy": "policy.batch_size_policy",
}

"""Tuning of a training while it runs: finds the best power limit or clock, and holds it.

Read in this order. What is tuned, and how it is chosen, without a clock or a GPU:

- ``candidates``: the settings that may be tried on the GPUs of a job
- ``policy/``: which setting to try next, for how many steps, and when to settle

From the steps of a job to the policy and back, with the time told:

- ``tuning_options``: what the user asked for, and what the sensor needs
- ``blocks``: clean steps at one setting, put together until the sensor can measure them
- ``controller``: the state machine: steps and energies in, the wanted setting out
- ``savings``: what the choice saves against the reference, by blocks at both in turn
- ``tuning_record``: the account of it all, as tuning.json has it

Beside a running command:

- ``tuner_client``: the tuner as the process that starts the command sees it
- ``tuner_process``: the tuner itself: it moves steps to the controller, and settings to the GPUs
- ``steps``: follows the steps that the program marks
- ``progress``: steps by the lines of its output, for ``--progress``
- ``unmarked_steps``: which of these, or of what the GPUs show, the steps are taken from
- ``load_signal``: steps by the period of the power, or by the activity of the GPUs
- ``earlier_runs``: what earlier runs of the command took at each setting
- ``step_energy``: the energy of steps, from the readings of the recorder
- ``setting_lease``: one setting on all GPUs of the job, changed while it is held
- ``tuned_measurement``: ``joulewise.tune()``, the same for a block of the user's own program

Each name is imported at its first use: the front process loads no numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from joulewise.optimise.live.policy.choice import (
        EarlierMean,
        FittedPoint,
        SettledReason,
        TriedSetting,
        TuningChange,
        TuningChoice,
    )
    from joulewise.optimise.live.policy.one_axis_policy import make_policy
    from joulewise.optimise.live.policy.response_model import TuningCandidate
    from joulewise.optimise.live.policy.tuning_policy import TuningPolicy

__all__ = [
    "EarlierMean",
    "FittedPoint",
    "SettledReason",
    "TriedSetting",
    "TuningCandidate",
    "TuningChange",
    "TuningChoice",
    "TuningPolicy",
    "make_policy",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES.get(name, "policy.choice")
    return getattr(import_module(f"{__name__}.{module}"), name)


_MODULES = {
    "TuningCandidate": "policy.response_model",
    "TuningPolicy": "policy.tuning_policy",
    "make_policy": "policy.one_axis_policy",
}

"""The policy of live tuning over the values of one control, in the form that is judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from joulewise.optimise.live.policy.response_model import TuningCandidate
from joulewise.optimise.live.policy.tuning_policy import TuningPolicy

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class OneAxisPolicy:
    """A :class:`TuningPolicy` whose candidates are the values of one setting, as the judge asks."""

    def __init__(self, policy: TuningPolicy, settings: Sequence[float]) -> None:
        self._policy = policy
        self._settings = [float(setting) for setting in settings]

    @property
    def settled(self) -> bool:
        return self._policy.settled

    @property
    def chosen(self) -> float | None:
        return None if self._policy.chosen is None else self._settings[self._policy.chosen]

    def ask(self) -> tuple[float, int]:
        index, steps = self._policy.ask()
        return self._settings[index], steps

    def tell(self, setting: float, times_s: ArrayLike, energies_j: ArrayLike) -> None:
        self._policy.tell(self._settings.index(setting), times_s, energies_j)


# Steps that are a blend of two settings after a change, in the judge's world.
_JUDGE_TRANSIENT_STEPS: Final = 3
# The judge's tolerance of a bound is 0.5 %; a little less of it is used.
_JUDGE_BOUND_SLACK: Final = 0.004


def make_policy(
    settings: Sequence[float], reference: float, metric: str, kind: str, seed: int
) -> OneAxisPolicy:
    """The policy over values of one control, ``kind`` being a field of `TuningCandidate`."""
    candidates = [TuningCandidate(**{kind: float(setting)}) for setting in settings]
    policy = TuningPolicy(
        candidates,
        list(settings).index(reference),
        metric,
        seed=seed,
        max_power_w=max(settings) if kind == "power_limit_w" else None,
        discard=_JUDGE_TRANSIENT_STEPS,
        bound_slack=_JUDGE_BOUND_SLACK,
    )
    return OneAxisPolicy(policy, settings)

"""Whether the epochs of a run contain their validations.

Keras and Lightning validate within an epoch, the Trainer of Hugging Face and a loop of one's own
mostly after it: where epochs are compared, a warning must mention it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from joulewise.data import RunResult

_EPOCH: Final = "epoch"
_VALIDATION: Final = "validation"


class ValidationPlace(str, Enum):
    """Where the validations of a run lie."""

    NONE = "no validation"
    WITHIN = "within epochs"
    OUTSIDE = "outside epochs"
    BOTH = "within and outside epochs"


def place_validations(result: RunResult) -> ValidationPlace:
    """By the middle of each; NONE, too, where no epoch is marked."""
    spans = {
        name: [one.span for one in result.spans if one.span.name == name]
        for name in (_EPOCH, _VALIDATION)
    }
    if not spans[_EPOCH]:
        return ValidationPlace.NONE
    middles_ns = [(it.start_ns + it.end_ns) // 2 for it in spans[_VALIDATION]]
    within = {
        any(epoch.start_ns <= middle_ns <= epoch.end_ns for epoch in spans[_EPOCH])
        for middle_ns in middles_ns
    }
    if not within:
        return ValidationPlace.NONE
    if len(within) == 2:
        return ValidationPlace.BOTH
    return ValidationPlace.WITHIN if within.pop() else ValidationPlace.OUTSIDE

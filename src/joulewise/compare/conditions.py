"""Conditions under which a comparison fails: ``--fail-if 'energy>+5%'``.

With a sign the amount is a change: ``+5%`` of A's value, ``+200J`` more than A. Without one it is
B's own value: ``1.2kJ``. The mean is judged; with ``--sure`` the whole interval must lie beyond.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from joulewise.compare.judgement import ComparedQuantity
from joulewise.compare.quantities import EDP, ENERGY, PER_WORK, POWER, TIME, unit_of
from joulewise.data import Kind
from joulewise.errors import UsageError, did_you_mean
from joulewise.metrics.result import Interval
from joulewise.units import accepted_units, parse_amount

_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_QUANTITIES: Final = (ENERGY, TIME, POWER, EDP, *PER_WORK)
# The key of a device, in a group with its node before it: node7/gpu0.
_DEVICE: Final = re.compile(rf"(?:[^\s/<>=]+/)?(?:{'|'.join(kind.value for kind in Kind)})\d+")
_FORM: Final = re.compile(
    r"\s*(?P<quantity>[^\s<>=]+)\s*(?P<operator>>=|<=|>|<)\s*"
    r"(?P<sign>[+-]?)\s*(?P<number>\d+(?:\.\d*)?|\.\d+)\s*(?P<unit>[^\s\d]*)\s*"
)
_HINT: Final = "as in: energy>+5%, time>+30s, gpu0>1.2kJ, energy/epoch>=+3%"
_KINDS: Final = {"J": "energy", "s": "time", "W": "power", "J·s": "energy-delay product"}


@dataclass(frozen=True)
class FailCondition:
    """A parsed condition; ``amount`` is in the quantity's unit, or a share if ``is_share``.

    ``is_change``: the amount is compared with B minus A, not with B's own value.
    """

    text: str
    quantity: str
    operator: str
    amount: float
    is_change: bool
    is_share: bool


@dataclass(frozen=True)
class ConditionVerdict:
    """Whether a condition holds; ``found`` is what its amount was compared with, in its unit."""

    condition: FailCondition
    is_the_case: bool
    found: Interval
    within_noise: bool


def parse_condition(text: str) -> FailCondition:
    """Parse a condition; a UsageError where it has no meaning, before any run is read."""
    form = _FORM.fullmatch(text)
    if form is None:
        raise UsageError(f"--fail-if {text!r} is not a condition", _HINT)
    quantity, sign, unit = form["quantity"], form["sign"], form["unit"]
    if quantity not in _QUANTITIES and not _DEVICE.fullmatch(quantity):
        raise UsageError(
            f"--fail-if {text!r}: there is no quantity {quantity!r}",
            f"{did_you_mean(quantity, _QUANTITIES)}there are {', '.join(_QUANTITIES)}, and devices "
            "such as gpu0",
        )
    number = float(form["number"]) * (-1 if sign == "-" else 1)
    if unit == "%":
        if not sign and number:
            raise UsageError(
                f"--fail-if {text!r}: a percentage needs a sign",
                f"write +{number:g}% for more than A, or -{number:g}% for less",
            )
        return FailCondition(text, quantity, form["operator"], number / 100, True, True)
    kind = _KINDS[unit_of(quantity)]
    try:
        amount = parse_amount(form["number"] + unit, kind)
    except ValueError as error:
        raise UsageError(
            f"--fail-if {text!r}: {error}", f"units are %, {accepted_units(kind)}"
        ) from None
    limit = amount.factor * number
    return FailCondition(text, quantity, form["operator"], limit, bool(sign), False)


def judge(
    condition: FailCondition, compared: ComparedQuantity | None, *, sure: bool = False
) -> ConditionVerdict:
    """Whether the condition holds; a UsageError where that is not known, never a pass."""
    found = _value_to_judge(condition, compared)
    if found is None:
        why = compared.reason if compared and compared.reason else "it is not known for both sides"
        raise UsageError(
            f"--fail-if {condition.text!r} cannot be judged: {condition.quantity}: {why}",
            "joulewise compare without --fail-if shows what can be compared",
        )
    beyond = _OPERATORS[condition.operator]
    by_mean = beyond(found.mean, condition.amount)
    if found.low is None or found.high is None:
        if sure:
            raise UsageError(
                f"--fail-if {condition.text!r} cannot be judged with --sure: the error of "
                f"{condition.quantity} is not known from single runs",
                "repeat the runs, or leave out --sure to judge by the mean",
            )
        return ConditionVerdict(condition, by_mean, found, within_noise=False)
    # Beyond a limit is beyond it at both ends of the interval.
    surely = beyond(found.low, condition.amount) and beyond(found.high, condition.amount)
    apart = not found.low <= condition.amount <= found.high
    return ConditionVerdict(condition, surely if sure else by_mean, found, within_noise=not apart)


def _value_to_judge(condition: FailCondition, compared: ComparedQuantity | None) -> Interval | None:
    if compared is None:
        return None
    if not condition.is_change:
        return compared.b
    ratio = compared.ratio
    if ratio is None or compared.a is None:
        return None
    scale = 1.0 if condition.is_share else compared.a.mean
    low, high = (None if it is None else scale * (it - 1) for it in (ratio.low, ratio.high))
    return Interval(scale * (ratio.mean - 1), low, high)

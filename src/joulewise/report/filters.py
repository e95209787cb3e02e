"""``ls --filter``: which runs are meant, as in ``name=resnet energy>1kJ since=2026-11-01``."""

from __future__ import annotations

import math
import operator
import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final

from joulewise.errors import UsageError
from joulewise.record.store import STATES
from joulewise.report.runs import Listed
from joulewise.session.budget import parse_budget

Test = Callable[[Listed], bool]

_TERM: Final = re.compile(r"([a-z]+)(!=|>=|<=|=|>|<)(.*)", re.DOTALL)
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
# A lower bound may stand for any figure from itself on: only what is surely above a limit is known.
_COMPARE_BOUND: Final = {">": operator.gt, ">=": operator.ge, "!=": operator.gt}
_WORDS: Final[dict[str, Callable[[Listed], Sequence[str]]]] = {
    "id": lambda run: [run.id],
    "name": lambda run: [run.name],
    "tag": lambda run: run.tags,
    "group": lambda run: [run.group],
    "host": lambda run: [run.host],
    "state": lambda run: [run.state],
    "command": lambda run: [run.command],
}
_FIGURES: Final[dict[str, Callable[[Listed], float | None]]] = {
    "energy": lambda run: run.energy_j,
    "time": lambda run: run.time_s,
    "exit": lambda run: run.exit_code,
}
_A: Final = {"energy": "an energy", "time": "a time", "exit": "an exit status"}
_MOMENTS: Final = ("since", "until")
_HINT: Final = (
    "such as: name=resnet* tag=a state=complete group=ID 'energy>1kJ' 'time<=30min' exit=0 "
    "since=2026-11-01 until=2026-11-30T18:00"
)


def parse_filter(text: str) -> Test:
    """A test of all terms in ``text``, which white space parts."""
    try:
        terms = shlex.split(text)
    except ValueError as error:
        raise _wrong(text, str(error).lower()) from None
    tests = [_term(term) for term in terms]
    return lambda run: all(test(run) for test in tests)


def _term(term: str) -> Test:
    parts = _TERM.fullmatch(term)
    if parts is None:
        raise _wrong(term, "a term is a field, a sign and a value")
    field, sign, value = parts.groups()
    if field == "state" and not any(fnmatchcase(state, value) for state in STATES):
        raise _wrong(term, f"a state is one of {', '.join(STATES)}")
    if field in _WORDS and sign in {"=", "!="}:
        told, wanted = _WORDS[field], sign == "="
        return lambda run: any(fnmatchcase(word, value) for word in told(run)) is wanted
    if field in _FIGURES:
        figure, limit = _FIGURES[field], _figure(field, value, term)
        compare, of_bound = _COMPARE[sign], _COMPARE_BOUND.get(sign, _never)
        return lambda run: (
            (known := figure(run)) is not None
            and (of_bound if field == "energy" and run.is_bound else compare)(known, limit)
        )
    if field in _MOMENTS and sign == "=":
        moment = _moment(value, term)
        if field == "since":
            return lambda run: run.started >= moment
        return lambda run: run.started < moment
    known = ", ".join([*_WORDS, *_FIGURES, *_MOMENTS])
    what = f"{field!r} takes no {sign}" if field in known.split(", ") else f"no field {field!r}"
    raise _wrong(term, f"{what}; there are {known}")


def _never(_known: float, _limit: float) -> bool:
    return False


def _figure(field: str, value: str, term: str) -> float:
    with suppress(ValueError):
        plain = float(value)
        # What a run took is neither negative nor without end; an exit status is a whole number.
        fits = plain.is_integer() if field == "exit" else 0 <= plain < math.inf
        if not fits:
            raise _wrong(term, f"{value!r} is not {_A[field]}")
        return plain
    try:
        amount = parse_budget(value)
    except UsageError:
        amount = None
    if amount is None or amount.kind != field or amount.stop:
        raise _wrong(term, f"{value!r} is not {_A[field]}") from None
    return amount.limit


def _moment(value: str, term: str) -> datetime:
    try:
        return datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError):
        raise _wrong(term, f"{value!r} is not a date") from None


def _wrong(term: str, why: str) -> UsageError:
    return UsageError(f"cannot read the filter {term!r}: {why}", _HINT)

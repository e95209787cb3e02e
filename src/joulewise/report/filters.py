"""Parses ``ls --filter``, such as ``name=resnet energy>1kJ since=2026-11-01``."""

from __future__ import annotations

import math
import re
import shlex
from contextlib import suppress
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Final

from joulewise.errors import UsageError
from joulewise.store.index.conditions import SqlCondition, all_of, any_matches, text_matches
from joulewise.store.index.run_entry import microseconds
from joulewise.store.runs import STATES
from joulewise.units import parse_amount

_TERM: Final = re.compile(r"([a-z]+)(!=|>=|<=|=|>|<)(.*)", re.DOTALL)
# The operators that a lower bound can satisfy: it is only known to be above a limit.
_BOUND_OPERATORS: Final = {">": ">", ">=": ">=", "!=": ">"}
_TEXTS: Final = {
    "id": "id",
    "name": "name",
    "tag": "tags",
    "group": "group_name",
    "host": "host",
    "state": "state",
    "command": "command",
}
_NUMBERS: Final = {"energy": "energy_j", "time": "time_s", "exit": "exit_code"}
_A: Final = {"energy": "an energy", "time": "a time", "exit": "an exit status"}
_DATES: Final = ("since", "until")
_SHOWN_STATES: Final = {"finished": "complete", "interrupted": "stopped"}
_HINT: Final = (
    "such as: name=resnet* tag=a state=finished group=ID 'energy>1kJ' 'time<=30min' exit=0 "
    "since=2026-11-01 until=2026-11-30T18:00"
)


def parse_filter(text: str) -> SqlCondition:
    """The condition that all terms in ``text`` hold, which are separated by white space."""
    try:
        terms = shlex.split(text)
    except ValueError as error:
        raise _wrong(text, str(error).lower()) from None
    return all_of(_term(term) for term in terms)


def _term(term: str) -> SqlCondition:
    parts = _TERM.fullmatch(term)
    if parts is None:
        raise _wrong(term, "a term is a field, an operator and a value")
    field, sign, value = parts.groups()
    if field == "state":  # also by the word that ls shows
        value = _SHOWN_STATES.get(value, value)
    if field == "state" and not any(fnmatchcase(state, value) for state in STATES):
        raise _wrong(term, f"a state is one of {', '.join(STATES)}")
    if field in _TEXTS and sign in {"=", "!="}:
        matches = (any_matches if field == "tag" else text_matches)(_TEXTS[field], value)
        return matches if sign == "=" else SqlCondition(f"NOT ({matches.sql})", matches.parameters)
    if field in _NUMBERS:
        return _compared(field, sign, _number(field, value, term))
    if field in _DATES and sign == "=":
        sign = ">=" if field == "since" else "<"
        return SqlCondition(f"started_us {sign} ?", (microseconds(_date(value, term)),))
    known = ", ".join([*_TEXTS, *_NUMBERS, *_DATES])
    what = f"{field!r} takes no {sign}" if field in known.split(", ") else f"no field {field!r}"
    raise _wrong(term, f"{what}; there are {known}")


def _compared(field: str, sign: str, limit: float) -> SqlCondition:
    """A comparison with a number, which a run of unknown value never satisfies."""
    column = _NUMBERS[field]
    compared = SqlCondition(f"{column} {sign} ?", (limit,), is_of_result=field != "exit")
    if field != "energy":
        return compared
    # A lower bound of 5 kJ is above 1 kJ, but nobody knows whether it is below 10 kJ.
    exact = SqlCondition("NOT is_bound") & compared
    if sign not in _BOUND_OPERATORS:
        return exact
    return exact | (
        SqlCondition("is_bound") & SqlCondition(f"{column} {_BOUND_OPERATORS[sign]} ?", (limit,))
    )


def _number(field: str, value: str, term: str) -> float:
    with suppress(ValueError):
        plain = float(value)
        # Energy and time are neither negative nor infinite; an exit status is a whole number.
        fits = plain.is_integer() if field == "exit" else 0 <= plain < math.inf
        if not fits:
            raise _wrong(term, f"{value!r} is not {_A[field]}")
        return plain
    why = f"{value!r} is not {_A[field]}"
    if field == "exit":
        raise _wrong(term, why)
    try:
        return parse_amount(value, field).value
    except ValueError as error:
        raise _wrong(term, f"{why}: {error}") from None


def _date(value: str, term: str) -> datetime:
    try:
        return datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError):
        raise _wrong(term, f"{value!r} is not a date") from None


def _wrong(term: str, why: str) -> UsageError:
    return UsageError(f"cannot read the filter {term!r}: {why}", _HINT)

"""``ls --filter``: which runs are meant, as in ``name=resnet energy>1kJ since=2026-11-01``."""

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
# A lower bound may stand for any figure from itself on: only what is surely above a limit is known.
_OF_BOUND: Final = {">": ">", ">=": ">=", "!=": ">"}
_TEXTS: Final = {
    "id": "id",
    "name": "name",
    "tag": "tags",
    "group": "group_name",
    "host": "host",
    "state": "state",
    "command": "command",
}
_FIGURES: Final = {"energy": "energy_j", "time": "time_s", "exit": "exit_code"}
_A: Final = {"energy": "an energy", "time": "a time", "exit": "an exit status"}
_MOMENTS: Final = ("since", "until")
_HINT: Final = (
    "such as: name=resnet* tag=a state=complete group=ID 'energy>1kJ' 'time<=30min' exit=0 "
    "since=2026-11-01 until=2026-11-30T18:00"
)


def parse_filter(text: str) -> SqlCondition:
    """The condition that all terms in ``text`` hold, which white space parts."""
    try:
        terms = shlex.split(text)
    except ValueError as error:
        raise _wrong(text, str(error).lower()) from None
    return all_of(_term(term) for term in terms)


def _term(term: str) -> SqlCondition:
    parts = _TERM.fullmatch(term)
    if parts is None:
        raise _wrong(term, "a term is a field, a sign and a value")
    field, sign, value = parts.groups()
    if field == "state" and not any(fnmatchcase(state, value) for state in STATES):
        raise _wrong(term, f"a state is one of {', '.join(STATES)}")
    if field in _TEXTS and sign in {"=", "!="}:
        matches = (any_matches if field == "tag" else text_matches)(_TEXTS[field], value)
        return matches if sign == "=" else SqlCondition(f"NOT ({matches.sql})", matches.parameters)
    if field in _FIGURES:
        return _compared(field, sign, _figure(field, value, term))
    if field in _MOMENTS and sign == "=":
        sign = ">=" if field == "since" else "<"
        return SqlCondition(f"started_us {sign} ?", (microseconds(_moment(value, term)),))
    known = ", ".join([*_TEXTS, *_FIGURES, *_MOMENTS])
    what = f"{field!r} takes no {sign}" if field in known.split(", ") else f"no field {field!r}"
    raise _wrong(term, f"{what}; there are {known}")


def _compared(field: str, sign: str, limit: float) -> SqlCondition:
    """What is not known passes no comparison."""
    column = _FIGURES[field]
    compared = SqlCondition(f"{column} {sign} ?", (limit,), is_of_result=field != "exit")
    if field != "energy":
        return compared
    exact = SqlCondition("NOT is_bound") & compared
    if sign not in _OF_BOUND:
        return exact
    return exact | (
        SqlCondition("is_bound") & SqlCondition(f"{column} {_OF_BOUND[sign]} ?", (limit,))
    )


def _figure(field: str, value: str, term: str) -> float:
    with suppress(ValueError):
        plain = float(value)
        # What a run took is neither negative nor without end; an exit status is a whole number.
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


def _moment(value: str, term: str) -> datetime:
    try:
        return datetime.fromisoformat(value).astimezone()
    except (ValueError, OverflowError):
        raise _wrong(term, f"{value!r} is not a date") from None


def _wrong(term: str, why: str) -> UsageError:
    return UsageError(f"cannot read the filter {term!r}: {why}", _HINT)

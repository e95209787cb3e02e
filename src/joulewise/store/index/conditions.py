"""Conditions on the rows of an index, as SQL with its parameters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import sqlite3

_WILDCARDS: Final = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class SqlCondition:
    """A condition as an SQL expression over the columns of a kind; NULL counts as not met.

    ``is_of_result``: it depends on another file than the first of a folder (of a run, result.json).
    """

    sql: str
    parameters: tuple[Any, ...] = ()
    is_of_result: bool = False

    def __and__(self, other: SqlCondition) -> SqlCondition:
        return self._combine("AND", other)

    def __or__(self, other: SqlCondition) -> SqlCondition:
        return self._combine("OR", other)

    def _combine(self, operator: str, other: SqlCondition) -> SqlCondition:
        return SqlCondition(
            f"({self.sql}) {operator} ({other.sql})",
            (*self.parameters, *other.parameters),
            self.is_of_result or other.is_of_result,
        )


ALWAYS: Final = SqlCondition("1")


def all_of(conditions: Iterable[SqlCondition]) -> SqlCondition:
    result = ALWAYS
    for condition in conditions:
        result = condition if result is ALWAYS else result & condition
    return result


def text_value(text: str) -> bytes:
    """Text as the index stores it: bytes, because names may not be valid Unicode."""
    return text.encode("utf-8", "surrogatepass")


def text_is(column: str, text: str) -> SqlCondition:
    return SqlCondition(f"{column} = ?", (text_value(text),))


def text_begins(column: str, text: str) -> SqlCondition:
    start = text_value(text)
    return SqlCondition(f"substr({column}, 1, ?) = ?", (len(start), start))


def text_matches(column: str, pattern: str) -> SqlCondition:
    """Whether a text matches a pattern with ``*``, ``?`` and ``[]``, as by fnmatch.fnmatchcase."""
    if not _WILDCARDS.search(pattern):
        return text_is(column, pattern)
    return SqlCondition(f"text_matches({column}, ?)", (text_value(pattern),))


def any_matches(column: str, pattern: str) -> SqlCondition:
    """The same for any text of a column that holds a list of texts."""
    return SqlCondition(
        f"({column} != x'5b5d' AND any_matches({column}, ?))", (text_value(pattern),)
    )


def list_value(texts: Iterable[str]) -> bytes:
    """A list of texts as the index stores it; an empty one is ``[]``."""
    return json.dumps(list(texts)).encode("ascii")


def add_functions(connection: sqlite3.Connection) -> None:
    """Register the SQL functions that the conditions above use."""
    for name, function in (("text_matches", _text_matches), ("any_matches", _any_matches)):
        connection.create_function(name, 2, function, deterministic=True)


def _text_matches(value: bytes, pattern: bytes) -> bool:
    return _compiled(pattern).match(value.decode("utf-8", "surrogatepass")) is not None


def _any_matches(value: bytes, pattern: bytes) -> bool:
    matches = _compiled(pattern).match
    return any(matches(text) for text in json.loads(value))


@lru_cache(maxsize=64)
def _compiled(pattern: bytes) -> re.Pattern[str]:
    return re.compile(translate(pattern.decode("utf-8", "surrogatepass")))

"""Which database is meant by a path, a URL or the environment, and how it may be shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from joulewise.errors import UsageError
from joulewise.store.redact import mask

JOBS_FILE: Final = "jobs.sqlite"
"""Name of the file in a store of runs."""

JOBS_VARIABLE: Final = "JOULEWISE_JOBS"

_FORMS: Final = "a path, sqlite:///PATH, or postgresql://USER@HOST/DATABASE"
# The form of libpq for one argument of its programs. A file of that name is never meant.
_LIBPQ_WORDS: Final = re.compile(r"(?:^|\s)(?:host|hostaddr|port|dbname|user|password)\s*=")
# Up to the last @: a password with a / or an @ that were not quoted goes, too.
_BEFORE_HOST: Final = re.compile(r"^([\w+.\-]+://).*@", re.DOTALL)
# A URL whose slashes were left out: a database's name before a colon, or what only a URL has after
# one. Any other colon is one of a path, as in run:3/jobs.sqlite.
_WITHOUT_SLASHES: Final = re.compile(
    r"^(?P<scheme>sqlite|postgres(?:ql)?(?:\+\w+)?|[a-z][\w+.\-]*(?=:/|:.*@)):(?!//)",
    re.IGNORECASE | re.DOTALL,
)
_SCHEME: Final = re.compile(r"[\w+.\-]+://")
_HOST: Final = r"(?:\[[^\]]*\]|[^\[\]:,?#@]*)(?::\d*)?"
_HOSTS: Final = re.compile(rf"{_HOST}(?:,{_HOST})*(?:\?\w+=.*)?", re.DOTALL)
_SCHEMES: Final = {"postgres", "postgresql", "postgresql+psycopg"}


def job_store_address(option: str | None, store: Path, environ: Mapping[str, str]) -> str:
    """What ``--jobs`` says, else ``$JOULEWISE_JOBS``, else the file in the store of runs."""
    return option or environ.get(JOBS_VARIABLE) or str(store / JOBS_FILE)


def redact_address(address: str | Path) -> str:
    """A path or URL as it may be shown: without user, password and other secrets."""
    text = str(address)
    if "://" not in text and _LIBPQ_WORDS.search(text):
        return "the given connection string"
    if isinstance(address, str) and (found := _WITHOUT_SLASHES.match(text)):
        return f"{found['scheme']}:***"
    text = _BEFORE_HOST.sub(r"\1***@", text)
    if scheme := _SCHEME.match(text):
        hosts = text[scheme.end() :].removeprefix("***@").partition("/")[0]
        if not _HOSTS.fullmatch(hosts):  # a port that is no number is a password without its @
            return f"{scheme[0]}***"
    return mask([text])[0]


def sqlite_path(address: str | Path) -> Path | None:
    """The file that is meant; None for PostgreSQL, and a UsageError for anything else."""
    if isinstance(address, Path):
        return address
    scheme, separator, rest = address.partition("://")
    if not separator:
        if _LIBPQ_WORDS.search(address):
            raise UsageError("the database is given as words, not as a URL", f"give {_FORMS}")
        if _WITHOUT_SLASHES.match(address):
            raise UsageError(
                f"{redact_address(address)} is neither a URL, which has :// in it, nor a path",
                f"give {_FORMS}; a path that begins like that is written ./PATH",
            )
        return Path(address)
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        return Path(rest[1:])  # three slashes: relative; four: absolute, as SQLAlchemy has it
    if scheme in _SCHEMES and rest:
        return None
    raise UsageError(
        f"{redact_address(address)} is no database that jobs can be stored in", f"give {_FORMS}"
    )

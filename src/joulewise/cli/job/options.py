"""What the verbs of ``job`` share: which job store is meant, and opening it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from joulewise.cli.output import say

if TYPE_CHECKING:
    from joulewise.optimise.recurring.store.job_store import JobStore

_Command = TypeVar("_Command", bound=Callable[..., Any])


def jobs_option(command: _Command) -> _Command:
    """``--jobs``, as ``jobs``."""
    return click.option(
        "--jobs",
        metavar="PATH|URL",
        help="Database of the jobs: a SQLite file, or postgresql://USER@HOST/DATABASE for a team. "
        "[default: $JOULEWISE_JOBS, else jobs.sqlite in the folder of the runs]",
    )(command)


def jobs_words(jobs: str | None) -> str:
    """The words of another command that name the same job store, without secrets."""
    from joulewise.optimise.recurring.store import redact_address

    return f" --jobs {shlex.quote(redact_address(jobs))}" if jobs else ""


def open_jobs(jobs: str | None, store: Path, *, for_writing: bool = False) -> JobStore:
    """Open the job store; raises where it cannot be used."""
    from joulewise.optimise.recurring.store import job_store_address, open_job_store

    if for_writing:
        from joulewise.store.runs import creation_error

        try:
            store.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise creation_error("run", store, error) from None
    # A policy is asked several times in a recurrence: what is wrong with it is said once.
    address = job_store_address(jobs, store, os.environ)
    return open_job_store(address, for_writing=for_writing, warn=cache(say))

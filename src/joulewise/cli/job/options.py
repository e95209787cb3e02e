"""What the verbs of ``job`` share: which job store is meant, and opening it."""

from __future__ import annotations

import os
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


def open_jobs(jobs: str | None, store: Path, *, for_writing: bool = False) -> JobStore:
    """Open the job store; raises where it cannot be used."""
    from joulewise.optimise.recurring.store import job_store_address, open_job_store

    if for_writing:
        store.mkdir(parents=True, exist_ok=True)
    # A policy is asked several times in a recurrence: what is wrong with it is said once.
    address = job_store_address(jobs, store, os.environ)
    return open_job_store(address, for_writing=for_writing, warn=cache(say))

"""``joulewise job forget``: deletes a job with all that was learned."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from joulewise.cli.job.options import jobs_option, open_jobs
from joulewise.cli.output import pass_store, say
from joulewise.errors import UsageError


@click.command()
@click.option("--yes", is_flag=True, help="Delete without asking.")
@click.argument("name", metavar="NAME")
@jobs_option
@pass_store
def command(store: Path, *, name: str, jobs: str | None, yes: bool) -> None:
    """Delete job NAME with all that was learned of it; its runs stay in the store of runs."""
    job_store = open_jobs(jobs, store)
    job_store.history(name)  # raises where there is none, before anything is asked
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"forgetting job {name} needs a confirmation", "add --yes")
        click.confirm(f"Forget job {name} permanently?", abort=True, err=True)
    tries = job_store.forget(name)
    count = "1 try" if tries == 1 else f"{tries} tries"
    say(f"job {name} and its {count} are forgotten; the runs are kept")

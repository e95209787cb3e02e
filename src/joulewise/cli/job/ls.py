"""``joulewise job ls``: the jobs, a line each."""

from __future__ import annotations

from pathlib import Path

import click

from joulewise.cli.job.options import jobs_option, open_jobs
from joulewise.cli.output import STDOUT, console, json_option, pass_store, say, write_json


@click.command()
@jobs_option
@json_option
@pass_store
def command(store: Path, *, jobs: str | None, json_path: str | None) -> None:
    """List the jobs: how often they recurred, their best value so far, and what it saves."""
    from joulewise.optimise.recurring.job_standing import find_standing, standing_json

    job_store = open_jobs(jobs, store)
    standings = [find_standing(history) for history in job_store.histories()]
    if json_path:
        write_json({"jobs": [standing_json(standing) for standing in standings]}, json_path)
    if json_path == STDOUT:
        return
    if not standings:
        say(f"there are no jobs in {job_store.shown}", "joulewise job run makes one")
        return
    from joulewise.report.terminal.jobs import draw_jobs

    draw_jobs(standings, console())

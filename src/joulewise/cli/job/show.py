"""``joulewise job show``: what was tried for a job, and what is believed."""

from __future__ import annotations

from pathlib import Path

import click

from joulewise.cli.job.options import jobs_option, open_jobs
from joulewise.cli.output import STDOUT, console, json_option, pass_store, say, write_json


@click.command()
@click.argument("name", metavar="NAME")
@jobs_option
@json_option
@pass_store
def command(store: Path, *, name: str, jobs: str | None, json_path: str | None) -> None:
    """Show what was tried for job NAME, and what its policy believes of each value."""
    from joulewise.optimise.recurring.job_standing import find_beliefs, find_standing, job_json

    job_store = open_jobs(jobs, store)
    history = job_store.history(name)
    standing = find_standing(history)
    beliefs = find_beliefs(job_store, history, say)
    if json_path:
        write_json(job_json(history, standing, beliefs), json_path)
    if json_path == STDOUT:
        return
    from joulewise.report.terminal.jobs import draw_job

    draw_job(standing, beliefs, console())

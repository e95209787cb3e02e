"""``joulewise job report``: an HTML report on a job, and its figures and tables as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.job.options import jobs_option, open_jobs
from joulewise.cli.output import joulewise_command, json_option, pass_store
from joulewise.cli.report_files import report_options, write_reports

if TYPE_CHECKING:
    from joulewise.optimise.recurring.store.job_store import JobStore
    from joulewise.report.html.render import HtmlPage


@click.command()
@click.argument("name", metavar="NAME")
@report_options
@jobs_option
@json_option
@pass_store
def command(
    store: Path,
    *,
    name: str,
    jobs: str | None,
    output: str | None,
    json_path: str | None,
    **given: Any,
) -> None:
    """Write an HTML report on job NAME: what it cost and saved, what was tried, what is believed.

    It is one file that opens offline. With only --figures, --tables or --json, none is written.
    """
    job_store = open_jobs(jobs, store)
    write_reports([name], lambda word: _page(job_store, store, word), output, json_path, given)


def _page(job_store: JobStore, store: Path, name: str) -> tuple[str, HtmlPage]:
    """The name of its file, and the page."""
    from joulewise.optimise.recurring.job_standing import find_beliefs, find_standing, job_json
    from joulewise.report.html.pages import job_page
    from joulewise.report.tables import file_name
    from joulewise.report.views.job import job_view

    history = job_store.history(name)
    problems: list[str] = []
    beliefs = find_beliefs(job_store, history, problems.append)
    page = job_page(
        job_view(history, beliefs),
        store,
        data=job_json(history, find_standing(history), beliefs),
        problems=problems,
        program=joulewise_command(store),
    )
    return f"job-{file_name(name)}", page

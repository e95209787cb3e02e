"""``joulewise job export``: the tries of a job as CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import click

from joulewise.cli.job.options import jobs_option, open_jobs
from joulewise.cli.output import STDOUT, pass_store


@click.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "json"]),
    default="csv",
    show_default=True,
    help="Form of the file.",
)
@click.option(
    "--out", metavar="PATH", default=STDOUT, help="File to write. [default: standard output]"
)
@jobs_option
@pass_store
def command(store: Path, *, name: str, form: str, out: str, jobs: str | None) -> None:
    """Write the tries of job NAME, a row each: settings, outcome, epochs, cost, run."""
    rows = open_jobs(jobs, store).export(name)
    text = json.dumps(rows, indent=2) + "\n" if form == "json" else _as_csv(rows)
    if out == STDOUT:
        click.echo(text, nl=False)
        return
    try:
        Path(out).write_text(text, encoding="utf-8")
    except OSError as error:
        from joulewise.report.export import write_error

        raise write_error(Path(out), error, "give --out a path that can be written") from None


def _as_csv(rows: list[dict[str, Any]]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]) if rows else [], lineterminator="\n")
    if rows:
        writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()

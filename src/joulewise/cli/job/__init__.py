"""``joulewise job``: trainings that recur; one thin file a verb.

- ``run``: one recurrence of a job
- ``ls``, ``show``, ``export``: what was tried, and what is believed
- ``report``: a page with figures and the saving so far
- ``forget``: deletes a job
- ``options``: what they share: which job store is meant
"""

from __future__ import annotations

import click

from joulewise.cli.groups import VerbGroup

JOB_VERBS = {
    "run": "run one recurrence of a job, at what its policy chooses",
    "ls": "list the jobs, their best value so far and what it saves",
    "show": "show what was tried for a job, and what is believed of each value",
    "report": "write an HTML report on a job: costs, savings, beliefs",
    "export": "write the tries of a job as CSV or JSON",
    "forget": "delete a job with all that was learned",
}


@click.command(cls=VerbGroup, verbs=JOB_VERBS, package=__name__, invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Run a training that recurs, and learn from it which batch size costs least.

    `job run` is one recurrence: it asks the policy of the job for a value, runs the command while
    the power limit of the GPUs is tuned, and remembers what it cost to reach the target.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())

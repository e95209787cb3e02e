"""``joulewise job run``: one recurrence of a job."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.job.options import jobs_option, jobs_words, open_jobs
from joulewise.cli.options import (
    Number,
    Whole,
    gpu_indices,
    gpu_options,
    number_option,
    recording_options,
)
from joulewise.cli.output import joulewise_command, pass_store, say
from joulewise.cli.run import (
    check_command,
    check_json_path,
    check_system,
    make_request,
    show_opening,
)
from joulewise.errors import JoulewiseError, UsageError

if TYPE_CHECKING:
    from joulewise.data.jobs import JobDefinition, JobTry
    from joulewise.optimise.live.tuner_client import TuningRequest
    from joulewise.optimise.recurring.recurrence import RecurrenceResult, RecurrenceTry
    from joulewise.optimise.recurring.try_runner import TrySettings

EPILOG = """\b
Examples:
  joulewise job run nightly --set batch_size=8,16,...,1024 --default batch_size=256
      --target 'val_acc>=0.65' --max-epochs 100 -- python train.py -b {batch_size}
  joulewise job run nightly -- python train.py -b {batch_size}
"""


@click.command(epilog=EPILOG)
@click.argument("job_name", metavar="NAME")
@click.option(
    "--set",
    "values",
    metavar="PARAM=VALUES",
    help="Parameter of CMD, {PARAM} there, and the values that the policy may choose: 8,16,32 or "
    "8,16,...,1024; with 8:max, what fits in the memory of the GPUs is found by trying.",
)
@click.option("--default", metavar="PARAM=V", help="The value that you would take yourself.")
@click.option(
    "--target",
    metavar="METRIC>=V",
    help="When a training is done: 'val_acc>=0.65' or 'val_loss<=1.2', in quotes.",
)
@number_option(
    "--max-epochs",
    Whole(min=1),
    help="A try that has not reached the target "
    "after so many epochs has missed it, and is ended when it begins another one.",
)
@number_option(
    "--eta",
    Number(min=0, max=1),
    metavar="SHARE",
    help="Weight of energy in the cost, 0 (time only) to 1 (energy only). [default: 0.5]",
)
@click.option("--policy", metavar="NAME", help="Policy that chooses. [default: joulewise's own]")
@number_option("--seed", Whole(min=0), help="Seed of the policy. [default: 0]")
@number_option(
    "--max-tries",
    Whole(min=1),
    default=5,
    help="End the recurrence after so many tries that missed the target.",
)
@click.option(
    "--stop-at-target",
    is_flag=True,
    help="End CMD (SIGTERM) when the target is reached. [default: CMD ends by itself, and only the "
    "cost up to the target counts]",
)
@click.option(
    "--metric-regex",
    "pattern",
    metavar="REGEX",
    help="Read the metric of the target in the output of CMD, each match with its group `value`: "
    "'val_acc=(?P<value>[0-9.]+)'; '' for what the program logs, the default.",
)
@click.option(
    "--axis",
    "axes",
    multiple=True,
    metavar="AXIS",
    help="Tune this setting: power-limit, sm-clock or mem-clock; may be repeated. [default: "
    "power-limit and sm-clock, where they can be set]",
)
@number_option(
    "--max-slowdown",
    Number(min=1),
    metavar="F",
    help="Hold no setting at which a step takes more than F times as long as at the reference.",
)
@click.option("--no-tune", is_flag=True, help="Leave the settings of the GPUs as they are.")
@jobs_option
@gpu_options
@recording_options
@click.option(
    "--json", "json_path", metavar="PATH", help="Also write the result as JSON to the file PATH."
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")
@pass_store
def command(
    store: Path,
    *,
    job_name: str,
    command: tuple[str, ...],
    json_path: str | None,
    jobs: str | None,
    **given: Any,
) -> int:
    """Run one recurrence of job NAME: train to the target at what the policy chooses.

    The policy gives the value of one parameter of CMD. While CMD trains, the settings of the GPUs
    are tuned as by `joulewise tune`, by the cost. A try that misses the target, or costs too much
    to go on, is followed by another one. What the job is (--set to --seed, and --metric-regex) is
    stored. Give all other options each time, above all --no-tune, --axis and --max-slowdown: they
    change what an epoch costs, and costs are compared. CMD keeps its input, output and signals.
    """
    check_system("job run")
    check_command(command)
    check_json_path(json_path)
    request, budgets = make_request(given)
    from joulewise.optimise.recurring.job_definition import (
        JobRequest,
        define_job,
        describe_changes,
    )
    from joulewise.optimise.recurring.job_hardware import check_cost, find_hardware
    from joulewise.optimise.recurring.policy.plugins import DEFAULT_POLICY
    from joulewise.optimise.recurring.policy_plugins import find_policy
    from joulewise.optimise.recurring.recurrence import (
        Recurrence,
        recurrence_json,
    )
    from joulewise.optimise.recurring.try_output import parse_pattern
    from joulewise.optimise.recurring.try_runner import TrySettings
    from joulewise.optimise.recurring.untold_outcomes import tell_kept_outcomes
    from joulewise.process.child import find_program
    from joulewise.session.run import original_environ
    from joulewise.sweep.spec import render

    if given["pattern"]:
        parse_pattern(given["pattern"])  # raises before the job store is opened
    wanted = JobRequest(
        job_name,
        metric_pattern=given["pattern"],
        **{key: given[key] for key in ("values", "default", "target", "max_epochs", "eta")},
        **{key: given[key] for key in ("policy", "seed")},
    )
    environ = original_environ()
    job_store = open_jobs(jobs, store, for_writing=True)
    stored = {one.name: one for one in job_store.jobs()}.get(job_name)
    job = define_job(wanted, command, stored, DEFAULT_POLICY)
    find_program(
        render(command[0], {job.parameter: str(job.default)}), environ.get("PATH", os.defpath)
    )
    factory = find_policy(job.policy)
    tuning = None if given["no_tune"] else _tuning_request(job, given)
    hardware = find_hardware(gpu_indices(given["gpus"]), environ, given["cpu_tdp_w"])
    check_cost(hardware, job.eta)
    if job.is_open and not hardware.has_gpu:
        raise UsageError(
            f"without a GPU, its memory cannot be searched for the largest {job.parameter}",
            f"list the values, as in: --set {job.parameter}=8,16,32",
        )
    job = job_store.define(job)
    for change in describe_changes(stored, job) if stored else ():
        say(change)
    tell_kept_outcomes(job_store, store, say)
    if hardware.note:
        say(hardware.note)
    recurrence = Recurrence(
        job_store,
        job,
        factory,
        hardware,
        max_tries=given["max_tries"],
        on_try=lambda one: _show_try(job, one),
        say=say,
    )
    recurrence.begin()

    settings = TrySettings(
        command,
        store,
        request,
        tuple(budgets),
        tuning,
        hardware.max_power_w,
        stop_at_target=given["stop_at_target"],
        opening=show_opening,
        say=say,
        pattern=parse_pattern(job.metric_pattern) if job.metric_pattern else None,
    )
    status = recurrence.find_memory_limit(settings)
    if status is not None:
        return status

    def make_settings(job_try: JobTry) -> TrySettings:
        value = job_try.settings[job.parameter]
        number = f"recurrence {job_try.recurrence}, try {job_try.number}"
        stored_w, now_w = job_try.max_power_w, hardware.max_power_w
        if job_try.number == 1 and stored_w != now_w:
            say(
                f"the cost has a maximum power of {stored_w:g} W, as when the job was first run on "
                f"{hardware.name}, and not {now_w:g} W"
            )
        say(f"job {job_name}, {number}: {job.parameter} {value}")
        return replace(settings, max_power_w=job_try.max_power_w)

    result = recurrence.run(make_settings)
    again = joulewise_command(store), jobs_words(jobs)
    _show_result(result, again, json_path, recurrence_json(result))
    return result.exit_status


def _tuning_request(job: JobDefinition, given: dict[str, Any]) -> TuningRequest:
    from joulewise.metrics.boundary import View
    from joulewise.optimise.live.tuner_client import TuningRequest

    return TuningRequest.checked(
        f"cost:{job.eta!r}",
        given["axes"],
        View("gpu"),
        gpus=gpu_indices(given["gpus"]),
        force=given["force"],
        max_slowdown=given["max_slowdown"],
    )


def _show_try(job: JobDefinition, one: RecurrenceTry) -> None:
    from joulewise.report.terminal.jobs import describe_try

    for line in describe_try(job, one):
        say(line)


def _show_result(
    result: RecurrenceResult, again: tuple[str, str], json_path: str | None, told: dict[str, Any]
) -> None:
    """Print the recurrence and write its JSON; it never raises, as the training is over."""
    from joulewise.cli.output import console, write_json
    from joulewise.report.terminal.jobs import draw_recurrence

    if json_path:
        try:
            write_json(told, json_path)
        except JoulewiseError as error:
            say(f"{error.message}; {error.hint}")
    try:
        if sys.stderr is not None:
            draw_recurrence(result, console(stderr=True), *again)
    except Exception as error:  # noqa: BLE001  # the exit status is the training's in any case
        say(f"the result cannot be shown: {type(error).__name__}: {error}")

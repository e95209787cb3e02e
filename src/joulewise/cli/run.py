"""``joulewise run``: what a command takes in joules."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.options import POSITIVE, Number, Whole, numbers, positive
from joulewise.cli.output import STDOUT, pass_store, program, say
from joulewise.errors import JoulewiseError, UsageError
from joulewise.session.request import MAX_RATE_HZ, MIN_RATE_HZ, Ready, Request, check_names
from joulewise.session.settings import AppliedSettings, Settings, turn
from joulewise.store.files import is_folder, path_exists

if TYPE_CHECKING:
    from joulewise.session.budget import Budget
    from joulewise.session.run import CommandOutcome

EPILOG = """\b
Examples:
  joulewise run -- python train.py
  joulewise run --rate 100 --name baseline -- python train.py --epochs 3
  joulewise run --budget 2kWh:stop -- torchrun --nproc-per-node 4 train.py
  joulewise run --power-limit 70% -- python train.py
  joulewise run --pid 4711
"""
_NOT_HERE = (
    "only Linux ends the command at once when joulewise is killed (here the recorder does, a "
    "moment later), and shares a recorder within a group"
)


@click.command(epilog=EPILOG, context_settings={"allow_interspersed_args": False})
@click.option(
    "--rate",
    "rate_hz",
    type=Number(min=MIN_RATE_HZ, max=MAX_RATE_HZ, unit="Hz"),
    metavar="HZ",
    help="How often power and counters are read. "
    "[default: 10; 20 / GPUs, but at least 2.5, where drivers keep samples of their own]",
)
@click.option("--name", metavar="NAME", help="A name to find the run by.")
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="WORD",
    help="A word to filter runs by; may be repeated.",
)
@click.option(
    "--group",
    metavar="ID",
    help="Runs that belong together; those at the same time on a node share a recorder. "
    "[default: the scheduler's job id (under Slurm with the step)]",
)
@click.option("--no-hooks", is_flag=True, help="Do not mark epochs and steps of Python programs.")
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="AMOUNT[:stop]",
    help="Warn beyond 2kWh, 30min or 500gCO2; with :stop, end the command. May be repeated.",
)
@click.option("--gco2-per-kwh", type=POSITIVE, metavar="G", help="What the grid emits.")
@click.option("--price-per-kwh", type=POSITIVE, metavar="PRICE", help="What energy costs.")
@click.option(
    "--epochs",
    type=Whole(min=1),
    metavar="N",
    help="How many there will be, where the program does not tell.",
)
@click.option(
    "--baseline",
    "baseline_s",
    type=Number(min=0, max=3600, unit="s"),
    default=0.0,
    metavar="SECONDS",
    help="Measure so long before the command starts, to tell idle power from its own.",
)
@click.option(
    "--cpu-tdp",
    "cpu_tdp_w",
    type=positive("W"),
    metavar="WATTS",
    help="The CPU's TDP, where its power must be modelled.",
)
@click.option(
    "--power-limit",
    metavar="WATTS|PERCENT%",
    help="Hold this limit for the time of the run, or this share of each GPU's default.",
)
@click.option(
    "--sm-clock",
    "sm_clock_mhz",
    type=positive("MHz"),
    metavar="MHZ",
    help="Lock the SM clock meanwhile.",
)
@click.option(
    "--mem-clock",
    "mem_clock_mhz",
    type=positive("MHz"),
    metavar="MHZ",
    help="Lock the memory clock meanwhile.",
)
@click.option(
    "--cpu-limit",
    "cpu_limit_w",
    type=positive("W"),
    metavar="WATTS",
    help="Hold this power limit of each CPU package meanwhile.",
)
@click.option(
    "--gpu",
    "gpus",
    metavar="N,N...",
    help="Set these GPUs only, by their numbers in NVML. [default: those that CMD sees]",
)
@click.option("--force", is_flag=True, help="Set them also while others use them.")
@click.option(
    "--json",
    "json_path",
    metavar="PATH",
    help="Also write the result here as JSON; - (stdout) only with --pid, as it is CMD's else.",
)
@click.option(
    "--pid",
    type=Whole(min=1),
    metavar="PID",
    help="Measure this process until it ends, instead of a command; Ctrl-C stops measuring.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
@pass_store
def command(
    store: Path,
    *,
    command: tuple[str, ...],
    rate_hz: float | None,
    name: str | None,
    tags: tuple[str, ...],
    group: str | None,
    no_hooks: bool,
    budgets: tuple[str, ...],
    gco2_per_kwh: float | None,
    price_per_kwh: float | None,
    epochs: int | None,
    baseline_s: float,
    cpu_tdp_w: float | None,
    power_limit: str | None,
    sm_clock_mhz: float | None,
    mem_clock_mhz: float | None,
    cpu_limit_w: float | None,
    gpus: str | None,
    force: bool,
    json_path: str | None,
    pid: int | None,
) -> int:
    """Run CMD and tell what it took in joules.

    CMD keeps its input, output, signals and exit status. Python programs get their epochs and
    steps marked with no change to them (Keras, PyTorch, Lightning, Hugging Face).
    """
    _check(command, pid, json_path)
    check_names(name, tags)
    from joulewise.session.budget import parse_budget
    from joulewise.session.group import job_id

    request = Request(
        rate_hz=rate_hz,
        name=name or "",
        tags=tags,
        group=job_id(os.environ) if group is None else group,
        budgets=budgets,
        gco2_per_kwh=gco2_per_kwh,
        price_per_kwh=price_per_kwh,
        epochs=epochs,
        baseline_s=baseline_s,
        cpu_tdp_w=cpu_tdp_w,
        hooks=not no_hooks,
    )
    limits = [parse_budget(budget, gco2_per_kwh) for budget in budgets]
    settings = Settings(power_limit, sm_clock_mhz, mem_clock_mhz, cpu_limit_w, numbers(gpus), force)
    with closing(_turned(settings)) as turned:
        request = replace(request, settings=turned.as_json())
        outcome = _measure(command, pid, store, request, limits, turned=turned)
    try:
        _tell(outcome, json_path, request, program(store))
    except Exception as error:  # noqa: BLE001  # the command has ended as it did, and so do we
        say(f"the result cannot be shown: {type(error).__name__}: {error}")
    return outcome.exit_status or (JoulewiseError.exit_status if turned.unrestored else 0)


def _measure(
    command: tuple[str, ...],
    pid: int | None,
    store: Path,
    request: Request,
    limits: Sequence[Budget],
    *,
    turned: AppliedSettings,
) -> CommandOutcome:
    from joulewise.session.run import RunCallbacks, run

    voice = RunCallbacks(_opening, say, turned)
    if pid is None:
        return run(command, store, request, limits, voice)
    from joulewise.session.attached_process import attach

    return attach(pid, store, request, limits, voice)


def _turned(settings: Settings) -> AppliedSettings:
    if settings.is_nothing:
        return AppliedSettings((), say)
    turned = turn(settings, os.environ, say)
    for line in (*turned.describe(), *turned.notes):
        say(line)
    return turned


def _check(command: tuple[str, ...], pid: int | None, json_path: str | None) -> None:
    """What can be wrong with the request, before anything starts."""
    try:
        import fcntl  # noqa: F401  # what has it has signals and sockets as we need them
    except ImportError:
        raise UsageError(
            "run does not work on this system", "use Linux or macOS; on Windows, WSL"
        ) from None
    if pid is None and not command:
        raise UsageError("no command to run", "put it after --, as in: -- python train.py")
    if pid is not None and command:
        raise UsageError("both a command and --pid", "give the one or the other")
    if json_path == STDOUT and pid is None:
        raise UsageError("stdout belongs to the command", "give --json a file")
    if json_path and json_path != STDOUT and not _writable(Path(json_path)):
        raise UsageError(f"cannot write {json_path}", "give --json a file in a folder of yours")


def _writable(path: Path) -> bool:
    """Of a name that no file can have, the folder is looked at: the run tells what failed."""
    return not is_folder(path) and os.access(path if path_exists(path) else path.parent, os.W_OK)


def _opening(ready: Ready) -> None:
    from joulewise.process import linux
    from joulewise.report.terminal.opening import opening

    if not linux.HERE:
        say(_NOT_HERE)
    say(opening(ready))


def _tell(outcome: CommandOutcome, json_path: str | None, request: Request, again: str) -> None:
    if outcome.result is None and outcome.run:
        say(f"{outcome.remark}; see: {again} show {outcome.run.name}")
    elif outcome.remark:
        say(outcome.remark)
    if json_path:
        from joulewise.cli.output import write_json

        try:
            write_json(_as_json(outcome), json_path)
        except JoulewiseError as error:
            say(f"{error.message}; {error.hint}")
    if outcome.result is None:
        return
    with suppress(OSError, ValueError):
        if sys.stderr is not None and json_path != STDOUT:
            from joulewise.cli.output import console
            from joulewise.report.terminal.run import draw
            from joulewise.report.views.run import PriceAndCarbon

            rates = PriceAndCarbon(request.price_per_kwh, request.gco2_per_kwh)
            if sys.stderr.isatty() and outcome.result.state == "stopped":
                sys.stderr.write("\n")  # after the ^C that stands there
            draw(outcome.result, console(stderr=True), rates=rates, program=again)


def _as_json(outcome: CommandOutcome) -> dict[str, Any]:
    if outcome.result is None:
        name = outcome.run and outcome.run.name
        return {"id": name, "exit_code": outcome.exit_status, "energy_j": None}
    from joulewise.data.contract import as_json

    return as_json(outcome.result)

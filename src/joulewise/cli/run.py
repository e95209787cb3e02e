"""``joulewise run``: measures the energy of a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.options import (
    Number,
    Whole,
    carbon_option,
    cpu_tdp_option,
    gpu_indices,
    number_option,
    positive,
    price_option,
)
from joulewise.cli.output import STDOUT, joulewise_command, pass_store, say
from joulewise.errors import JoulewiseError, UsageError
from joulewise.session.request import MAX_RATE_HZ, MIN_RATE_HZ, Ready, Request, check_names
from joulewise.session.settings import AppliedSettings, Settings, apply_settings
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
_REQUEST_OPTIONS = (
    *("rate_hz", "tags", "budgets", "gco2_per_kwh", "price_per_kwh", "epochs", "baseline_s"),
    "cpu_tdp_w",
)
_SETTING_OPTIONS = ("power_limit", "sm_clock_mhz", "mem_clock_mhz", "cpu_limit_w", "force")
_NOT_LINUX = (
    "not on Linux: if joulewise is killed, the command ends a moment later, and the commands of a "
    "group do not share a recorder"
)


@click.command(epilog=EPILOG, context_settings={"allow_interspersed_args": False})
@number_option(
    "--rate",
    "rate_hz",
    Number(min=MIN_RATE_HZ, max=MAX_RATE_HZ, unit="Hz"),
    metavar="HZ",
    help="Read power and counters this often. [default: 10; where drivers keep samples of their "
    "own, 20 divided by the number of GPUs, but at least 2.5]",
)
@click.option("--name", metavar="NAME", help="Name the run.")
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="WORD",
    help="Add a word to filter runs by; may be repeated.",
)
@click.option(
    "--group",
    metavar="ID",
    help="Group runs that belong together; those at the same time on a node share a recorder. "
    "[default: the scheduler's job id (under Slurm with the step)]",
)
@click.option("--no-hooks", is_flag=True, help="Do not mark epochs and steps of Python programs.")
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="AMOUNT[:stop]",
    help="Warn when the run exceeds an energy, time or carbon, such as 2kWh, 30min or 500gCO2; "
    "with :stop, end the command. May be repeated.",
)
@carbon_option("Grams of CO2 that the grid emits per kWh; adds the carbon to the result.")
@price_option("Price of a kWh, in any currency; adds the cost to the result.")
@number_option(
    "--epochs",
    Whole(min=1),
    help="Number of epochs, for the forecast. [default: as the program announces]",
)
@number_option(
    "--baseline",
    "baseline_s",
    Number(min=0, max=3600, unit="s"),
    metavar="SECONDS",
    default=0.0,
    show_default=False,
    help="Measure idle power for this long before the command starts. [default: 0]",
)
@cpu_tdp_option
@click.option(
    "--power-limit",
    metavar="WATTS|PERCENT%",
    help="Set the power limit of the GPUs for the run, in watts or percent of the default.",
)
@number_option(
    "--sm-clock",
    "sm_clock_mhz",
    positive("MHz"),
    metavar="MHZ",
    help="Lock the SM clock of the GPUs for the run.",
)
@number_option(
    "--mem-clock",
    "mem_clock_mhz",
    positive("MHz"),
    metavar="MHZ",
    help="Lock the memory clock of the GPUs for the run.",
)
@number_option(
    "--cpu-limit",
    "cpu_limit_w",
    positive("W"),
    metavar="WATTS",
    help="Set the power limit of each CPU package for the run.",
)
@click.option(
    "--gpu",
    "gpus",
    metavar="N,N...",
    help="Set only the GPUs with these NVML indices. [default: those that CMD can see]",
)
@click.option("--force", is_flag=True, help="Set GPUs even while other users use them.")
@click.option(
    "--json",
    "json_path",
    metavar="PATH",
    help="Also write the result as JSON to PATH; - (stdout) only with --pid, as CMD uses stdout.",
)
@number_option(
    "--pid",
    Whole(min=1),
    metavar="PID",
    help="Measure a running process until it ends, instead of CMD; Ctrl-C stops measuring.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD...]")
@pass_store
def command(
    store: Path,
    *,
    command: tuple[str, ...],
    pid: int | None,
    json_path: str | None,
    **given: Any,
) -> int:
    """Run CMD and measure its energy.

    CMD keeps its input, output, signals and exit status. Epochs and steps of Python programs are
    marked without changing them (Keras, PyTorch, Lightning, Hugging Face).
    """
    _check_request(command, pid, json_path)
    check_names(given["name"], given["tags"])
    from joulewise.session.budget import parse_budget
    from joulewise.session.group import job_id

    request = Request(
        name=given["name"] or "",
        group=job_id(os.environ) if given["group"] is None else given["group"],
        hooks=not given["no_hooks"],
        **{name: given[name] for name in _REQUEST_OPTIONS},
    )
    parsed_budgets = [parse_budget(text, request.gco2_per_kwh) for text in request.budgets]
    settings = Settings(
        gpus=gpu_indices(given["gpus"]), **{name: given[name] for name in _SETTING_OPTIONS}
    )
    with closing(_apply_settings(settings)) as applied:
        request = replace(request, settings=applied.as_json())
        outcome = _measure(command, pid, store, request, parsed_budgets, applied=applied)
    try:
        _show_result(outcome, json_path, request, joulewise_command(store))
    except Exception as error:  # noqa: BLE001  # the exit status is the command's in any case
        say(f"the result cannot be shown: {type(error).__name__}: {error}")
    return outcome.exit_status or (JoulewiseError.exit_status if applied.unrestored else 0)


def _measure(
    command: tuple[str, ...],
    pid: int | None,
    store: Path,
    request: Request,
    parsed_budgets: Sequence[Budget],
    *,
    applied: AppliedSettings,
) -> CommandOutcome:
    from joulewise.session.run import RunCallbacks, run

    voice = RunCallbacks(_show_opening, say, applied)
    if pid is None:
        return run(command, store, request, parsed_budgets, voice)
    from joulewise.session.attached_process import attach

    return attach(pid, store, request, parsed_budgets, voice)


def _apply_settings(settings: Settings) -> AppliedSettings:
    if settings.is_nothing:
        return AppliedSettings((), say)
    applied = apply_settings(settings, os.environ, say)
    for line in (*applied.describe(), *applied.notes):
        say(line)
    return applied


def _check_request(command: tuple[str, ...], pid: int | None, json_path: str | None) -> None:
    """Raise where the request is wrong, before anything starts."""
    try:
        import fcntl  # noqa: F401  # a system that has it also has the signals and sockets we need
    except ImportError:
        raise UsageError(
            "`run` does not work on this system", "use Linux, macOS, or WSL on Windows"
        ) from None
    if pid is None and not command:
        raise UsageError("no command to run", "write it after --, as in: -- python train.py")
    if pid is not None and command:
        raise UsageError("a command and --pid cannot be combined", "leave out one of them")
    if json_path == STDOUT and pid is None:
        raise UsageError("stdout belongs to the command", "give --json a file")
    if json_path and json_path != STDOUT and not _is_writable(Path(json_path)):
        raise UsageError(f"cannot write {json_path}", "give --json a file that you can write to")


def _is_writable(path: Path) -> bool:
    """Whether the file, or its folder where it does not exist, is writable."""
    return not is_folder(path) and os.access(path if path_exists(path) else path.parent, os.W_OK)


def _show_opening(ready: Ready) -> None:
    from joulewise.process import linux
    from joulewise.report.terminal.opening import opening

    if not linux.IS_LINUX:
        say(_NOT_LINUX)
    say(opening(ready))


def _show_result(
    outcome: CommandOutcome, json_path: str | None, request: Request, again: str
) -> None:
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
                sys.stderr.write("\n")  # after the ^C that the terminal shows
            draw(outcome.result, console(stderr=True), rates=rates, program=again)


def _as_json(outcome: CommandOutcome) -> dict[str, Any]:
    if outcome.result is None:
        name = outcome.run and outcome.run.name
        return {"id": name, "exit_code": outcome.exit_status, "energy_j": None}
    from joulewise.data.run_result_json import as_json

    return as_json(outcome.result)

"""``joulewise run``: measures the energy of a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.options import (
    Whole,
    gpu_indices,
    gpu_options,
    number_option,
    positive,
    recording_options,
)
from joulewise.cli.output import STDOUT, joulewise_command, pass_store, say
from joulewise.errors import JoulewiseError, UsageError
from joulewise.session.request import Ready, Request, check_names
from joulewise.session.settings import AppliedSettings, Settings, apply_settings
from joulewise.store.files import is_folder, path_exists

if TYPE_CHECKING:
    from joulewise.budget import Budget
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
@recording_options
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
@gpu_options
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
    _check_command_or_pid(command, pid)
    check_json_path(json_path, is_stdout_free=pid is not None)
    request, budgets = make_request(given)
    settings = Settings(
        gpus=gpu_indices(given["gpus"]), **{name: given[name] for name in _SETTING_OPTIONS}
    )
    again = joulewise_command(store)
    with closing(_apply_settings(settings)) as applied:
        request = replace(request, settings=applied.as_json())
        outcome = _measure(command, pid, store, request, budgets, applied=applied)
    show_outcome(outcome, json_path, request, again)
    return outcome.exit_status or (JoulewiseError.exit_status if applied.unrestored else 0)


def make_request(given: Mapping[str, Any]) -> tuple[Request, list[Budget]]:
    """The recording that ``recording_options`` describe, and its budgets."""
    from joulewise.budget import parse_budget
    from joulewise.session.group import job_id

    check_names(given["name"], given["tags"])
    request = Request(
        name=given["name"] or "",
        group=job_id(os.environ) if given["group"] is None else given["group"],
        hooks=not given["no_hooks"],
        **{name: given[name] for name in _REQUEST_OPTIONS},
    )
    return request, [parse_budget(text, request.gco2_per_kwh) for text in request.budgets]


def _measure(
    command: tuple[str, ...],
    pid: int | None,
    store: Path,
    request: Request,
    budgets: Sequence[Budget],
    *,
    applied: AppliedSettings,
) -> CommandOutcome:
    from joulewise.session.run import RunCallbacks, run

    callbacks = RunCallbacks(show_opening, say, applied)
    if pid is None:
        return run(command, store, request, budgets, callbacks)
    from joulewise.session.attached_process import attach

    return attach(pid, store, request, budgets, callbacks)


def _apply_settings(settings: Settings) -> AppliedSettings:
    if settings.is_nothing:
        return AppliedSettings((), say)
    applied = apply_settings(settings, os.environ, say)
    for line in (*applied.describe(), *applied.notes):
        say(line)
    return applied


def check_system(verb: str) -> None:
    """Raise where this system lacks what measuring a command needs."""
    try:
        import fcntl  # noqa: F401  # a system that has it also has the signals and sockets we need
    except ImportError:
        raise UsageError(
            f"`{verb}` does not work on this system", "use Linux, macOS, or WSL on Windows"
        ) from None


def check_command(command: tuple[str, ...]) -> None:
    if not command:
        raise UsageError("no command to run", "write it after --, as in: -- python train.py")


def _check_command_or_pid(command: tuple[str, ...], pid: int | None) -> None:
    check_system("run")
    if pid is None:
        check_command(command)
    elif command:
        raise UsageError("a command and --pid cannot be combined", "leave out one of them")


def check_json_path(json_path: str | None, *, is_stdout_free: bool = False) -> None:
    """Raise where the result cannot be written there, before anything starts."""
    if json_path == STDOUT and not is_stdout_free:
        raise UsageError("stdout belongs to the command", "give --json a file")
    if json_path and json_path != STDOUT and not _is_writable(Path(json_path)):
        raise UsageError(f"cannot write {json_path}", "give --json a file that you can write to")


def _is_writable(path: Path) -> bool:
    """Whether the file, or its folder where it does not exist, is writable."""
    return not is_folder(path) and os.access(path if path_exists(path) else path.parent, os.W_OK)


def show_opening(ready: Ready) -> None:
    """Say what is being measured."""
    from joulewise.process import linux
    from joulewise.report.terminal.opening import opening

    if not linux.IS_LINUX:
        say(_NOT_LINUX)
    say(opening(ready))


def show_outcome(
    outcome: CommandOutcome,
    json_path: str | None,
    request: Request,
    again: str,
    more: Callable[[], Mapping[str, Any]] = dict,
) -> None:
    """Print the result and write its JSON with what ``more`` returns; it never raises.

    The exit status is the command's in any case.
    """
    try:
        _show_outcome(outcome, json_path, request, again, more)
    except Exception as error:  # noqa: BLE001
        say(f"the result cannot be shown: {type(error).__name__}: {error}")


def _show_outcome(
    outcome: CommandOutcome,
    json_path: str | None,
    request: Request,
    again: str,
    more: Callable[[], Mapping[str, Any]],
) -> None:
    if outcome.result is None and outcome.run:
        say(f"{outcome.remark}; see: {again} show {outcome.run.name}")
    elif outcome.remark:
        say(outcome.remark)
    if json_path:
        from joulewise.cli.output import write_json

        try:
            write_json({**_as_json(outcome), **_logged_json(outcome), **more()}, json_path)
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


def _logged_json(outcome: CommandOutcome) -> dict[str, Any]:
    from joulewise.store.logged_values import logged_json

    return {"logged": logged_json(outcome.run) if outcome.run else []}


def _as_json(outcome: CommandOutcome) -> dict[str, Any]:
    if outcome.result is None:
        name = outcome.run and outcome.run.name
        return {"id": name, "exit_code": outcome.exit_status, "energy_j": None}
    from joulewise.data.run_result_json import as_json

    return as_json(outcome.result)

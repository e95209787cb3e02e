"""The command line: one thin file a verb, and the one place where an error is printed.

``options.py`` has the options that verbs share, ``output.py`` what they print and write. All other
modules are verbs, imported only when they are used.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import click

from joulewise.cli.output import lenient_stderr, restore_leftovers, say, show_index_progress
from joulewise.errors import JoulewiseError, UsageError, did_you_mean
from joulewise.process.descriptors import reserve_standard_descriptors
from joulewise.store.index.progress import ProgressSlot

VERBS = {
    "run": "measure the energy of a command",
    "sweep": "run a command at many settings, and compare their energy and time",
    "choose": "find the best setting of a sweep, what it saves and what it costs",
    "ls": "list the stored runs with their time and energy",
    "show": "show the result of a run, or of a group of runs",
    "compare": "compare two runs, groups of runs or sweeps",
    "report": "write an HTML report with tables, figures and data",
    "view": "browse the store, or follow a run in progress",
    "export": "export a run's trace or spans as CSV, JSON or Parquet",
    "rm": "delete runs",
    "doctor": "list devices, sensors and settings, and how to fix what is missing",
    "calibrate": "measure the timing and the calibration error of a GPU's power sensor",
    "restore": "put back settings that a killed joulewise left changed",
    "guard": "run the service that changes settings for users without root",
    "sim": "run a command on simulated GPUs",
    "demo": "sweep a simulated V100 and choose a setting, in seconds",
}
# Verbs that restore leftovers themselves, or run other joulewise commands that do.
_WITHOUT_RECOVERY = {"restore", "guard", "sim"}
_READER_GONE = 128 + 13  # the exit status by SIGPIPE, which Python ignores
# Errors of writing to a full disk, over a quota or to a dead terminal.
_OUTPUT_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


class _Verbs(click.Group):
    """Loads a verb's file only when that verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in VERBS:
            return None
        command = import_module(f"joulewise.cli.{cmd_name}").command
        assert isinstance(command, click.Command)  # noqa: S101
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not args[0].startswith("-"):
            suggestion = did_you_mean(args[0], VERBS).rstrip()
            ctx.fail(f"there is no verb {args[0]!r}{suggestion and f'; {suggestion}'}")
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            _check_option_values(args[0], command, rest)
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


def _check_option_values(verb: str, command: click.Command, arguments: Sequence[str]) -> None:
    """Raise where ``--`` or another option follows an option that needs a value.

    click would take it for the value: ``run --name -- true`` would make a run named ``--``.
    """
    options = {
        word: option
        for option in command.params
        if isinstance(option, click.Option)
        for word in (*option.opts, *option.secondary_opts)
    }
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--" or (not word.startswith("-") and not command.allow_interspersed_args):
            return
        option = options.get(word)
        if option is None or option.is_flag or option.count:
            continue
        value = rest.pop(0) if rest else ""  # click refuses one that is not there
        if value == "--" or value in options:
            raise UsageError(
                f"{word} needs a value, but is followed by {value}",
                f"write {word}={option.make_metavar(click.Context(command))}; "
                f"see: joulewise {verb} --help",
            )


@click.command(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.version_option(package_name="joulewise")
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    envvar="JOULEWISE_STORE",
    default="joulewise-runs",
    metavar="DIR",
    help="Folder of the runs. [default: $JOULEWISE_STORE, or joulewise-runs]",
)
@click.pass_context
def joulewise(ctx: click.Context, store: Path) -> None:
    """Measure what deep-learning training costs in joules, and find settings that cost fewer."""
    ctx.obj = store  # verbs get it with click.pass_obj
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    elif ctx.invoked_subcommand not in _WITHOUT_RECOVERY:
        restore_leftovers()


def main() -> None:
    """Run the command line; every error is printed here, as two lines, and sets the status."""
    reserve_standard_descriptors()
    ProgressSlot.observer = staticmethod(show_index_progress)
    with lenient_stderr():
        _main()


def _main() -> NoReturn:
    try:
        status = joulewise.main(standalone_mode=False)
    except JoulewiseError as error:
        _fail(error.message, error.hint, error.exit_status)
    except click.UsageError as error:
        where = f"{error.ctx.command_path} --help" if error.ctx else "joulewise --help"
        _fail(error.format_message(), f"see: {where}", 2)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except SystemExit:  # how click and rich end when the reader of the output has gone
        sys.exit(_READER_GONE)
    except Exception as error:  # no traceback reaches a user
        if "JOULEWISE_DEBUG" in os.environ:
            raise
        if isinstance(error, OSError) and error.errno in _OUTPUT_ERRORS and not error.filename:
            # The rest of the buffer would fail again, with a traceback, when Python exits.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _fail(
                f"cannot write the output: {error.strerror}",
                "free some disk space, or write the output elsewhere",
                125,
            )
        _fail(
            f"unexpected {type(error).__name__}: {error}",
            "this is a bug in joulewise: please report it with the output of JOULEWISE_DEBUG=1",
            125,
        )
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str, hint: str, status: int) -> NoReturn:
    say(message, hint)
    sys.exit(status)

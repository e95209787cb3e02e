"""The command line: one thin file a verb, and the one place where an error is printed."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import click

from joulewise.cli.leftovers import put_back_leftovers
from joulewise.cli.output import lenient_stderr, say, show_index_progress
from joulewise.errors import JoulewiseError, UsageError, did_you_mean
from joulewise.process.descriptors import reserve_standard_descriptors
from joulewise.store.index.progress import ProgressSlot

VERBS = {
    "run": "measures a command: what it takes in joules, and where",
    "sweep": "tries settings: which cost fewer joules, and how much time that takes",
    "choose": "the setting that a metric prefers, what it saves and what it costs",
    "ls": "the stored runs: how each ended, its time and its energy",
    "show": "what a run came to, or a group of runs",
    "compare": "what B takes more or less than A: runs, groups of runs, sweeps",
    "report": "one HTML file that opens offline: verdict, tables, figures, data",
    "view": "the store as pages on this machine, or a run in progress on a terminal",
    "export": "a run's trace and spans as CSV, JSON or Parquet",
    "rm": "deletes runs",
    "doctor": "every device, sensor and knob: available, or why not and the exact fix",
    "calibrate": "what this board's sensor really does: update period, window, lag, gain",
    "restore": "puts back what an earlier joulewise left set",
    "guard": "a service that turns knobs for users who lack the right",
    "sim": "runs any NVML client on simulated GPUs",
    "demo": "the whole story on a simulated V100, in seconds",
}
# These put back by themselves, or run others that do.
_LEAVING = {"restore", "guard", "sim"}
_LEFT = 128 + 13  # as of SIGPIPE, which Python ignores
# How writing to a full disk, over a quota or to a dead terminal ends.
_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


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
            ask = did_you_mean(args[0], VERBS).rstrip()
            ctx.fail(f"there is no verb {args[0]!r}{ask and f'; {ask}'}")
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None:
            _refuse_missing_values(args[0], command, rest)
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


def _refuse_missing_values(verb: str, command: click.Command, arguments: Sequence[str]) -> None:
    """Raise where ``--`` or another option stands in the place of an option's value.

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
                f"{word} needs a value, and {value} follows it",
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
    help="The folder with the runs. [default: $JOULEWISE_STORE, or joulewise-runs]",
)
@click.pass_context
def joulewise(ctx: click.Context, store: Path) -> None:
    """What deep-learning training costs in joules, and the settings that cost fewer."""
    ctx.obj = store  # a verb gets it with click.pass_obj
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
    elif ctx.invoked_subcommand not in _LEAVING:
        put_back_leftovers()


def main() -> None:
    """Run the command line; every error ends here, as two lines and an exit status."""
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
    except SystemExit:  # how click and rich end where whoever read the output has left
        sys.exit(_LEFT)
    except Exception as error:  # no traceback reaches a user
        if "JOULEWISE_DEBUG" in os.environ:
            raise
        if isinstance(error, OSError) and error.errno in _UNWRITABLE and not error.filename:
            # What is left in the buffer would fail again, and aloud, at the interpreter's end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            _fail(
                f"cannot write the output: {error.strerror}",
                "make room there, or send the output elsewhere",
                125,
            )
        _fail(
            f"unexpected {type(error).__name__}: {error}",
            "this is a bug in joulewise; JOULEWISE_DEBUG=1 shows where, please report it",
            125,
        )
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str, hint: str, status: int) -> NoReturn:
    say(message, hint)
    sys.exit(status)

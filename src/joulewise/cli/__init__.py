"""The command line: one thin file a verb, and the one place where an error is printed.

``options.py`` has the options that verbs share, ``output.py`` what they print and write,
``report_files.py`` writes the reports of ``report`` and ``job report``, and ``groups.py`` loads
verbs. All other modules are verbs, imported only when they are used; ``job/`` has the verbs of
``joulewise job``.
"""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from joulewise.cli.groups import VerbGroup
from joulewise.cli.output import lenient_stderr, restore_leftovers, say, show_index_progress
from joulewise.errors import JoulewiseError
from joulewise.process.descriptors import reserve_standard_descriptors
from joulewise.store.index.progress import ProgressSlot

VERBS = {
    "run": "measure the energy of a command",
    "tune": "find the best power limit or clock of a command while it runs",
    "job": "run a training that recurs, and learn which batch size costs least",
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


@click.command(
    cls=VerbGroup,
    verbs=VERBS,
    package=__name__,
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
    """Measure the energy of deep-learning training, and find settings that need less."""
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

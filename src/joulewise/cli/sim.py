"""``joulewise sim``: runs a command on simulated GPUs."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from joulewise.cli.options import Whole, number_option
from joulewise.cli.output import SIM_COMMAND
from joulewise.simulate.boards import BOARDS
from joulewise.simulate.workloads import WORKLOADS

EPILOG = f"""GPUs: {", ".join(BOARDS)}. Workloads: {", ".join(WORKLOADS)}.

\b
Examples:
  joulewise sim --gpu v100x8 --workload resnet50 -- nvidia-smi
  joulewise sim --gpu v100,rtx6000 --truth truth.csv -- python train.py
  joulewise sim --gpu v100 --fault gpu0:lost@5s -- gpustat --watch
"""


@click.command(
    epilog=EPILOG,
    context_settings={"allow_interspersed_args": False},
    options_metavar="--gpu GPUS [OPTIONS]",
)
@click.option(
    "--gpu",
    "gpus",
    metavar="GPUS",
    required=True,
    help="Simulate these GPUs: v100, v100x8, or a mix such as v100x2,rtx6000.",
)
@click.option("--workload", metavar="NAME", help="Run this workload on every GPU from the start.")
@number_option(
    "--batch-size", Whole(min=1), help="Batch size of the workload. [default: the workload's own]"
)
@click.option(
    "--truth",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the exact energy of each GPU to FILE as CSV.",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="SPEC",
    help="Inject a fault, such as gpu0:lost@5s; may be repeated.",
)
@click.option(
    "--latency",
    type=click.Choice(["driver", "none"]),
    default="driver",
    show_default=True,
    help="Let calls take as long as those of a real driver, or no time.",
)
@number_option("--seed", Whole(min=0), default=0, help="Seed of the differences between boards.")
@click.option(
    "--persistence",
    type=click.Choice(["on", "off"]),
    help="Keep limits and counters when the last client has left. [default: as the board does]",
)
@click.option(
    "--as-root",
    is_flag=True,
    help="Let every user set limits and clocks, as root can.",
)
@click.option(
    "--accounting",
    is_flag=True,
    help="Start with accounting mode on: the driver remembers processes that have ended.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- CMD...")
def command(
    *, command: tuple[str, ...], latency: str, persistence: str | None, **given: Any
) -> int:
    """Run CMD on simulated GPUs.

    CMD and everything it starts see the GPUs through NVML and nvidia-smi. It keeps its input,
    output, signals and exit status.
    """
    environ = {**os.environ, SIM_COMMAND: _command_line(sys.argv[1:], command)}
    # Read when numpy is first imported: these computations are too small for threads.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from joulewise.simulate.realtime.launch import prepare_simulation, run_simulation

    plan = prepare_simulation(
        command=command,
        environ=environ,
        latency=latency == "driver",
        persistence=None if persistence is None else persistence == "on",
        **given,
    )
    return run_simulation(plan)


def _command_line(arguments: Sequence[str], command: Sequence[str]) -> str:
    """The command line that starts this simulation, up to its command."""
    options = list(arguments[: len(arguments) - len(command)])
    if options[-1:] == ["--"]:
        options.pop()
    return shlex.join(["joulewise", *options, "--"])

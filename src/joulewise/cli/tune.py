"""``joulewise tune``: finds the best setting of the GPUs while a command trains, and holds it."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from joulewise.cli.options import (
    Number,
    Whole,
    boundary_options,
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
    show_outcome,
)
from joulewise.errors import JoulewiseError
from joulewise.optimise.live.tuner_client import DEFAULT_METRIC

if TYPE_CHECKING:
    from joulewise.optimise.live.tuner_client import TuningRequest
    from joulewise.process.output_copy import CopiedOutput
    from joulewise.session.request import Ready
    from joulewise.session.run import CommandOutcome

EPILOG = """\b
Examples:
  joulewise tune -- python train.py
  joulewise tune --by energy --max-slowdown 1.05 -- python train.py
  joulewise tune --axis power-limit --prove --keep-checking 2% -- python train.py
  joulewise tune --progress '(?P<step>[0-9]+)/[0-9]+ \\[' -- python train.py
  joulewise tune --by edp --boundary wall --overhead-w 150 -- python train.py
"""


_ENDED_BEFORE: Final = "the command ended before there was a step to measure"


class _Share(Number):
    """A share of a whole, as ``2%`` or ``0.02``."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value).strip()
        if not text.endswith("%"):
            return super().convert(value, param, ctx)
        try:
            return super().convert(float(text[:-1]) / 100, param, ctx)
        except ValueError:
            self.fail(f"{value!r} is not a share.", param, ctx)


@click.command(epilog=EPILOG, context_settings={"allow_interspersed_args": False})
@click.option(
    "--by",
    metavar="METRIC",
    default=DEFAULT_METRIC,
    show_default=True,
    help="Metric to tune by: energy, time, edp, ed2p, eds:2.0, cost:0.5 or slowdown:1.1.",
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
@boundary_options(boundary="gpu")
@click.option(
    "--prove",
    is_flag=True,
    help="After the choice, alternate between the chosen setting and the reference until the "
    "saving is known to 1 %.",
)
@number_option(
    "--keep-checking",
    _Share(min=0, max=0.5),
    metavar="SHARE",
    default=0.0,
    show_default=False,
    help="After the choice, run this share of the steps, such as 2%, at the reference, so that the "
    "saving is measured to the end. [default: none]",
)
@click.option(
    "--progress",
    metavar="REGEX",
    help="Take each match of REGEX in a line of CMD's output for a step, for programs that "
    "mark none; a group named step is the number of steps done.",
)
@number_option("--seed", Whole(min=0), default=0, help="Seed of the search.")
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
    command: tuple[str, ...],
    json_path: str | None,
    **given: Any,
) -> int:
    """Find the best setting of the GPUs while CMD trains, and hold it until CMD ends.

    Settings are tried for a few steps each; the one that is best by the metric is kept. CMD is
    measured as by `joulewise run`, and when it ends, the settings are what they were before. If
    the GPUs cannot be tuned, CMD runs without tuning, and a line says why.
    """
    check_system("tune")
    check_command(command)
    check_json_path(json_path)
    wanted = _tuning_request(given)
    request, budgets = make_request(given)
    from joulewise.optimise.live.tuner_client import TunerClient
    from joulewise.process.output_copy import named_pipe
    from joulewise.session.run import RunCallbacks, original_environ, run

    again = joulewise_command(store)
    with ExitStack() as stack:
        with named_pipe() if wanted.progress else nullcontext() as pipe:
            wanted = replace(wanted, output=str(pipe or ""))
            tuner = stack.enter_context(closing(TunerClient.start(wanted, original_environ(), say)))
            output = _copy_output(pipe) if pipe and not tuner.reason else None
        if output:
            stack.callback(output.close)

        def open_both(ready: Ready) -> None:
            show_opening(ready)
            tuner.begin(ready.run)

        outcome = run(command, store, request, budgets, RunCallbacks(open_both, say, tuner, output))
    reason = tuner.reason or _ENDED_BEFORE
    more = partial(_tune_json, outcome, wanted, reason)
    show_outcome(outcome, json_path, request, again, more)
    if not _show_tuning(outcome, tuner.unwritten) and not tuner.reason:
        say(f"nothing was tuned: {_ENDED_BEFORE}")
    return outcome.exit_status or (JoulewiseError.exit_status if tuner.unrestored else 0)


def _copy_output(pipe: Path) -> CopiedOutput | None:
    from joulewise.process.output_copy import CopiedOutput

    try:
        return CopiedOutput(pipe)
    except OSError as error:  # no terminal or pipe is left: the command runs as it is
        say(f"its output cannot be read, and nothing is tuned by it: {error.strerror}")
        return None


def _tuning_request(given: dict[str, Any]) -> TuningRequest:
    from joulewise.metrics.boundary import View
    from joulewise.optimise.live.tuner_client import TuningRequest

    view = View(given["boundary"], overhead_w=given["overhead_w"], pue=given["pue"])
    return TuningRequest.checked(
        given["by"],
        given["axes"],
        view,
        gpus=gpu_indices(given["gpus"]),
        force=given["force"],
        max_slowdown=given["max_slowdown"],
        prove=given["prove"],
        keep_checking=given["keep_checking"],
        seed=given["seed"],
        progress=_progress(given["progress"]),
    )


def _progress(expression: str | None) -> str:
    from joulewise.optimise.live.tuner_client import compile_progress

    return "" if expression is None else compile_progress(expression).pattern


def _show_tuning(outcome: CommandOutcome, unwritten: str) -> bool:
    """Print what was tuned, below the result of the run; False where nothing was. Never raises."""
    from joulewise.cli.output import console
    from joulewise.report.terminal.tuning import draw
    from joulewise.store.tuning_file import load_tuning

    try:
        tuning = load_tuning(outcome.run) if outcome.run else None
        if tuning and sys.stderr is not None:
            draw(tuning, console(stderr=True))
    except JoulewiseError as error:
        say(f"the tuning cannot be shown: {error.message}", error.hint)
        return True
    except Exception as error:  # noqa: BLE001  # the exit status is the command's in any case
        say(f"the tuning cannot be shown: {type(error).__name__}: {error}")
        return True
    if tuning is None and unwritten:
        say(f"the tuning cannot be shown: it could not be written: {unwritten}")
        return True
    return tuning is not None


def _tune_json(outcome: CommandOutcome, wanted: TuningRequest, reason: str) -> dict[str, Any]:
    from joulewise.data.tuning import tune_json
    from joulewise.store.tuning_file import read_tuning

    tuning = read_tuning(outcome.run) if outcome.run else None
    if tuning:
        return {"tune": tune_json(tuning)}
    nothing: dict[str, Any] = {
        "chosen": None,
        "reference": None,
        "tried": [],
        "saving": None,
        "exploration": None,
    }
    nothing |= {"step_source": None, "program_metrics": [], "early_end": None}
    head = {"metric": wanted.metric, "axes": list(wanted.axes), "settled": False, "reason": reason}
    return {"tune": {**head, **nothing, "changes": []}}

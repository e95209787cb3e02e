"""``joulewise sweep``: runs the same command at many settings."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.options import (
    POSITIVE,
    Number,
    Whole,
    gpu_indices,
    metric_options,
    number_option,
    parse_pairs,
    price_option,
)
from joulewise.cli.output import (
    STDOUT,
    in_simulation,
    joulewise_command,
    json_option,
    pass_store,
    say,
    write_json,
)
from joulewise.data.sweeps import CONTROL_KEYS, control_option
from joulewise.errors import JoulewiseError, UsageError

if TYPE_CHECKING:
    from joulewise.data.sweeps import Sweep
    from joulewise.sweep.lifecycle import PreparedSweep
    from joulewise.sweep.lock import SignalInterrupt
    from joulewise.sweep.spec import SweepSpec

EPILOG = """\b
Examples:
  joulewise sweep --power-limit 150:300:25 -- python train.py
  joulewise sweep --power-limit 50%:100%:10% --set batch_size=32,64 -- \\
    python train.py --batch-size {batch_size}
  joulewise sweep --adaptive --by edp --power-limit full -- python train.py
  joulewise sweep --sim v100 --workload resnet50 --power-limit full
  joulewise sweep benchmarks.toml
"""
_SPEC_OPTIONS = (
    *("repeat", "seed", "warm_up", "cool_down", "each_gpu", "max_slowdown", "timeout_s", "on"),
    *("adaptive", "by", "boundary", "overhead_w", "pue", "rate_hz", "force", "name"),
)
_OPTIONS_WITH_FILE = {"command", "new", "dry_run", "price_per_kwh"}
_DEFAULT_METRIC = "edp"
"""The metric of the suggested next commands where no --by is given."""

_ON_COMMAND_LINE = click.core.ParameterSource.COMMANDLINE


@click.command(epilog=EPILOG, context_settings={"allow_interspersed_args": False})
@click.option(
    "--power-limit",
    metavar="WATTS",
    help="Try these power limits: 150:300:5, 150,200, 50%:100%:5% of the default, or full.",
)
@click.option("--sm-clock", metavar="MHZ", help="Try these SM clocks, written the same way.")
@click.option("--mem-clock", metavar="MHZ", help="Try these memory clocks, written the same way.")
@click.option("--cpu-limit", metavar="WATTS", help="Try these power limits of the CPU packages.")
@click.option(
    "--set",
    "own",
    multiple=True,
    metavar="NAME=V,V...",
    help="Try these values for {NAME} in the command; may be repeated.",
)
@click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="NAME=V",
    help="Setting to compare with. [default: the first value; of power limits and clocks, the "
    "device's default]",
)
@number_option("--repeat", Whole(min=1), default=5, help="Run each setting N times.")
@number_option("--seed", Whole(min=0), default=0, help="Seed of the random order.")
@number_option("--warm-up", Whole(min=0), default=0, help="Start with N runs that do not count.")
@click.option(
    "--cool-down",
    default="",
    metavar="TIME|TEMP",
    help="Wait between runs: for a time (60s), or until a temperature (50C). [default: no wait]",
)
@click.option(
    "--gpu",
    "gpus",
    metavar="N,N...",
    help="Set only the GPUs with these NVML indices. [default: those that CMD can see]",
)
@click.option("--each-gpu", is_flag=True, help="Run on every GPU at the same time, one run each.")
@number_option(
    "--max-slowdown",
    Number(min=1),
    metavar="F",
    help="Once a setting took more than F times as long as the reference, skip those that can "
    "only be slower.",
)
@number_option(
    "--timeout",
    "timeout_s",
    POSITIVE,
    metavar="SECONDS",
    help="End the command of a run after this time. [default: never]",
)
@click.option("--adaptive", is_flag=True, help="Search for the best setting with few runs.")
@metric_options(boundary="gpu")
@number_option(
    "--tolerance",
    Number(min=0, max=50, min_open=True),
    metavar="PERCENT",
    help="How far the result may be from the best, in percent, with --adaptive.",
)
@click.option("--sim", metavar="GPU", help="Run on a simulated GPU, in simulated time.")
@click.option("--workload", metavar="NAME", help="Simulate this workload, such as resnet50.")
@click.option("--like", metavar="RUN", help="Simulate the workload of this recorded run.")
@number_option(
    "--run-noise",
    Number(min=0, max=50),
    metavar="PERCENT",
    help="How much simulated runs differ, in percent. [default: as measured]",
)
@click.option("--on", default="", metavar="ray[://HEAD]", help="Run on a Ray cluster.")
@number_option(
    "--rate",
    "rate_hz",
    POSITIVE,
    metavar="HZ",
    help="Read power and counters so many times per second. [default: as in joulewise run]",
)
@click.option("--no-hooks", is_flag=True, help="Do not mark epochs and steps of Python programs.")
@click.option("--force", is_flag=True, help="Set GPUs even while other users use them.")
@click.option("--name", default="", metavar="NAME", help="Name the sweep.")
@price_option("Price of a kWh, in any currency; adds the cost to the plan of --dry-run.")
@click.option("--dry-run", is_flag=True, help="Show the plan and what it will take; run nothing.")
@click.option("--new", is_flag=True, help="Start a new sweep instead of resuming an earlier one.")
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[FILE.toml | -- CMD...]")
@pass_store
def command(store: Path, *, json_path: str | None, **given: Any) -> int:
    """Run CMD at many settings, repeated and in random order, and compare energy and time.

    The same command resumes a sweep that was interrupted, and repeats runs that failed. Power
    limits and clocks are put back after each run.
    """
    from joulewise.sweep.lock import SignalInterrupt, raise_on_signals

    finished: list[tuple[Sweep, int]] = []
    try:
        with raise_on_signals():
            return _run_sweeps(store, given, json_path, finished)
    except SignalInterrupt as error:
        raise _interruption_error(error, finished, joulewise_command(store)) from None


def _run_sweeps(
    store: Path, given: Mapping[str, Any], json_path: str | None, finished: list[tuple[Sweep, int]]
) -> int:
    """Run all sweeps; add each to ``finished``, with how many are left after it."""
    from joulewise.process.failpoints import failpoint
    from joulewise.sweep.lifecycle import find_continued, gpus_of, prepare
    from joulewise.sweep.lock import reserve_gpus

    failpoint("sweep-asked")
    # All of them are checked before the first run.
    prepared_sweeps = [prepare(_check_tolerance(spec)) for spec in _read_specs(given)]
    if given["dry_run"]:
        return _show_plans(prepared_sweeps, store, given["price_per_kwh"], json_path)
    failpoint("sweep-prepared")
    results, failed = [], False
    with reserve_gpus(gpus_of(prepared_sweeps)):
        for prepared, folder in zip(
            prepared_sweeps, find_continued(prepared_sweeps, store, new=given["new"]), strict=True
        ):
            sweep = _run_sweep(prepared, store, folder, finished, len(prepared_sweeps))
            failpoint("sweep-made")
            results.append(_show_sweep(prepared.asked, sweep, store, is_drawn=json_path != STDOUT))
            failed |= any(trial.state.value == "failed" for trial in sweep.trials)
    _write(results, json_path)
    if failed:
        say("the same command repeats the runs that failed; with --new it repeats all of them")
    return int(failed)


def _interruption_error(
    error: SignalInterrupt, finished: Sequence[tuple[Sweep, int]], again: str
) -> JoulewiseError:
    """The error for a signal between two runs: what is stored, and the command that resumes."""
    from joulewise.sweep.lock import BetweenRunsError, CutOffError

    before: BaseException | None = error
    while before is not None:  # a second signal while the first was being handled
        if isinstance(before, CutOffError):
            return before
        before = before.__context__
    if not finished:
        return BetweenRunsError(
            error.signal, "no run was finished yet", f"to resume: {_resume_command(sys.argv[1:])}"
        )
    sweep, left = finished[-1]
    if left:
        return BetweenRunsError(
            error.signal,
            f"sweep {sweep.id} is finished, {left} more of the file are left",
            f"to resume: {_resume_command(sys.argv[1:])}",
        )
    message = f"sweep {sweep.id} is finished, its result was not shown"
    return BetweenRunsError(error.signal, message, f"to see it: {again} choose {sweep.id}")


def _run_sweep(
    prepared: PreparedSweep,
    store: Path,
    folder: Path | None,
    finished: list[tuple[Sweep, int]],
    number: int,
) -> Sweep:
    from joulewise.cli.output import console
    from joulewise.metrics.metric import default_metrics, parse
    from joulewise.report.terminal.progress import SweepProgress
    from joulewise.sweep.lifecycle import run_sweep
    from joulewise.sweep.lock import CutOffError, SignalInterrupt

    for note in prepared.space.notes:
        say(note)
    metric = parse(prepared.asked.by[0]) if prepared.asked.by else default_metrics()[0]
    try:
        with SweepProgress(console(stderr=True), metric, say) as watch:
            sweep = run_sweep(prepared, store, watch, folder)
            finished.append((sweep, number - len(finished) - 1))
            return sweep
    except SignalInterrupt as error:
        if error.sweep is not None:
            finished.append((error.sweep, number - len(finished) - 1))
        raise
    except CutOffError as error:
        error.hint = f"to resume: {_resume_command(sys.argv[1:])}"
        raise


def _resume_command(arguments: Sequence[str]) -> str:
    """The command that resumes this one, within the same simulation if there is one."""
    ours = list(arguments)
    if "--new" in ours[: ours.index("--") if "--" in ours else None]:
        ours.remove("--new")
    return in_simulation(shlex.join(["joulewise", *ours]))


def _show_sweep(spec: SweepSpec, sweep: Sweep, store: Path, *, is_drawn: bool) -> dict[str, Any]:
    """The result as JSON; also drawn where ``is_drawn``."""
    from joulewise.cli.output import console, evaluate_sweep
    from joulewise.metrics.boundary import View
    from joulewise.report.terminal.sweep import draw
    from joulewise.report.views.projection import next_commands, outlook
    from joulewise.report.views.sweep import result_json, sweep_outcome
    from joulewise.report.views.sweep import search_as_json as went_json
    from joulewise.store.layout import SWEEPS

    view = View(spec.boundary, overhead_w=spec.overhead_w, pue=spec.pue)
    result, view = evaluate_sweep(sweep, spec.by, view)
    folder = store / SWEEPS / sweep.id
    if is_drawn:
        projections = outlook(sweep, result, view)
        shown = tuple(one for one in projections if spec.by or one.metric == _DEFAULT_METRIC)
        commands = next_commands(sweep, shown, joulewise_command(store))
        draw(result, console(), how=sweep_outcome(sweep, folder), commands=commands)
    return {**result_json(result), **went_json(sweep, folder)}


def _write(results: Sequence[dict[str, Any]], json_path: str | None) -> None:
    if json_path:
        write_json(results[0] if len(results) == 1 else {"sweeps": results}, json_path)


def _show_plans(
    prepared_sweeps: Sequence[PreparedSweep],
    store: Path,
    price_per_kwh: float | None,
    json_path: str | None,
) -> int:
    from joulewise.cli.output import console
    from joulewise.report.terminal.sweep import draw_plan
    from joulewise.report.views.sweep import plan_json, plan_view

    views = [plan_view(each, store, price_per_kwh) for each in prepared_sweeps]
    _write([plan_json(view) for view in views], json_path)
    if json_path != STDOUT:
        for view in views:
            draw_plan(view, console())
    return 0


def _read_specs(given: Mapping[str, Any]) -> list[SweepSpec]:
    if given["price_per_kwh"] and not given["dry_run"]:
        raise UsageError(
            "--price needs --dry-run", "for the savings of a choice: joulewise choose --price"
        )
    words: tuple[str, ...] = given["command"]
    if not words or not words[0].endswith(".toml"):
        return [_spec_from_options(given)]
    if len(words) > 1:
        raise UsageError(f"{words[1]!r} follows {words[0]}", "write options before the file")
    context = click.get_current_context()
    own = {
        name for name in given if context.get_parameter_source(name) is _ON_COMMAND_LINE
    } - _OPTIONS_WITH_FILE
    if own:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(own))
        raise UsageError(f"{options} cannot be given beside {words[0]}", "write it into the file")
    from joulewise.sweep.spec_file import read

    return read(Path(words[0]))


def _check_tolerance(spec: SweepSpec) -> SweepSpec:
    if spec.tolerance is not None and not spec.adaptive:
        raise UsageError(
            "a tolerance needs an adaptive search",
            "add --adaptive (adaptive = true in a file), or leave out the tolerance",
        )
    return spec


def _spec_from_options(given: Mapping[str, Any]) -> SweepSpec:
    from joulewise.sweep.spec import SimulationSpec, SweepSpec

    simulated = None
    if given["sim"]:
        noise = given["run_noise"]
        simulated = SimulationSpec(
            given["sim"],
            given["workload"] or "",
            given["like"] or "",
            None if noise is None else noise / 100,
        )
    elif given["workload"] or given["like"] or given["run_noise"] is not None:
        raise UsageError(
            "--workload, --like and --run-noise need a simulated GPU",
            "add, for example, --sim v100",
        )
    own = parse_pairs("--set", given["own"])
    for name in own.keys() & CONTROL_KEYS.keys():
        raise UsageError(
            f"{name} is not a parameter of the command",
            f"instead of --set, write: {control_option(name)} {own[name]}",
        )
    axes = {
        name: text for name, key in CONTROL_KEYS.items() if (text := given.get(key)) is not None
    }
    tolerance = given["tolerance"]
    return SweepSpec(
        command=given["command"],
        axes={**axes, **own},
        reference=parse_pairs("--reference", given["references"]),
        simulated=simulated,
        gpus=gpu_indices(given["gpus"]),
        hooks=not given["no_hooks"],
        tolerance=None if tolerance is None else tolerance / 100,
        **{name: given[name] for name in _SPEC_OPTIONS},
    )

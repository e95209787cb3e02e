"""``joulewise sweep``: the same command at many settings."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.options import POSITIVE, Number, Whole, metric_options, numbers, pairs
from joulewise.cli.output import (
    STDOUT,
    in_simulation,
    json_option,
    pass_store,
    program,
    say,
    write_json,
)
from joulewise.data.sweeps import KNOB_KEYS, knob_option
from joulewise.errors import JoulewiseError, UsageError

if TYPE_CHECKING:
    from joulewise.data.sweeps import Sweep
    from joulewise.sweep.lifecycle import Prepared
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
_AS_GIVEN = (
    *("repeat", "seed", "warm_up", "cool_down", "each_gpu", "max_slowdown", "timeout_s", "on"),
    *("adaptive", "by", "boundary", "overhead_w", "pue", "rate_hz", "force", "name"),
)
_WITH_FILE = {"command", "new", "dry_run", "price_per_kwh"}
_MIDDLE = "edp"
"""Whose choice is put into a command where nobody said by what to choose."""

_TYPED = click.core.ParameterSource.COMMANDLINE


@click.command(epilog=EPILOG, context_settings={"allow_interspersed_args": False})
@click.option(
    "--power-limit",
    metavar="WATTS",
    help="Limits to try: 150:300:5, 150,200, 50%:100%:5% of the default, or full.",
)
@click.option("--sm-clock", metavar="MHZ", help="SM clocks to lock, written the same way.")
@click.option("--mem-clock", metavar="MHZ", help="Memory clocks to lock.")
@click.option("--cpu-limit", metavar="WATTS", help="Power limits of the CPU packages.")
@click.option(
    "--set",
    "own",
    multiple=True,
    metavar="NAME=V,V...",
    help="Values for {NAME} in the command; may be repeated.",
)
@click.option(
    "--reference",
    "references",
    multiple=True,
    metavar="NAME=V",
    help="What to compare with. [default: the first value; of knobs, the device's own default]",
)
@click.option("--repeat", type=Whole(min=1), default=5, show_default=True, metavar="N")
@click.option("--seed", type=Whole(min=0), default=0, metavar="N", help="Of the random order.")
@click.option(
    "--warm-up", type=Whole(min=0), default=0, metavar="N", help="Runs that do not count, first."
)
@click.option(
    "--cool-down", default="", metavar="TIME|TEMP", help="Between runs: 60s, or down to 50C."
)
@click.option("--gpu", "gpus", metavar="N,N...", help="Set these GPUs only.")
@click.option("--each-gpu", is_flag=True, help="A run of its own on every GPU, at the same time.")
@click.option(
    "--max-slowdown",
    type=Number(min=1),
    metavar="F",
    help="Skip what must be slower than one that took over F times the reference's time.",
)
@click.option(
    "--timeout", "timeout_s", type=POSITIVE, metavar="SECONDS", help="For the command of each run."
)
@click.option("--adaptive", is_flag=True, help="Find the best with few runs, not by trying all.")
@metric_options(boundary="gpu")
@click.option(
    "--tolerance",
    type=Number(min=0, max=50, min_open=True),
    metavar="PERCENT",
    help="How far from the best the found setting may be, with --adaptive.",
)
@click.option("--sim", metavar="GPU", help="On a simulated GPU, in virtual time.")
@click.option("--workload", metavar="NAME", help="What trains there: resnet50, ...")
@click.option("--like", metavar="RUN", help="Or what this recorded run did.")
@click.option(
    "--run-noise",
    type=Number(min=0, max=50),
    metavar="PERCENT",
    help="How much simulated runs differ. [default: as measured]",
)
@click.option("--on", default="", metavar="ray[://HEAD]", help="On a Ray cluster.")
@click.option("--rate", "rate_hz", type=POSITIVE, metavar="HZ", help="As in joulewise run.")
@click.option("--no-hooks", is_flag=True, help="Do not mark epochs and steps.")
@click.option("--force", is_flag=True, help="Set GPUs also while others use them.")
@click.option("--name", default="", metavar="NAME", help="A name to find the sweep by.")
@click.option(
    "--price",
    "--price-per-kwh",
    "price_per_kwh",
    type=POSITIVE,
    metavar="PRICE",
    help="What energy costs, for --dry-run.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan, and what it will take.")
@click.option("--new", is_flag=True, help="Start afresh, and do not go on with an earlier one.")
@json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[FILE.toml | -- CMD...]")
@pass_store
def command(store: Path, *, json_path: str | None, **given: Any) -> int:
    """Run CMD at every setting of a space, repeated and in random order, and compare.

    Asked again the same way, it goes on where it was cut off, and tries again what failed. Knobs
    are turned by leases: they go back after each run.
    """
    from joulewise.sweep.lock import SignalInterrupt, raised_signals

    made: list[tuple[Sweep, int]] = []
    try:
        with raised_signals():
            return _sweep(store, given, json_path, made)
    except SignalInterrupt as error:
        raise _interruption(error, made, program(store)) from None


def _sweep(
    store: Path, given: Mapping[str, Any], json_path: str | None, made: list[tuple[Sweep, int]]
) -> int:
    """Put into ``made`` each sweep that was made, with how many are left after it."""
    from joulewise.process.failpoints import point
    from joulewise.sweep.lifecycle import going_on, gpus_of, prepare
    from joulewise.sweep.lock import reserve_gpus

    point("sweep-asked")
    # Whatever is wrong with any of them is told before the first run of all.
    every = [prepare(_heard(asked)) for asked in _asked(given)]
    if given["dry_run"]:
        return _show_plans(every, store, given["price_per_kwh"], json_path)
    point("sweep-prepared")
    told, failed = [], False
    with reserve_gpus(gpus_of(every)):
        for prepared, folder in zip(every, going_on(every, store, new=given["new"]), strict=True):
            sweep = _conduct(prepared, store, folder, made, len(every))
            point("sweep-made")
            told.append(_shown(prepared.asked, sweep, store, is_drawn=json_path != STDOUT))
            failed |= any(trial.state.value == "failed" for trial in sweep.trials)
    _write(told, json_path)
    if failed:
        say("the same command tries again what failed; with --new it makes all runs afresh")
    return int(failed)


def _interruption(
    error: SignalInterrupt, made: Sequence[tuple[Sweep, int]], again: str
) -> JoulewiseError:
    """What is kept where no run was under way, and the command that goes on from there."""
    from joulewise.sweep.lock import BetweenRunsError, CutOffError

    before: BaseException | None = error
    while before is not None:  # a second one, while the first was being told
        if isinstance(before, CutOffError):
            return before
        before = before.__context__
    if not made:
        return BetweenRunsError(
            error.signal, "no run was made yet", f"to go on: {_again(sys.argv[1:])}"
        )
    sweep, left = made[-1]
    if left:
        return BetweenRunsError(
            error.signal,
            f"sweep {sweep.id} is finished, and {left} more of the file left",
            f"to go on: {_again(sys.argv[1:])}",
        )
    what = f"sweep {sweep.id} is finished, and its result was not shown"
    return BetweenRunsError(error.signal, what, f"to go on: {again} choose {sweep.id}")


def _conduct(
    prepared: Prepared,
    store: Path,
    folder: Path | None,
    made: list[tuple[Sweep, int]],
    number: int,
) -> Sweep:
    from joulewise.cli.output import console
    from joulewise.metrics.metric import default_metrics, parse
    from joulewise.report.terminal.progress import SweepProgress
    from joulewise.sweep.lifecycle import conduct
    from joulewise.sweep.lock import CutOffError, SignalInterrupt

    for note in prepared.space.notes:
        say(note)
    metric = parse(prepared.asked.by[0]) if prepared.asked.by else default_metrics()[0]
    try:
        with SweepProgress(console(stderr=True), metric, say) as watch:
            sweep = conduct(prepared, store, watch, folder)
            made.append((sweep, number - len(made) - 1))
            return sweep
    except SignalInterrupt as error:
        if error.sweep is not None:
            made.append((error.sweep, number - len(made) - 1))
        raise
    except CutOffError as error:
        error.hint = f"to go on: {_again(sys.argv[1:])}"
        raise


def _again(arguments: Sequence[str]) -> str:
    """The command that goes on with what this one began, within the same simulation if any."""
    ours = list(arguments)
    if "--new" in ours[: ours.index("--") if "--" in ours else None]:
        ours.remove("--new")
    return in_simulation(shlex.join(["joulewise", *ours]))


def _shown(asked: SweepSpec, sweep: Sweep, store: Path, *, is_drawn: bool) -> dict[str, Any]:
    """What came of it, as JSON; drawn too, as soon as it is there."""
    from joulewise.cli.output import console
    from joulewise.cli.sweep_evaluation import evaluated
    from joulewise.metrics.boundary import View
    from joulewise.report.terminal.sweep import draw
    from joulewise.report.views.projection import next_commands, outlook
    from joulewise.report.views.sweep import result_json, went
    from joulewise.report.views.sweep import search_as_json as went_json
    from joulewise.store.layout import SWEEPS

    view = View(asked.boundary, overhead_w=asked.overhead_w, pue=asked.pue)
    result, view = evaluated(sweep, asked.by, view)
    folder = store / SWEEPS / sweep.id
    if is_drawn:
        of = [it for it in outlook(sweep, result, view) if asked.by or it.metric == _MIDDLE]
        commands = next_commands(sweep, tuple(of), program(store))
        draw(result, console(), how=went(sweep, folder), commands=commands)
    return {**result_json(result), **went_json(sweep, folder)}


def _write(told: Sequence[dict[str, Any]], json_path: str | None) -> None:
    if json_path:
        write_json(told[0] if len(told) == 1 else {"sweeps": told}, json_path)


def _show_plans(
    every: Sequence[Prepared], store: Path, price_per_kwh: float | None, json_path: str | None
) -> int:
    from joulewise.cli.output import console
    from joulewise.report.views.sweep_plan import as_json, draw, plan_view

    views = [plan_view(each, store, price_per_kwh) for each in every]
    _write([as_json(view) for view in views], json_path)
    if json_path != STDOUT:
        for view in views:
            draw(view, console())
    return 0


def _asked(given: Mapping[str, Any]) -> list[SweepSpec]:
    if given["price_per_kwh"] and not given["dry_run"]:
        raise UsageError(
            "--price is for the plan: --dry-run", "what a choice saves: joulewise choose --price"
        )
    words: tuple[str, ...] = given["command"]
    if not words or not words[0].endswith(".toml"):
        return [_from_options(given)]
    if len(words) > 1:
        raise UsageError(f"{words[1]!r} after {words[0]}", "put options before the file")
    context = click.get_current_context()
    own = {name for name in given if context.get_parameter_source(name) is _TYPED} - _WITH_FILE
    if own:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(own))
        raise UsageError(f"{options} beside {words[0]}", "put it into the file")
    from joulewise.sweep.spec_file import read

    return read(Path(words[0]))


def _heard(asked: SweepSpec) -> SweepSpec:
    if asked.tolerance is not None and not asked.adaptive:
        raise UsageError(
            "a tolerance is how far a search may be off, and every setting is to be tried",
            "add --adaptive (adaptive = true in a file), or leave the tolerance out",
        )
    return asked


def _from_options(given: Mapping[str, Any]) -> SweepSpec:
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
            "--workload, --like and --run-noise are for simulated GPUs", "name one: --sim v100"
        )
    own = pairs("--set", given["own"])
    for name in own.keys() & KNOB_KEYS.keys():
        raise UsageError(
            f"--set {name} is no parameter of the command", f"{knob_option(name)} {own[name]}"
        )
    axes = {name: given[key] for name, key in KNOB_KEYS.items() if given[key] is not None}
    tolerance = given["tolerance"]
    return SweepSpec(
        command=given["command"],
        axes={**axes, **own},
        reference=pairs("--reference", given["references"]),
        simulated=simulated,
        gpus=numbers(given["gpus"]),
        hooks=not given["no_hooks"],
        tolerance=None if tolerance is None else tolerance / 100,
        **{name: given[name] for name in _AS_GIVEN},
    )

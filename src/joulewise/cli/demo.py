"""``joulewise demo``: a sweep of a simulated V100 and the choice of a setting, in seconds."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.output import STDOUT, joulewise_command, json_option, pass_store, say, write_json

if TYPE_CHECKING:
    from joulewise.data.sweeps import Sweep
    from joulewise.metrics.result import SweepResult
    from joulewise.report.tables import Table
    from joulewise.sweep.spec import SweepSpec

GPU, NETWORK, REPEAT = "v100", "resnet50", 5
REPORT = "demo.html"

EPILOG = """\b
Examples:
  joulewise demo
  joulewise demo --store somewhere
"""


@click.command(epilog=EPILOG)
@json_option
@pass_store
@click.pass_context
def command(ctx: click.Context, store: Path, json_path: str | None) -> None:
    """Sweep the power limits of a simulated V100 that trains ResNet-50, and choose a setting.

    All limits from 150 to 300 W are run five times, in simulated time. The demo then shows what
    the metrics energy, EDP and EDS choose, beside published measurements of that board, in the
    terminal and as an HTML report. With --store the runs are stored there; otherwise the sweep and
    its report stay in a temporary folder, and the traces of its runs are deleted.
    """
    if _is_store_given(ctx):
        _run_demo(store, json_path, is_kept=True)
        return
    with _temporary() as folder:
        has_page = _run_demo(folder, json_path, is_kept=False)
        if json_path == STDOUT:
            shutil.rmtree(folder)
            return
        _delete_runs(folder)
        say(
            f"the sweep{' and its report are' if has_page else ' is'} in {folder} "
            f"({_format_size(folder)})",
            f"to remove it: rm -r {shlex.quote(str(folder))}",
        )


def _run_demo(store: Path, json_path: str | None, *, is_kept: bool) -> bool:
    """Run the sweep and show its result; whether a report was written.

    ``is_kept``: the traces of the runs will still be there afterwards.
    """
    from joulewise.cli.output import console
    from joulewise.report.published import beside, published_table
    from joulewise.report.terminal.sweep import draw

    sweep, result = _run_sweep(_make_spec(), store)
    comparisons = beside(result, GPU, NETWORK)
    published = {"published": [one.as_json() for one in comparisons]}
    if json_path:
        from joulewise.report.views.sweep import result_json

        write_json({**result_json(result), **published}, json_path)
    if json_path == STDOUT:
        return False
    also, commands = (published_table(comparisons),), _next(store, result, is_kept=is_kept)
    draw(result, console(), also=also, commands=commands)
    return _write_report(sweep, result, store, also=also, commands=commands, published=published)


def _make_spec() -> SweepSpec:
    from joulewise.data.sweeps import POWER_LIMIT
    from joulewise.report.published import METRICS
    from joulewise.sweep.spec import SimulationSpec, SweepSpec

    return SweepSpec(
        axes={POWER_LIMIT: "full"},
        repeat=REPEAT,
        by=tuple(METRICS),
        simulated=SimulationSpec(GPU, NETWORK),
        name="demo",
    )


def _run_sweep(spec: SweepSpec, store: Path) -> tuple[Sweep, SweepResult]:
    from joulewise.cli.output import console
    from joulewise.metrics.evaluate import View, evaluate
    from joulewise.metrics.metric import parse
    from joulewise.report.terminal.progress import SweepProgress
    from joulewise.sweep.lifecycle import prepare, run_sweep

    prepared = prepare(spec)
    runs = REPEAT * len(prepared.space.points)
    say(f"{NETWORK} on a simulated {GPU}: {runs} runs in simulated time, stored in {store}")
    metrics = [parse(text) for text in spec.by]
    with SweepProgress(console(stderr=True), metrics[0], say) as watch:
        sweep = run_sweep(prepared, store, watch)
    return sweep, evaluate(sweep, metrics, View())


def _write_report(
    sweep: Sweep,
    result: SweepResult,
    store: Path,
    *,
    also: Sequence[Table],
    commands: Sequence[tuple[str, str]],
    published: Mapping[str, Any],
) -> bool:
    """Write the report into the store; False where its extra is missing or it cannot be written."""
    from joulewise.errors import JoulewiseError
    from joulewise.metrics.boundary import View
    from joulewise.report.html.pages import sweep_page
    from joulewise.report.html.render import require_extra, write_page
    from joulewise.report.resolve import LoadedSweep
    from joulewise.store.layout import SWEEPS

    path = store / REPORT
    try:
        require_extra()
        found = LoadedSweep(sweep, store / SWEEPS / sweep.id)
        page = sweep_page(
            found, result, View(), store, also=also, commands=commands, more=published
        )
        write_page(page, path)
    except JoulewiseError as error:
        say(f"no report was written: {error.message}", error.hint)
        return False
    say(f"wrote {path}: open it in a browser")
    return True


def _next(store: Path, result: SweepResult, *, is_kept: bool) -> tuple[tuple[str, str], ...]:
    """The next commands that work here: a report needs its extra, and the traces of the runs."""
    ours = joulewise_command(store)
    report = (f"{ours} report {result.id} --by edp", "another report, by one metric")
    return (
        *((report,) if is_kept and _has_extra() else ()),
        (f"{ours} choose {result.id} --by edp --epochs 90", "what a whole training would take"),
        (
            "joulewise sweep --sim rtx6000 --workload vgg19 --power-limit 100:260:20",
            "another board, another network",
        ),
    )


def _is_store_given(ctx: click.Context) -> bool:
    """Whether the user gave a store, before or after the verb."""
    root = ctx.find_root()
    default = root.get_parameter_source("store") is click.core.ParameterSource.DEFAULT
    return not default or ctx.obj is not root.params["store"]


def _has_extra() -> bool:
    from joulewise.errors import JoulewiseError
    from joulewise.report.html.render import require_extra

    try:
        require_extra()
    except JoulewiseError:
        return False
    return True


@contextmanager
def _temporary() -> Iterator[Path]:
    """A new folder, deleted where the demo fails or is interrupted."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="joulewise-demo-"))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _delete_runs(store: Path) -> None:
    from joulewise.store.runs import runs

    for run in list(runs(store)):
        shutil.rmtree(run, ignore_errors=True)


def _format_size(folder: Path) -> str:
    size_b = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return f"{size_b / 1e6:.1f} MB"

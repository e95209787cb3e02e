"""The pages of a run (or a group of runs), of a sweep, of a comparison and of a recurring job.

Each is built from the same views as the terminal's output, with figures and the environment.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.analyse.damage import HINT, SoundStreams, note_damaged_marks
from joulewise.data import Kind, RunResult
from joulewise.data.run_result_json import as_json
from joulewise.data.runs import Container, MachineResources
from joulewise.data.sweeps import Sweep
from joulewise.data.tuning import Tuning, tune_json
from joulewise.errors import JoulewiseError
from joulewise.formatting import capitalised, one_line, plain
from joulewise.report.charts.chart import Chart
from joulewise.report.html.render import HtmlPage, Notice, Section
from joulewise.report.rerun import rerun_command, rerun_sweep_command
from joulewise.report.resolve import LoadedRuns, LoadedSweep
from joulewise.report.tables import Table
from joulewise.report.views.run import NO_RATES, PriceAndCarbon, run_view, warned
from joulewise.report.views.run_tables import (
    devices_table,
    members_table,
    sensor_tables,
    spans_table,
    total_table,
)
from joulewise.report.views.tuning import tuning_view
from joulewise.store.logged_values import logged_json
from joulewise.store.manifest import Manifest, RecordedDevice, read_manifest
from joulewise.store.runs import Skipped
from joulewise.store.tuning_file import UnreadableTuningError, load_tuning
from joulewise.units import B_PER_GIB, digits

if TYPE_CHECKING:
    from joulewise.data.jobs import JobTry
    from joulewise.metrics.boundary import View
    from joulewise.metrics.result import SweepResult
    from joulewise.report.views.compare import ComparisonResult
    from joulewise.report.views.job import JobView

_STORED: Final = "the tables are from stored results"
_SHORT_ID: Final = 12  # digits of a commit or a container: the length of Docker's short ids
_LIBRARIES: Final = {"cuda": "CUDA", "cudnn": "cuDNN", "hip": "HIP"}


def run_page(
    resolved: LoadedRuns,
    store: Path,
    *,
    rates: PriceAndCarbon = NO_RATES,
    program: str = "joulewise",
) -> HtmlPage:
    """The result as ``show`` prints it, the figures, and the environment of a run or a group.

    ``program`` is the command with its options, as it stands in commands to copy.
    """
    from joulewise.report.charts.run import TUNING_KEY, chart_runs

    tuning, problem = _tuning(resolved)

    def make_charts() -> tuple[Sequence[Chart], Sequence[Skipped]]:
        drawn = chart_runs(resolved.runs, [member.result for member in resolved.members], tuning)
        return drawn.charts, drawn.skipped

    result = resolved.result
    shown = run_view(result, rates, program)
    charts, unread = _charts_or_notices(make_charts)
    of_tuning = tuple(chart for chart in charts if chart.key.startswith(TUNING_KEY))
    sections = (
        Section(
            "Energy",
            tuple(map(capitalised, shown.notes)),
            (total_table(result, shown), devices_table(result, shown)),
        ),
        *([_tuning_section(tuning, of_tuning)] if tuning else []),
        Section("Figures", charts=tuple(chart for chart in charts if chart not in of_tuning)),
        Section("Spans", tables=(spans_table(result, shown),)),
        Section("Sensors", tables=_sensor_tables(resolved), folded=True, written=False),
        Section(
            "Runs",
            tables=(members_table([member.result for member in resolved.members]),)
            if _is_group(resolved)
            else (),
        ),
    )
    again = rerun_command(resolved.members[0].manifest)
    return HtmlPage(
        title=shown.title,
        verdict=shown.finding,
        facts=shown.facts,
        notices=(
            *unread,
            *problem,
            *_damage_notices(resolved),
            *(Notice(f"{name} is left out: {plain(reason)}") for name, reason in resolved.left_out),
            *(Notice(warned(warning), plain(warning.hint)) for warning in shown.warnings),
        ),
        sections=tuple(section for section in sections if section.has_content),
        environment=describe_environment([member.manifest for member in resolved.members], store),
        commands=(*([(again, "Repeat this run.")] if again else ()), *shown.commands),
        data={
            **(as_json(result) if _is_group(resolved) else _with_logged(resolved.runs[0], result)),
            **({"tune": tune_json(tuning)} if tuning else {}),
        },
    )


def _with_logged(run: Path, result: RunResult) -> dict[str, Any]:
    """The JSON of a single run."""
    return {**as_json(note_damaged_marks(run, result)), "logged": logged_json(run)}


def _tuning(resolved: LoadedRuns) -> tuple[Tuning | None, tuple[Notice, ...]]:
    """The tuning of a single run that was tuned, or why its file cannot be read."""
    if _is_group(resolved):
        return None, ()
    try:
        return load_tuning(resolved.runs[0]), ()
    except UnreadableTuningError as error:
        return None, (Notice(plain(error.message), plain(error.hint)),)


def _tuning_section(tuning: Tuning, charts: tuple[Chart, ...]) -> Section:
    shown = tuning_view(tuning)
    return Section(
        "Tuning",
        tuple(map(capitalised, (shown.finding, *shown.context, *shown.notes))),
        (shown.account, shown.all_tried, shown.changes),
        charts,
    )


def sweep_page(
    resolved: LoadedSweep,
    result: SweepResult,
    view: View,
    store: Path,
    *,
    also: Sequence[Table] = (),
    commands: Iterable[tuple[str, str]] = (),
    more: Mapping[str, Any] | None = None,
) -> HtmlPage:
    """The result as ``choose`` prints it, every figure, and every setting of a sweep.

    ``view`` is the view that the result was evaluated with; ``also`` (tables) and ``commands``
    are as in the terminal (:func:`joulewise.report.terminal.sweep.draw`), ``more`` are further
    fields of its JSON.
    """
    from joulewise.report.charts.sweep import chart_sweep
    from joulewise.report.charts.sweep.drift import NO_DRIFT
    from joulewise.report.views.sweep import result_json, search_as_json, sweep_outcome, sweep_view

    sweep, folder = resolved.sweep, resolved.folder
    shown, search = sweep_view(result), sweep_outcome(sweep, folder, result.metrics)
    # The first finding is the headline of the page, the others are sentences of its first section.
    verdict, *others = shown.findings or ("No valid run.",)
    in_store = store if folder else None
    charts, unread = _charts_or_notices(lambda: (chart_sweep(sweep, result, in_store, view), ()))
    sections = (
        Section(
            "Best settings",
            (*others, *search.search),
            (shown.choices, *also, shown.boundaries) if result.best else (),
        ),
        Section(
            "Figures",
            (*map(capitalised, shown.notes), *([NO_DRIFT] if sweep.is_virtual else ())),
            charts=charts,
        ),
        Section("Quadratic fits", tuple(map(capitalised, shown.fits)), folded=True),
        Section("Every setting", tables=(shown.points,), folded=True),
    )
    return HtmlPage(
        title=shown.title,
        verdict=verdict,
        facts=(*shown.facts, *search.notes),
        notices=(
            *unread,
            *(Notice(plain(warning.message), plain(warning.hint)) for warning in shown.warnings),
            *(Notice(problem, "\n".join(hints)) for problem, hints in search.problems),
        ),
        # A section that is not folded is shown even if it is empty, as the place to look for it.
        sections=tuple(
            section for section in sections if section.has_content or not section.folded
        ),
        environment=describe_environment(_sweep_manifests(sweep, store), in_store),
        commands=(*_repeat_sweep(sweep), *commands),
        data={**result_json(result), **search_as_json(sweep, folder), **(more or {})},
    )


def compare_page(
    comparison: ComparisonResult, store: Path | None = None, again: str = ""
) -> HtmlPage:
    """The comparison as ``compare`` prints it, and the figures.

    ``again`` is the command that repeats it.
    """
    from joulewise.compare.runs import Comparison
    from joulewise.report.charts.compare import chart_comparison, chart_sweep_comparison

    compared, shown = comparison.found, comparison.view
    if isinstance(compared, Comparison):
        charts, unread = _charts_or_notices(lambda: (chart_comparison(compared), ()))
        runs = (*compared.a.runs, *compared.b.runs)
        manifests = [manifest for run in runs for manifest in run.manifests]
    else:
        charts, unread = _charts_or_notices(lambda: (chart_sweep_comparison(compared), ()))
        manifests = []
    return HtmlPage(
        title=shown.title,
        verdict=f"{capitalised(shown.finding)}.",
        facts=shown.facts,
        notices=(
            *unread,
            *(Notice(plain(warning.message), plain(warning.hint)) for warning in shown.warnings),
        ),
        sections=(
            Section(
                "Comparison", tuple(sentence for _, sentence in comparison.judged), shown.tables
            ),
            Section("Figures", charts=charts),
        ),
        environment=describe_environment(manifests, store),
        commands=((again, "Repeat this comparison."),) if again else (),
        data=comparison.payload,
    )


def job_page(
    view: JobView,
    store: Path,
    *,
    data: Mapping[str, Any],
    problems: Iterable[str] = (),
    program: str = "joulewise",
) -> HtmlPage:
    """What a job cost and saved, what was tried, and what its policy believes.

    ``data`` is its JSON as ``job show`` writes it; ``problems`` say why a policy could not be
    asked. ``store`` has the runs of this host.
    """
    from joulewise.report.charts.job import chart_job
    from joulewise.report.views import job, job_tables

    charts, unread = _charts_or_notices(lambda: (chart_job(view), ()))
    by_key = {chart.key: (chart,) for chart in charts}
    name = one_line(view.job.name)
    sections = (
        Section("Saving", tuple(job.notes(view)), (job_tables.account_table(view),)),
        Section("Recurrences", charts=by_key.get("job-recurrences", ())),
        Section(
            "Beliefs",
            tables=tuple(
                job_tables.beliefs_table(view.job, gpu_type, beliefs)
                for gpu_type, beliefs in view.all_beliefs.items()
            ),
            charts=by_key.get("job-beliefs", ()),
        ),
        Section("Time and energy", charts=by_key.get("job-plane", ())),
        Section("Every recurrence", tables=(job_tables.recurrences_table(view),), folded=True),
        Section("Every try", tables=(job_tables.tries_table(view),), folded=True),
    )
    return HtmlPage(
        title=f"job {name}",
        verdict=f"{capitalised(job.finding(view))}.",
        facts=job.facts(view),
        notices=(*unread, *(Notice(plain(text)) for text in problems)),
        sections=tuple(section for section in sections if section.has_content),
        environment=describe_environment(_job_manifests(view.tries, store), store),
        commands=(
            (f"{program} job show {shlex.quote(view.job.name)}", "What is believed now."),
            (
                f"{program} ls --filter {shlex.quote(f'tag=job:{view.job.name}')}",
                "The runs of this job.",
            ),
        ),
        data={**data, "report": job.view_json(view)},
    )


def _job_manifests(tries: Iterable[JobTry], store: Path) -> list[Manifest]:
    """Of the last run on each host, where it is in this store."""
    runs = {one.host: one.run for one in tries if one.run}
    manifests = []
    for run in runs.values():
        with suppress(JoulewiseError):
            manifests.append(read_manifest(store / run))
    return manifests


def _charts_or_notices(
    make: Callable[[], tuple[Sequence[Chart], Sequence[Skipped]]],
) -> tuple[tuple[Chart, ...], tuple[Notice, ...]]:
    """The figures, with a notice of each run that is in none, or a notice why there are none.

    ``make`` returns the figures and the runs that are left out of them. The rest of a page is
    shown in any case.
    """
    try:
        charts, skipped = make()
    except JoulewiseError as error:
        return (), (Notice(f"no figures: {plain(error.message)}", plain(error.hint)),)
    except Exception as error:  # noqa: BLE001  # a damaged trace fails in as many ways as it has bytes
        reason = plain(f"{type(error).__name__}: {error}")
        return (), (Notice(f"no figures: their data cannot be read ({reason})", _STORED),)
    texts = (f"{run.path.name} is in no figure: {run.reason}" for run in skipped)
    return tuple(charts), tuple(Notice(plain(text), _STORED) for text in texts)


def _damage_notices(resolved: LoadedRuns) -> Iterator[Notice]:
    """Damaged files and implausible readings that the stored result does not mention.

    Not of a run in progress, whose last batch may be half written.
    """
    known = {warning.message for member in resolved.members for warning in member.result.warnings}
    for run, member in zip(resolved.runs, resolved.members, strict=True):
        if member.manifest.state == "recording":
            continue
        streams = SoundStreams(run, member.manifest)
        for damage in streams.find_damage():
            if damage.warning.message not in known:
                text = f"{run.name}: {damage.message}; figures lack what is lost"
                yield Notice(plain(text), HINT)
        for warning in (implausible.warning for implausible in streams.find_implausible()):
            if warning.message not in known:
                yield Notice(plain(f"{run.name}: {warning.message}"), warning.hint)


def _is_group(resolved: LoadedRuns) -> bool:
    return "runs" in resolved.result.details


def _sensor_tables(resolved: LoadedRuns) -> tuple[Table, ...]:
    """Devices of a group are prefixed with their node, or their run where a node has several."""
    runs = {"": resolved.result}
    if _is_group(resolved):
        nodes = [member.node for member in resolved.members]
        runs = {
            f"{member.node if nodes.count(member.node) == 1 else member.result.id}/": member.result
            for member in resolved.members
        }
    return tuple(table for table in sensor_tables(runs) if table.rows)


def _repeat_sweep(sweep: Sweep) -> list[tuple[str, str]]:
    if not sweep.asked:
        return []
    command, besides = rerun_sweep_command(sweep.asked)
    from_file = f" Its {besides} came from a file." if besides else ""
    return [(command, f"Repeat this sweep.{from_file}")]


def _sweep_manifests(sweep: Sweep, store: Path) -> list[Manifest]:
    """Of one run on each host and GPU, since a sweep has hundreds of runs on the same few."""
    runs = {(trial.host, trial.gpu): trial.run for trial in sweep.trials if trial.run}
    manifests = []
    for run in runs.values():
        with suppress(JoulewiseError):
            manifests.append(read_manifest(store / str(run)))
    return manifests


def describe_environment(manifests: Sequence[Manifest], store: Path | None) -> dict[str, str]:
    """Host, devices, drivers, versions and commit, by name.

    Values that differ between the runs are listed; what is not known is left out.
    """
    facts: dict[str, dict[str, None]] = {}
    for manifest in manifests:
        for name, value in _facts(manifest):
            if value:
                facts.setdefault(name, {})[value] = None
    if store is not None:
        # Relative: a page that is passed on need not tell where somebody's home is.
        path = os.path.relpath(store)
        facts["Store"] = {store.name if path.startswith("..") else path: None}
    return {name: ", ".join(values) for name, values in facts.items()}


def _facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    host, git = manifest.host, manifest.git
    yield "Host", host.get("name", "")
    yield "Simulated on", host.get("simulated_on", "")
    yield "System", _join(host.get("system"), host.get("kernel"))
    yield "Container", _container(manifest.container)
    yield "Cores", _cores(manifest.machine)
    yield "RAM", _ram(manifest.machine)
    for device in manifest.devices:
        yield device.info.key, _device(device)
    for key, missing in manifest.missing.items():
        yield key, f"unavailable: {missing.reason}"
    yield "Python", host.get("python", "")
    yield "Frameworks", ", ".join(starmap(_framework, manifest.frameworks.items()))
    yield "Versions", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    if commit := git.get("commit", "")[:_SHORT_ID]:
        branch = f" on {git['branch']}" if git.get("branch") else ""
        changes = ", with uncommitted changes" if git.get("dirty") == "yes" else ""
        yield "Git commit", commit + branch + changes
    yield "Variables", ", ".join(f"{name}={value}" for name, value in manifest.environ.items())
    yield "Sampling rate", f"{manifest.rate_hz:g} Hz" if manifest.rate_hz else ""


def _join(*parts: str | None) -> str:
    return " · ".join(filter(None, parts))


def _device(device: RecordedDevice) -> str:
    info = device.info
    memory = f"{_gib(info.memory_b)} of memory" if info.memory_b else ""
    driver = f"driver {info.driver}" if info.kind is Kind.GPU and info.driver else ""
    return _join(info.name, memory, driver, info.note)


def _container(container: Container | None) -> str:
    if container is None:
        return ""
    return _join(container.runtime, container.image, container.id[:_SHORT_ID])


def _cores(machine: MachineResources | None) -> str:
    if machine is None:
        return ""
    allowed = machine.cores_allowed
    parts = (
        (machine.cores_physical, "physical"),
        (machine.cores_logical, "logical"),
        (None if allowed == machine.cores_logical else allowed, "allowed"),
    )
    return ", ".join(f"{number:g} {name}" for number, name in parts if number is not None)


def _ram(machine: MachineResources | None) -> str:
    if machine is None or machine.ram_b is None:
        return ""
    limit = f", {_gib(machine.ram_limit_b)} allowed" if machine.ram_limit_b else ""
    return _gib(machine.ram_b) + limit


def _gib(memory_b: float) -> str:
    return f"{digits(memory_b / B_PER_GIB)} GiB"


def _framework(name: str, parts: Mapping[str, str]) -> str:
    libraries = [f"{_LIBRARIES.get(key, key)} {v}" for key, v in parts.items() if key != "version"]
    within = f" ({', '.join(libraries)})" if libraries else ""
    return f"{name} {parts.get('version', '')}{within}"

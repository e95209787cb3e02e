"""The page of a run, or of the runs of a group together.

The page of a sweep.

The page of a comparison.

Files of a run that are damaged, or have values that cannot be: these are in no figure.

Figures if they can be had, and otherwise why not: a page is worth more than its figures.

Where something was measured: host, devices, drivers, versions, commit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import starmap
from pathlib import Path
from typing import Any, Final

from joulewise.analyse.damage import HINT, SoundLanes
from joulewise.compare.runs import Comparison
from joulewise.data import Kind
from joulewise.data.contract import as_json
from joulewise.data.machine import Container, MachineResources
from joulewise.data.sweeps import Sweep
from joulewise.errors import JoulewiseError
from joulewise.formatting import capitalised, plain
from joulewise.metrics.boundary import View
from joulewise.metrics.result import SweepResult
from joulewise.report.charts.chart import Chart
from joulewise.report.charts.compare import runs_charts, sweeps_charts
from joulewise.report.html.render import HtmlPage, Notice, Section
from joulewise.report.inputs import MeantRuns, MeantSweep
from joulewise.report.rerun import run_again, sweep_again
from joulewise.report.tables import Table
from joulewise.report.views.compare import ComparisonResult
from joulewise.report.views.run import NO_RATES, PriceAndCarbon, run_view, warned
from joulewise.report.views.run_tables import (
    devices_table,
    members_table,
    sensor_tables,
    spans_table,
    total_table,
)
from joulewise.report.views.sweep import result_json, sweep_view, went
from joulewise.report.views.sweep import search_as_json as went_json
from joulewise.store.manifest import Manifest, RecordedDevice, read_manifest
from joulewise.store.runs import Skipped
from joulewise.units import digits


def cut_off(found: MeantRuns) -> tuple[Notice, ...]:
    """Damaged files and implausible readings that the result, which may be older, does not tell of.

    Not of a run in progress, whose last batch may be half written.
    """
    told = {each.message for member in found.members for each in member.result.warnings}
    ended = (
        (run, member.manifest)
        for run, member in zip(found.runs, found.members, strict=True)
        if member.manifest.state != "recording"
    )
    notices = []
    for run, manifest in ended:
        sound = SoundLanes(run, manifest)
        notices += [
            Notice(plain(f"{run.name}: {each.message}; figures lack what is lost"), HINT)
            for each in sound.find_damage()
            if each.warning.message not in told
        ]
        notices += [
            Notice(plain(f"{run.name}: {each.message}"), each.hint)
            for each in (one.warning for one in sound.find_implausible())
            if each.message not in told
        ]
    return tuple(notices)


_KEPT: Final = "the tables are from results that were kept"


def charts_or_why(
    make: Callable[[], tuple[Sequence[Chart], Sequence[Skipped]]],
) -> tuple[tuple[Chart, ...], tuple[Notice, ...]]:
    """``make`` has with the figures what they lack: runs that are damaged."""
    try:
        charts, skipped = make()
        said = (f"{one.path.name} is in no figure: {one.reason}" for one in skipped)
        return tuple(charts), tuple(Notice(plain(each), _KEPT) for each in said)
    except JoulewiseError as error:
        return (), (Notice(f"no figures: {plain(error.message)}", plain(error.hint)),)
    except Exception as error:  # noqa: BLE001  # a damaged trace fails in as many ways as it has bytes
        why = plain(f"{type(error).__name__}: {error}")
        return (), (Notice(f"no figures: what they show cannot be read ({why})", _KEPT),)


_SHORT = 12
_B_PER_GIB = 1 << 30


def surroundings(manifests: Sequence[Manifest], store: Path | None) -> dict[str, str]:
    """By name; what differs between the runs is listed, what is not known left out."""
    found: dict[str, dict[str, None]] = {}
    for manifest in manifests:
        for name, value in _facts(manifest):
            if value:
                found.setdefault(name, {})[value] = None
    if store is not None:
        found["Store"] = {_relative(store): None}
    return {name: ", ".join(values) for name, values in found.items()}


def _facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    host, git = manifest.host, manifest.git
    yield "Host", host.get("name", "")
    yield "Simulated on", host.get("simulated_on", "")
    yield "System", " · ".join(filter(None, (host.get("system"), host.get("kernel"))))
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
    commit = git.get("commit", "")[:_SHORT]
    on = f" on {git['branch']}" if git.get("branch") else ""
    yield (
        "Git commit",
        commit and commit + on + (", with changes" if git.get("dirty") == "yes" else ""),
    )
    yield "Variables", ", ".join(f"{name}={value}" for name, value in manifest.environ.items())
    yield "Read", f"{manifest.rate_hz:g} times a second" if manifest.rate_hz else ""


def _device(device: RecordedDevice) -> str:
    is_driven = device.info.kind is Kind.GPU and device.info.driver
    driver = f"driver {device.info.driver}" if is_driven else ""
    memory_b = device.info.memory_b
    memory = f"{_gib(memory_b)} of memory" if memory_b else ""
    return " · ".join(filter(None, (device.info.name, memory, driver, device.info.note)))


def _container(container: Container | None) -> str:
    if container is None:
        return ""
    return " · ".join(filter(None, (container.runtime, container.image, container.id[:_SHORT])))


def _cores(machine: MachineResources | None) -> str:
    if machine is None:
        return ""
    allowed = machine.cores_allowed
    is_limited = allowed is not None and allowed != machine.cores_logical
    parts = (
        (machine.cores_physical, "physical"),
        (machine.cores_logical, "logical"),
        (allowed if is_limited else None, "allowed"),
    )
    return ", ".join(f"{number:g} {word}" for number, word in parts if number is not None)


def _ram(machine: MachineResources | None) -> str:
    if machine is None or machine.ram_b is None:
        return ""
    limit = f", {_gib(machine.ram_limit_b)} allowed" if machine.ram_limit_b else ""
    return _gib(machine.ram_b) + limit


def _gib(memory_b: float) -> str:
    return f"{digits(memory_b / _B_PER_GIB)} GiB"


def _framework(name: str, parts: Mapping[str, str]) -> str:
    labels = {"cuda": "CUDA", "cudnn": "cuDNN", "hip": "HIP"}
    libraries = [f"{labels.get(key, key)} {v}" for key, v in parts.items() if key != "version"]
    within = f" ({', '.join(libraries)})" if libraries else ""
    return f"{name} {parts.get('version', '')}{within}"


def _relative(store: Path) -> str:
    """As seen from here; a page that is passed on need not tell where somebody's home is."""
    path = os.path.relpath(store)
    return store.name if path.startswith("..") else path


def run_page(
    found: MeantRuns, store: Path, *, rates: PriceAndCarbon = NO_RATES, program: str = "joulewise"
) -> HtmlPage:
    """What ``show`` tells, the figures, and where it was."""
    result = found.result
    shown = run_view(result, rates, program)
    charts, unread = charts_or_why(lambda: _charts(found))
    members = [member.result for member in found.members]
    is_group = "runs" in result.details
    sections = (
        Section(
            "Energy",
            tuple(map(capitalised, shown.notes)),
            (total_table(result, shown), devices_table(result, shown)),
        ),
        Section("Figures", charts=charts),
        Section("Spans", tables=(spans_table(result, shown),)),
        Section("Sensors", tables=_sensor_tables(found), folded=True, written=False),
        Section("Runs", tables=(members_table(members),) if is_group else ()),
    )
    again = run_again(found.members[0].manifest)
    return HtmlPage(
        title=shown.title,
        verdict=shown.finding,
        facts=shown.facts,
        notices=(
            *unread,
            *cut_off(found),
            *(Notice(f"{name} is left out: {plain(why)}") for name, why in found.left_out),
            *(Notice(warned(each), plain(each.hint)) for each in shown.warnings),
        ),
        sections=tuple(filter(_has_something, sections)),
        environment=surroundings([member.manifest for member in found.members], store),
        commands=(*(((again, "the same again"),) if again else ()), *shown.commands),
        data=as_json(result),
    )


def _sensor_tables(found: MeantRuns) -> tuple[Table, ...]:
    """Of a group, each device under the name of its node, and of its run where it has several."""
    if "runs" not in found.result.details:
        runs = {"": found.result}
    else:
        nodes = [member.node for member in found.members]
        runs = {
            f"{each.node}/" if nodes.count(each.node) == 1 else f"{each.result.id}/": each.result
            for each in found.members
        }
    return tuple(table for table in sensor_tables(runs) if table.rows)


def _charts(found: MeantRuns) -> tuple[Sequence[Chart], Sequence[Skipped]]:
    from joulewise.report.charts.run import charted

    told = charted(found.runs, [member.result for member in found.members])
    return told.charts, told.skipped


def _has_something(section: Section) -> bool:
    tables = any(table.rows for table in section.tables)
    return bool(section.sentences or section.charts or tables)


def sweep_page(
    found: MeantSweep,
    result: SweepResult,
    seen: View,
    store: Path,
    *,
    also: Sequence[Table] = (),
    ahead: Iterable[str] = (),
    commands: Iterable[tuple[str, str]] = (),
    more: Mapping[str, Any] | None = None,
) -> HtmlPage:
    """What ``choose`` tells, every figure, and every setting.

    ``seen`` is what the result is of; ``also``, ``ahead`` and ``commands`` are as in the terminal
    (:func:`joulewise.report.terminal.sweep.draw`), ``more`` is what stands beside the result in
    its JSON.
    """
    from joulewise.report.charts.sweep import sweep_charts
    from joulewise.report.charts.sweep.drift import NO_DRIFT

    sweep, folder = found.sweep, found.folder
    shown, how = sweep_view(result), went(sweep, folder, result.metrics)
    verdict, *others = shown.findings or ("No run of it counts.",)
    in_store = store if folder else None
    charts, unread = charts_or_why(lambda: (sweep_charts(sweep, result, in_store, seen), ()))
    sections = (
        Section(
            "What to choose",
            (*others, *how.search, *ahead),
            (shown.choices, *also, shown.boundaries) if result.best else (),
        ),
        Section(
            "Figures",
            (*map(capitalised, shown.notes), *([NO_DRIFT] if sweep.is_virtual else ())),
            charts=charts,
        ),
        *(
            [Section("Parabolas", tuple(map(capitalised, shown.fits)), folded=True)]
            if shown.fits
            else ()
        ),
        Section("Every setting", tables=(shown.points,), folded=True),
    )
    return HtmlPage(
        title=shown.title,
        verdict=verdict,
        facts=(*shown.facts, *how.notes),
        notices=(
            *unread,
            *(Notice(plain(each.message), plain(each.hint)) for each in shown.cautions),
            *(Notice(problem, "\n".join(under)) for problem, under in how.problems),
        ),
        sections=sections,
        environment=surroundings(_manifests(sweep, store), in_store),
        commands=(*_again(sweep), *commands),
        data={**result_json(result), **went_json(sweep, folder), **(more or {})},
    )


def _again(sweep: Sweep) -> list[tuple[str, str]]:
    if not sweep.asked:
        return []
    command, besides = sweep_again(sweep.asked)
    of_a_file = f"; its {besides} stood in a file of sweeps" if besides else ""
    return [(command, f"the same sweep again{of_a_file}")]


def _manifests(sweep: Sweep, store: Path) -> list[Manifest]:
    """Of one run on each host and GPU: hundreds of runs were at the same few places."""
    places = {(trial.host, trial.gpu): trial.run for trial in sweep.trials if trial.run}
    found = []
    for run in places.values():
        with suppress(JoulewiseError):
            found.append(read_manifest(store / str(run)))
    return found


def compare_page(made: ComparisonResult, store: Path | None = None, again: str = "") -> HtmlPage:
    """What ``compare`` tells, and the figures; ``again`` is the command that made it."""
    shown = made.view
    charts, unread = charts_or_why(lambda: (_compare_page_charts(made), ()))
    return HtmlPage(
        title=shown.title,
        verdict=f"{capitalised(shown.finding)}.",
        facts=shown.facts,
        notices=(
            *unread,
            *(Notice(plain(each.message), plain(each.hint)) for each in shown.cautions),
        ),
        sections=(
            Section("B against A", tuple(said for _, said in made.judged), shown.tables),
            Section("Figures", charts=charts),
        ),
        environment=surroundings(list(_compare_page_manifests(made)), store),
        commands=((again, "the same comparison again"),) if again else (),
        data=made.told,
    )


def _compare_page_charts(made: ComparisonResult) -> list[Chart]:
    if isinstance(made.found, Comparison):
        return runs_charts(made.found)
    return sweeps_charts(made.found)


def _compare_page_manifests(made: ComparisonResult) -> Iterator[Manifest]:
    if isinstance(made.found, Comparison):
        for side in (made.found.a, made.found.b):
            for run in side.runs:
                yield from run.manifests

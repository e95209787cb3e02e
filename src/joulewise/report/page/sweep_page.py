"""The page of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from joulewise.data.sweeps import Sweep
from joulewise.errors import JoulewiseError
from joulewise.metrics.result import SweepResult
from joulewise.metrics.view import View
from joulewise.record.manifest import Manifest, read_manifest
from joulewise.report.figures import capitalised, plain
from joulewise.report.meant import MeantSweep
from joulewise.report.page.guarded import charts_or_why
from joulewise.report.page.page import Notice, Page, Section
from joulewise.report.page.surroundings import surroundings
from joulewise.report.repeat import sweep_again
from joulewise.report.sweep_view import result_json, view
from joulewise.report.sweep_went import as_json as went_json
from joulewise.report.sweep_went import went
from joulewise.report.tables import Table


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
) -> Page:
    """What ``choose`` tells, every figure, and every setting.

    ``seen`` is what the result is of; ``also``, ``ahead`` and ``commands`` are as in the terminal
    (:func:`joulewise.report.sweep.draw`), ``more`` is what stands beside the result in its JSON.
    """
    from joulewise.report.charts.sweep_charts import sweep_charts
    from joulewise.report.charts.sweep_drift import NO_DRIFT

    sweep, folder = found.sweep, found.folder
    shown, how = view(result), went(sweep, folder, result.metrics)
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
    return Page(
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

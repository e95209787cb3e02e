"""The progress of a sweep: a bar on a terminal, else a line for each run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TaskID
from rich.table import Column
from rich.text import Text

from joulewise.data.sweeps import (
    WARM_UP,
    Planned,
    RunCounts,
    Setting,
    Sweep,
    Trial,
    TrialState,
)
from joulewise.formatting import fitting, joules, one_line, seconds
from joulewise.metrics.boundary import GPU, NODE, View
from joulewise.metrics.metric import Metric, Reference
from joulewise.metrics.trial_table import tabulate
from joulewise.report.settings_text import runs_planned, runs_words, setting_words, settings_counted

NOTHING: Final[dict[str, Any]] = {"settings": "", "runs": "", "best": "", "end_s": None}
"""The fields of the bar at the start; ``runs`` is a longer form of ``settings``."""

# Columns (chosen): below the first the bar is short; with less than the second left, what runs now
# is not shown, since a few letters say nothing.
_NARROW: Final = 100
_LEAST: Final = 12
_MINUTE_S: Final = 60


def bar(console: Console) -> Progress:
    """The bar: how far the sweep is, what runs, the best so far, the time left."""
    width = 10 if console.width < _NARROW else 30
    return Progress(
        BarColumn(width),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        _Status(console, width),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


class _Status(ProgressColumn):
    """The text beside the bar, shortened to one line: with two the bar would jump."""

    def __init__(self, console: Console, bar_width: int) -> None:
        super().__init__(Column(no_wrap=True))
        self._console = console
        self._beside = bar_width + 2

    def render(self, task: Task) -> Text:
        counts = len(f"{task.completed:.0f}/{task.total or 0:.0f}")
        room = self._console.width - self._beside - counts - 1
        fields = task.fields
        left = _time_left(fields["end_s"])
        return line(fields["settings"], fields["runs"], fields["best"], left, room)


def line(settings: str, runs: str, best: str, left: str, room: int) -> Text:
    """What runs, the best so far and the time left, in ``room`` columns.

    The time left is always shown, the others as far as there is room.
    """
    others = [part for part in (best, left) if part]
    # From the fullest form to the shortest.
    for now, rest in ((runs, others), (settings, others), (settings, [left] if left else [])):
        fitted = _fitted(now, rest, room)
        if fitted is not None:
            break
    else:
        fitted, rest = "", [left] if left else []
    parts = [Text(fitted)] if fitted else []
    parts += [Text(part, "green" if part is best else "dim") for part in rest]
    return Text(" ").join(parts)


def _fitted(now: str, others: list[str], room: int) -> str | None:
    """As much of ``now`` as fits beside the others; None where that is next to nothing."""
    most = room - sum(cell_len(part) + 1 for part in others)
    if cell_len(now) <= most:
        return now
    return one_line(now, most) if most >= _LEAST else None


def _time_left(end_s: float | None) -> str:
    """The time until ``end_s``, which counts down between the ends of runs."""
    left_s = 0 if end_s is None else max(0, round(end_s - time.monotonic()))
    if not left_s:
        return ""
    return f"{left_s} s left" if left_s < _MINUTE_S else f"{seconds(left_s)} left"


Say = Callable[[str], None]


class SweepProgress:
    """Shows the progress of a sweep; its methods are called by what makes the runs.

    A bar on a terminal, else a line for each run, except for runs in virtual time, which are too
    quick for lines.
    """

    def __init__(self, console: Console, metric: Metric, say: Say) -> None:
        self._console = console
        self._metric = metric
        self._say = say
        self._is_quick = False
        self._done = 0
        self._running: list[Planned] = []
        self._since_s = time.monotonic()
        self._bar = bar(console)
        self._task: TaskID | None = None

    def __enter__(self) -> SweepProgress:  # noqa: PYI034  # Self came with Python 3.11
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def began(self, sweep: Sweep, left: int) -> None:
        """The sweep starts, with ``left`` runs to make."""
        self._is_quick = bool(sweep.asked.get("simulated"))
        self._since_s = time.monotonic()
        known = sum(trial.state is not TrialState.FAILED for trial in sweep.trials)
        points = (sweep.reference, *sweep.settings)
        how = runs_planned(points, left, is_search=bool(sweep.asked.get("adaptive")))
        if known:
            done = replace(RunCounts.of(sweep.trials), failed=0)
            how = f"{runs_words(done)} are done, {how} left"
        if failed := len(sweep.trials) - known:
            how += f"; {failed} failed before and {'is' if failed == 1 else 'are'} tried again"
        self._say(f"sweep {sweep.id}: {settings_counted(sweep.settings, sweep.reference)}, {how}")
        self._task = self._bar.add_task("", total=known + left, completed=known, **NOTHING)

    def started(self, planned: Planned) -> None:
        """A run starts."""
        self._running.append(planned)
        self._update_running()

    def ended(self, trial: Trial, sweep: Sweep, left: int) -> None:
        """A run has ended, with ``left`` more to make."""
        self._done += 1
        self._running = [planned for planned in self._running if planned != trial.planned]
        if trial.state is TrialState.FAILED:
            number = len(sweep.trials)
            self._say(f"{number}/{number + left} {_place(trial)} failed: {one_line(trial.reason)}")
        # Failures are printed in any case; other runs only move the bar if there is one.
        elif not self._bar.disable:
            self._update(best=self._best(sweep), end_s=self._end_s(left))
        elif not self._is_quick:
            self._say(_line(trial, len(sweep.trials), left))
        if self._task is not None:
            self._bar.update(self._task, advance=1, total=len(sweep.trials) + left)

    def _update_running(self) -> None:
        self._update(
            settings="; ".join(setting_words(planned.setting) for planned in self._running),
            runs="; ".join(map(_now, self._running)),
        )

    def said(self, line: str) -> None:
        """Print a line of whoever makes the runs."""
        self._say(line)

    def _update(self, **fields: Any) -> None:
        if self._task is not None and not self._bar.disable:
            for name, value in fields.items():
                if isinstance(value, str):
                    fields[name] = fitting(value, self._console.encoding)
            self._bar.update(self._task, **fields)

    def _end_s(self, left: int) -> float | None:
        """When the last run will end, if the others take as long as those so far on average."""
        now_s = time.monotonic()
        return now_s + left * (now_s - self._since_s) / self._done if left else None

    def _best(self, sweep: Sweep) -> str:
        means, max_power_w = _means(sweep)
        reference = means.get(sweep.reference)
        if reference is None:
            return ""
        board = Reference(*reference, max_power_w)
        scores = {
            setting: float(self._metric.score(*mean, board)) for setting, mean in means.items()
        }
        best = min(scores, key=lambda setting: scores[setting])
        if not math.isfinite(scores[best]):
            return ""
        return f"best by {self._metric.name}: {setting_words(best)}"


def _means(sweep: Sweep) -> tuple[dict[Setting, tuple[float, float]], float | None]:
    """Mean time (s) and energy (J) of each setting so far; and the greatest power (W)."""
    asked = sweep.asked
    boundary = asked.get("boundary", GPU)
    table = tabulate(
        sweep, View(boundary, overhead_w=asked.get("overhead_w"), pue=asked.get("pue"))
    )
    if boundary == GPU and not np.isfinite(table.energy_j[GPU]).any():
        boundary = NODE
    found = {}
    for setting, time_s, energy_j in zip(
        table.settings, table.time_s, table.energy_j[boundary], strict=True
    ):
        seen = np.isfinite(time_s) & np.isfinite(energy_j)
        if seen.any():
            found[setting] = float(time_s[seen].mean()), float(energy_j[seen].mean())
    return found, table.max_power_w


def _line(trial: Trial, number: int, left: int) -> str:
    if trial.state is TrialState.SKIPPED:
        return f"{number}/{number + left} {_place(trial)} skipped: {one_line(trial.reason)}"
    energy = trial.energy.get(GPU) or next(iter(trial.energy.values()), None)
    took = "" if trial.time_s is None else f" in {seconds(trial.time_s)}"
    bound = trial.bounds.get(GPU) or next(iter(trial.bounds.values()), None)
    drew = "energy unavailable" if energy is None else joules(energy.value)
    if bound is not None and (energy is None or GPU in trial.bounds):
        drew = f"at least {joules(bound.value)}, since a device was not read to the end"
    return f"{number}/{number + left} {_place(trial)}: {drew}{took}"


def _now(planned: Planned) -> str:
    return f"{setting_words(planned.setting)} ({_block(planned.block)})"


def _place(trial: Trial) -> str:
    return f"{setting_words(trial.setting)} ({_block(trial.block)})"


def _block(block: int) -> str:
    return "warm-up" if block == WARM_UP else f"repetition {block + 1}"

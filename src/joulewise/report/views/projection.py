"""What a choice of a sweep leads to: the next run, a year of runs, the command that applies it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from joulewise.data.codec import encode
from joulewise.data.sweeps import Setting, Sweep, control_options
from joulewise.formatting import amount, joules, seconds
from joulewise.metrics.boundary import View
from joulewise.metrics.metric import parse
from joulewise.metrics.projection import NextRun, Year, next_run, year
from joulewise.metrics.result import Interval, SweepResult
from joulewise.report.rerun import rerun_sweep_command
from joulewise.report.settings_text import setting_words
from joulewise.sweep.spec import render
from joulewise.sweep.stored_sweeps import is_over

_TRAIN = ("python", "train.py")  # stands for the command of a sweep that has none


@dataclass(frozen=True)
class ChoiceProjection:
    """What the recommendation of one metric leads to; ``year`` if the runs per year are known.

    The reference has neither ``year`` nor ``command``: nothing changes.
    """

    metric: str
    setting: Setting
    next_run: NextRun
    year: Year | None
    command: str | None
    is_reference: bool


def outlook(
    sweep: Sweep,
    result: SweepResult,
    view: View,
    *,
    runs_per_year: float | None = None,
    price_per_kwh: float | None = None,
    gco2_per_kwh: float | None = None,
) -> tuple[ChoiceProjection, ...]:
    """A projection for the recommendation of each metric; prices are per kWh."""

    def project(metric: str, setting: Setting) -> ChoiceProjection:
        is_reference = setting == result.reference.setting
        saved = None
        if runs_per_year is not None and not is_reference:
            saved = year(
                result,
                metric,
                runs_per_year,
                price_per_kwh=price_per_kwh,
                gco2_per_kwh=gco2_per_kwh,
            )
        command = None if is_reference else applying(sweep, setting)
        return ChoiceProjection(
            metric, setting, next_run(sweep, setting, view), saved, command, is_reference
        )

    return tuple(project(metric, choice.recommended) for metric, choice in result.best.items())


def applying(sweep: Sweep, setting: Setting) -> str:
    """The shell command that runs with this setting; ``python train.py`` of a sweep without one."""
    asked, words = sweep.asked, setting.words
    controls = control_options(setting, asked.get("gpus", ()), force=bool(asked.get("force")))
    command = [render(word, words) for word in asked.get("command", ())]
    if not command:
        own = (f"--{name.replace('_', '-')}={value}" for name, value in words.items())
        command = [*_TRAIN, *own]
    folder = render(asked.get("cwd", ""), words)
    there = f"cd {shlex.quote(folder)} && " if folder else ""
    variables = "".join(
        f"{name}={shlex.quote(render(text, words))} "
        for name, text in asked.get("environ", {}).items()
    )
    return f"{there}{variables}{shlex.join(['joulewise', 'run', *controls, '--', *command])}"


def next_commands(
    sweep: Sweep,
    outlooks: tuple[ChoiceProjection, ...],
    program: str,
    *,
    points: bool = True,
    training: bool = True,
) -> Iterator[tuple[str, str]]:
    """Commands to run next, each with its purpose: apply a choice, or show more.

    Without any choice it is the command that makes the missing runs.
    """
    commands: dict[str, list[str]] = {}
    for projection in outlooks:
        if projection.command is not None:
            commands.setdefault(projection.command, []).append(projection.metric)
    for command, metrics in commands.items():
        yield command, f"by {', '.join(metrics)}"
    if not outlooks and (again := resume_command(sweep, program)):
        yield again, "makes the missing runs"
    if not sweep.asked or not outlooks:
        return
    if points:
        yield f"{program} choose {sweep.id} --points", "every setting"
    if training and any("epoch" in trial.spans for trial in sweep.trials):
        yield f"{program} choose {sweep.id} --epochs 90", "what a full training takes"


def resume_command(sweep: Sweep, program: str = "joulewise") -> str | None:
    """The command that makes the missing runs; None of a table or a sweep from a file."""
    if not sweep.asked or is_over(sweep):
        return None
    try:
        command, in_a_file = rerun_sweep_command(sweep.asked)
    # Such a sweep can still be shown.
    except (TypeError, KeyError):  # of another version of joulewise
        return None
    return None if in_a_file else command.replace("joulewise", program, 1)


def projection_json(outlooks: tuple[ChoiceProjection, ...]) -> dict[str, Any]:
    """The ``outlook`` of ``choose --json``, by metric."""
    return {
        projection.metric: {
            "settings": projection.setting.as_json(),
            "next_run": encode(projection.next_run),
            "year": None if projection.year is None else _year_json(projection.year),
            "command": projection.command,
        }
        for projection in outlooks
    }


def projection_lines(outlooks: tuple[ChoiceProjection, ...], per: str) -> Iterator[str]:
    """A line on a full training, if figures are per training, and one on the year, if known."""
    labels: dict[str, list[str]] = {}
    for projection in outlooks:
        label = parse(projection.metric).label
        if per == "training":
            at = setting_words(projection.setting)
            sentence = f"a full training at {at} {_takes(projection.next_run)}"
            labels.setdefault(sentence, []).append(label)
        if projection.year is not None and not projection.is_reference:
            labels.setdefault(_saves(projection.year), []).append(label)
    for sentence, alike in labels.items():
        yield f"{'; '.join(alike)}: {sentence}"


def _year_json(projected: Year) -> dict[str, Any]:
    return {
        "runs": projected.runs,
        **{
            name: encode(getattr(projected, name))
            for name in ("energy_kwh", "time_h", "money", "co2_kg")
        },
    }


def _takes(run: NextRun) -> str:
    energy = "an unknown energy" if run.energy_j is None else _range(run.energy_j, joules)
    time = "an unknown time" if run.time_s is None else _range(run.time_s, seconds)
    has_range = any(it is not None and it.low is not None for it in (run.energy_j, run.time_s))
    return f"takes {energy} in {time}{' (95 % intervals)' if has_range else ''}"


def _saves(year: Year) -> str:
    if year.energy_kwh is None:
        return f"it is not known what {year.runs:g} runs a year save"
    saves = year.energy_kwh.mean >= 0
    amounts = (
        (year.energy_kwh, "kWh"),
        (year.money, "in the currency of --price"),
        (year.co2_kg, "kg CO2e"),
    )
    parts = [
        f"{_range(interval if saves else _negative(interval), amount)} {unit}"
        for interval, unit in amounts
        if interval is not None
    ]
    sentence = f"{year.runs:g} runs a year {'save' if saves else 'cost'} {', '.join(parts)}"
    if year.time_h is None:
        return sentence
    if year.time_h.mean < 0:
        return f"{sentence}, and take {_range(_negative(year.time_h), amount)} h less"
    return f"{sentence}, and take {_range(year.time_h, amount)} h longer"


def _negative(interval: Interval) -> Interval:
    if interval.low is None or interval.high is None:
        return Interval(-interval.mean)
    return Interval(-interval.mean, -interval.high, -interval.low)


def _range(interval: Interval, words: Callable[[float], str]) -> str:
    if interval.low is None or interval.high is None:
        return words(interval.mean)
    return f"{words(interval.mean)} ({words(interval.low)} to {words(interval.high)})"

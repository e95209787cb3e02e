"""What a choice means from here on: the next run, a year of them, the command that applies it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from joulewise.data.sweeps import Setting, Sweep
from joulewise.formatting import amount, joules, seconds
from joulewise.metrics.boundary import View
from joulewise.metrics.metric import parse
from joulewise.metrics.projection import NextRun, Year, next_run, year
from joulewise.metrics.result import Interval, SweepResult, interval_json
from joulewise.report.rerun import sweep_again
from joulewise.report.settings_text import setting_words
from joulewise.sweep.runners.child_run import knob_options
from joulewise.sweep.stored_sweeps import is_over
from joulewise.sweep.validate import render

_TRAIN = ("python", "train.py")


@dataclass(frozen=True)
class ChoiceProjection:
    """Of what one metric recommends; ``year`` where it was said how many runs there are.

    The reference saves nothing against itself, and takes no ``command``: it is how things are.
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
    def of(metric: str, setting: Setting) -> ChoiceProjection:
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

    return tuple(of(metric, choice.recommended) for metric, choice in result.best.items())


def applying(sweep: Sweep, setting: Setting) -> str:
    """The command that runs with this setting; of a sweep without one, with a stand-in for it."""
    asked, words = sweep.asked, setting.words
    knobs = knob_options(setting, asked.get("gpus", ()), force=bool(asked.get("force")))
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
    return f"{there}{variables}{shlex.join(['joulewise', 'run', *knobs, '--', *command])}"


def next_commands(
    sweep: Sweep,
    outlooks: tuple[ChoiceProjection, ...],
    program: str,
    *,
    points: bool = True,
    training: bool = True,
) -> Iterator[tuple[str, str]]:
    """What to type next, each with what it is for: what applies a choice, what tells more.

    Without any choice it is what makes the runs that are missing.
    """
    commands: dict[str, list[str]] = {}
    for each in outlooks:
        if each.command is not None:
            commands.setdefault(each.command, []).append(each.metric)
    for command, metrics in commands.items():
        yield command, f"by {', '.join(metrics)}"
    if not outlooks and (again := resume_command(sweep, program)):
        yield again, "makes the runs that are missing"
    if not sweep.asked or not outlooks:
        return
    if points:
        yield f"{program} choose {sweep.id} --points", "every setting"
    if training and any("epoch" in trial.spans for trial in sweep.trials):
        yield f"{program} choose {sweep.id} --epochs 90", "what a full training takes"


def resume_command(sweep: Sweep, program: str = "joulewise") -> str | None:
    """What makes the runs that a sweep lacks; None where they are a table, or a file began it."""
    if not sweep.asked or is_over(sweep):
        return None
    try:
        command, in_a_file = sweep_again(sweep.asked)
    except (TypeError, KeyError):  # of another version of joulewise
        return None
    return None if in_a_file else command.replace("joulewise", program, 1)


def outlook_json(outlooks: tuple[ChoiceProjection, ...]) -> dict[str, Any]:
    return {
        each.metric: {
            "settings": each.setting.as_json(),
            "next_run": {
                "time_s": interval_json(each.next_run.time_s),
                "energy_j": interval_json(each.next_run.energy_j),
            },
            "year": None if each.year is None else _year_json(each.year),
            "command": each.command,
        }
        for each in outlooks
    }


def outlook_lines(outlooks: tuple[ChoiceProjection, ...], per: str) -> Iterator[str]:
    """A line on the next run where it is one of a full training, and one on the year."""
    labels: dict[str, list[str]] = {}
    for each in outlooks:
        label = parse(each.metric).label
        if per == "training":
            at = setting_words(each.setting)
            said = f"a full training at {at} {_takes(each.next_run)}"
            labels.setdefault(said, []).append(label)
        if each.year is not None and not each.is_reference:
            labels.setdefault(_saves(each.year), []).append(label)
    for said, alike in labels.items():
        yield f"{'; '.join(alike)}: {said}"


def _year_json(told: Year) -> dict[str, Any]:
    return {
        "runs": told.runs,
        **{
            name: interval_json(getattr(told, name))
            for name in ("energy_kwh", "time_h", "money", "co2_kg")
        },
    }


def _takes(told: NextRun) -> str:
    energy = "an unknown energy" if told.energy_j is None else _range(told.energy_j, joules)
    time = "an unknown time" if told.time_s is None else _range(told.time_s, seconds)
    ranges = [it for it in (told.energy_j, told.time_s) if it is not None and it.low is not None]
    return f"takes {energy} in {time}{' (95 of 100 would lie there)' if ranges else ''}"


def _saves(told: Year) -> str:
    if told.energy_kwh is None:
        return f"what {told.runs:g} runs a year save is not known"
    saves = told.energy_kwh.mean >= 0
    amounts = (told.energy_kwh, " kWh"), (told.money, " of money"), (told.co2_kg, " kg of CO2")
    parts = [
        f"{_range(found if saves else _negative(found), amount)}{unit}"
        for found, unit in amounts
        if found is not None
    ]
    said = f"{told.runs:g} runs a year {'save' if saves else 'cost'} {', '.join(parts)}"
    if told.time_h is None:
        return said
    if told.time_h.mean < 0:
        return f"{said}, and take {_range(_negative(told.time_h), amount)} h less"
    return f"{said}, and take {_range(told.time_h, amount)} h longer"


def _negative(found: Interval) -> Interval:
    if found.low is None or found.high is None:
        return Interval(-found.mean)
    return Interval(-found.mean, -found.high, -found.low)


def _range(interval: Interval, words: Callable[[float], str]) -> str:
    if interval.low is None or interval.high is None:
        return words(interval.mean)
    return f"{words(interval.mean)} ({words(interval.low)} to {words(interval.high)})"

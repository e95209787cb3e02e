"""The tables of a comparison: quantities, differences, and settings and choices of sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from joulewise.compare.judgement import ComparedQuantity, VerdictBasis
from joulewise.compare.quantities import EDP, ENERGY, POWER, RUN, TIME, UNITS
from joulewise.compare.runs import Comparison
from joulewise.compare.sweeps import ChoiceComparison, SettingComparison, SweepComparison
from joulewise.formatting import joules, one_line, seconds, watts
from joulewise.metrics.metric import parse
from joulewise.metrics.result import Choice, Interval
from joulewise.report.settings_text import AXES, change, error_words, setting_words, value_words
from joulewise.report.tables import Column, Table, number_columns, text_columns
from joulewise.report.views.sweep_tables import bounds
from joulewise.units import prefixed

Record = Mapping[str, float | str | None]
_LONGEST: Final = 60  # characters of a cell with free text (chosen: two fit in 120 columns)
_FIELDS: Final = {ENERGY: "energy_j", TIME: "time_s", POWER: "power_w", EDP: "edp_js"}
_FIGURES: Final = (
    Column("A", spare=2),
    Column("error A", spare=4),
    Column("B", spare=2),
    Column("error B", spare=4),
    Column("change"),
    Column("verdict", right=False, spare=1),
)


def quantities_table(comparison: Comparison) -> Table:
    """Every quantity; without a device that is the same as the total."""
    shown = [it for it in comparison.quantities if not _is_total(it, comparison)]
    return Table(
        "B against A",
        (Column("quantity", right=False), *_FIGURES, Column("basis", right=False, spare=5)),
        tuple((_name(it, comparison), *_figures(it), _by(it)) for it in shown),
        tuple(_record(it) for it in shown),
        provenance=provenance(comparison),
    )


def differences_table(comparison: Comparison) -> Table:
    """What is not the same on both sides."""
    return Table(
        "What differs",
        (Column("", right=False), Column("A", right=False), Column("B", right=False)),
        tuple(
            (one_line(it.what, _LONGEST), _listed(it.a), _listed(it.b))
            for it in comparison.differences
        ),
        tuple(
            {"what": it.what, "a": ", ".join(it.a), "b": ", ".join(it.b)}
            for it in comparison.differences
        ),
    )


def settings_table(comparison: SweepComparison) -> Table:
    """Every setting that both sweeps have."""
    axes = [*comparison.a.reference.setting]
    names = [(name, *AXES.get(name, (name, ""))) for name in axes]
    return Table(
        f"Setting by setting, B against A{_per(comparison)}",
        (
            *(Column(one_line(label), unit) for _, label, unit in names),
            Column("runs", spare=4),
            Column("energy A", spare=2),
            Column("energy B", spare=2),
            *number_columns("energy B vs A", "time B vs A"),
            Column("EDP B vs A", spare=3),
            Column("verdict on energy", right=False, spare=1),
        ),
        tuple(_setting_row(it) for it in comparison.settings),
        tuple(_setting_record(it) for it in comparison.settings),
        provenance=provenance(comparison),
    )


def choices_table(comparison: SweepComparison) -> Table:
    """The best setting per objective in each sweep."""
    return Table(
        f"Best setting per objective, and B's choice against A's{_per(comparison)}",
        (
            *text_columns("objective", "in A"),
            Column("energy A vs its ref.", spare=2),
            Column("time A vs its ref.", spare=3),
            Column("in B", right=False),
            Column("energy B vs its ref.", spare=2),
            Column("time B vs its ref.", spare=3),
            *number_columns("energy B vs A", "time B vs A"),
        ),
        tuple(
            (
                parse(it.metric).label,
                *_chosen(it.a),
                *_chosen(it.b),
                _change(it.energy),
                _change(it.time),
            )
            for it in comparison.choices
        ),
        tuple(_choice_record(it) for it in comparison.choices),
        provenance=provenance(comparison),
    )


def _per(comparison: SweepComparison) -> str:
    return "" if comparison.a.per == RUN else f", per {comparison.a.per}"


def provenance(comparison: Comparison | SweepComparison) -> str:
    """Which side is simulated, for the captions of tables; empty where none is."""
    return {
        (True, True): "simulated",
        (True, False): "A simulated, B real",
        (False, True): "A real, B simulated",
        (False, False): "",
    }[comparison.simulated]


def words_of(quantity: str) -> str:
    """A quantity in a sentence: ``energy per epoch``, ``energy of gpu0``."""
    what, _, work = quantity.partition("/")
    if what not in UNITS:
        return f"energy of {one_line(quantity)}"
    name = {POWER: "mean power", EDP: "EDP"}.get(what, what)
    return f"{name} per {work}" if work else name


def value_in(unit: str, value: float) -> str:
    """A value with its unit and prefix, as the quantity of that unit is written."""
    if unit == "J":
        return joules(value)
    if unit == "s":
        return seconds(value)
    return watts(value) if unit == "W" else prefixed(value, unit)


def _name(compared: ComparedQuantity, comparison: Comparison) -> str:
    """The name of a quantity; of a device that the total leaves out, with that note."""
    runs = (*comparison.a.runs, *comparison.b.runs)
    is_device = all(compared.quantity in run.result.run.devices for run in runs)
    is_left_out = is_device and not any(compared.quantity in run.result.counted for run in runs)
    return one_line(compared.quantity) + (", not in the total" if is_left_out else "")


def _figures(compared: ComparedQuantity) -> tuple[str | None, ...]:
    return (
        *_own(compared.a, compared.unit),
        *_own(compared.b, compared.unit),
        change(compared.ratio),
        compared.verdict.value,
    )


def _own(interval: Interval | None, unit: str) -> tuple[str | None, str | None]:
    if interval is None:
        return None, None
    return value_in(unit, interval.mean), error_words(interval)


def _by(compared: ComparedQuantity) -> str:
    if compared.basis is VerdictBasis.NOTHING:
        return "-"
    return compared.basis.value if compared.basis else compared.reason


def _is_total(compared: ComparedQuantity, comparison: Comparison) -> bool:
    runs = (*comparison.a.runs, *comparison.b.runs)
    return all(run.result.counted == (compared.quantity,) for run in runs)


def _record(compared: ComparedQuantity) -> Record:
    return {
        "quantity": compared.quantity,
        "unit": compared.unit,
        "runs_a": compared.n[0],
        "runs_b": compared.n[1],
        **bounds("a", compared.a),
        **bounds("b", compared.b),
        **bounds("ratio", compared.ratio),
        "verdict": compared.verdict.value,
        "basis": compared.basis.value if compared.basis else None,
        "reason": compared.reason or None,
    }


def _listed(values: tuple[str, ...]) -> str | None:
    return one_line(" | ".join(values), _LONGEST) if values else None


def _setting_row(point: SettingComparison) -> tuple[str | None, ...]:
    energy, time = point.get(ENERGY), point.get(TIME)
    n = time.n if time else (0, 0)
    return (
        *(value_words(name, value) for name, value in point.setting.values),
        f"{n[0]}" if n[0] == n[1] else f"{n[0]}, {n[1]}",
        *(_own(side, "J")[0] for side in ((energy.a, energy.b) if energy else (None, None))),
        _change(energy),
        _change(time),
        _change(point.get(EDP)),
        energy.verdict.value if energy else None,
    )


def _change(compared: ComparedQuantity | None) -> str | None:
    return change(compared.ratio) if compared else None


def _setting_record(point: SettingComparison) -> Record:
    record: dict[str, float | str | None] = dict(point.setting.values)
    for compared in point.quantities:
        name, key = compared.quantity, _FIELDS[compared.quantity]
        record |= {**bounds(f"{key}_a", compared.a), **bounds(f"{key}_b", compared.b)}
        record |= {**bounds(f"{name}_ratio", compared.ratio)}
        record |= {f"{name}_verdict": compared.verdict.value}
        record |= {"runs_a": compared.n[0], "runs_b": compared.n[1]}
    return record


def _chosen(choice: Choice | None) -> tuple[str | None, str | None, str | None]:
    if choice is None:
        return None, None, None
    return setting_words(choice.setting), change(choice.energy), change(choice.time)


def _choice_record(pair: ChoiceComparison) -> Record:
    sides = {"a": pair.a, "b": pair.b}
    return {
        "metric": pair.metric,
        **{
            f"{name}_{side}": value
            for side, choice in sides.items()
            if choice is not None
            for name, value in choice.setting.values
        },
        **bounds("energy_ratio", pair.energy.ratio if pair.energy else None),
        **bounds("time_ratio", pair.time.ratio if pair.time else None),
    }

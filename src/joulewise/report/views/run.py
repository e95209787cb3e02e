"""What is shown of a run or a group: facts, devices, spans, notes, warnings, the finding.

Computed once for the terminal, the page and the live view.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, Final

from joulewise import formatting
from joulewise.analyse.validation import ValidationPlace, place_validations
from joulewise.data import (
    ControlKind,
    Energy,
    PowerScope,
    QualityWarning,
    RunResult,
    Source,
    Use,
    WarningCode,
    listed_keys,
)
from joulewise.data.run_result_json import decode_energy
from joulewise.formatting import (
    amount,
    between,
    capitalised,
    energy,
    figures,
    is_resolved,
    joules,
    one_line,
    plain,
    seconds,
    watt_hours,
    watts,
    within,
)
from joulewise.store.runs import COMPLETE
from joulewise.units import J_PER_KWH


def outlook(forecast: Mapping[str, Any] | None) -> Iterator[str]:
    """Sentences on what a run in progress will take: time and energy in one, costs in others.

    ``forecast`` is the ``outlook`` of a result; where it has none yet, the sentence says why.
    """
    if not forecast:
        return
    done, announced = forecast["epochs"]["done"], forecast["epochs"]["total"]
    epochs = f"{done} epochs are done"
    if announced is not None:
        epochs = f"epoch {done} of {announced} is done"
    training = forecast["epochs"].get("training", 0)
    if training:  # it is not known whether it is the last one
        epochs = f"training {training + 1}, {epochs}"
    at_s = forecast.get("at_s")
    when = "" if at_s is None else f" at {seconds(at_s)}"
    title = f"forecast{when}"
    whole = "up to the end of this training the run" if training else "the whole run"
    if "reason" in forecast:
        fix = f" ({forecast['fix']})" if forecast["fix"] else ""
        yield plain(f"no forecast{when}: {epochs}; {forecast['reason']}{fix}")
        return
    time_s, energy_j = forecast["time_s"], forecast["energy_j"]
    takes = f"{seconds(time_s['value'])} ({between(time_s['low'], time_s['high'], 's')})"
    is_bound = bool(energy_j and energy_j.get("at_least"))
    if is_bound:
        takes += f" and at least {joules(energy_j['low'])}"
    elif energy_j:
        within = between(energy_j["low"], energy_j["high"], "J")
        takes += f" and {joules(energy_j['value'])} ({within})"
    yield f"{title}: {epochs}; {whole} takes {takes}"
    for name, label, unit in (("price", "cost", ""), ("gco2", "emissions", " g CO₂")):
        if cost := forecast.get(name):
            value, low, high = (amount(cost[part]) for part in ("value", "low", "high"))
            if is_bound:
                yield f"forecast: {label} at least {low}{unit}"
                continue
            yield f"forecast: {label} {value}{unit} ({low}-{high})"


@dataclass(frozen=True)
class PriceAndCarbon:
    """What a kilowatt-hour costs and emits; None for what was given when the run was made."""

    price_per_kwh: float | None = None
    gco2_per_kwh: float | None = None


NO_RATES: Final = PriceAndCarbon()
# Characters of a command in the facts (chosen: one line of a wide terminal). Doubled, it wraps.
_LONGEST_COMMAND: Final = 120
_MODULE_PARTS: Final = {"gpu": "GPU", "memory": "GPU memory"}
_STATE_WORDS: Final = {COMPLETE: "finished", "stopped": "interrupted"}


@dataclass(frozen=True)
class DeviceRow:
    """One device, or the total; ``parts`` are the sampling and the calibration error."""

    device: str
    energy: str
    error: str
    mean: str
    peak: str
    source: str
    parts: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class SpanRow:
    """The spans of one name, with means and ranges.

    ``error`` is the typical error of one of them, "-" where none was listed with an energy.
    """

    name: str
    count: str
    time: str
    times: str
    energy: str
    energies: str
    error: str = "-"


@dataclass(frozen=True)
class RunView:
    """Everything that is shown of a run; ``provenance`` says what in it is simulated."""

    title: str
    facts: tuple[str, ...]
    rows: tuple[DeviceRow, ...]
    total: DeviceRow
    notes: tuple[str, ...]
    spans: tuple[SpanRow, ...]
    warnings: tuple[QualityWarning, ...]
    finding: str
    provenance: str
    commands: tuple[tuple[str, str], ...]


def run_view(
    result: RunResult,
    rates: PriceAndCarbon = NO_RATES,
    program: str = "joulewise",
    *,
    has_errors: bool = False,
) -> RunView:
    """What to show of a result; ``program`` is how to call joulewise in commands to paste.

    With ``has_errors`` both parts of each error are shown already, and no command leads to them.
    """
    about = result.details.get("about", {})
    name = plain(about.get("name", ""))
    kind = "group" if "runs" in result.details else "run"
    return RunView(
        title="  ".join(part for part in (f"{kind} {plain(result.id)}", name) if part),
        facts=tuple(_facts(result, about)),
        rows=tuple(
            _row(key, use, result.time_s, result.power_scopes.get(key))
            for key, use in result.run.devices.items()
        ),
        total=total_row(result),
        notes=tuple(_notes(result, rates)),
        spans=tuple(_spans(result)),
        # What is excluded stands among the notes.
        warnings=tuple(w for w in result.warnings if w.code is not WarningCode.EXCLUDED),
        finding=_finding(result),
        provenance=provenance(result),
        commands=tuple(_commands(result, program, has_errors=has_errors)),
    )


def ending(
    state: str, exit_code: int | None, codes: Collection[str], *, is_bound: bool = False
) -> str:
    """How a run ended, in a word or two: finished, failed, interrupted or killed.

    ``codes`` are those of its warnings. ``is_bound``: its energy is only a lower bound. The exit
    status of a process that ``--pid`` measured is not known.
    """
    if state == "stopped" and WarningCode.RECORDER_ENDED in codes:
        return ("" if exit_code is None else f"{_exit(exit_code)}, ") + "recorder killed"
    if state != COMPLETE:
        return _STATE_WORDS.get(state, state)
    tuning = ", tuning ended early" if WarningCode.TUNING_ENDED in codes else ""
    return f"{_exit(exit_code or 0)}{', energy incomplete' if is_bound else ''}{tuning}"


def mean_power_w(result: RunResult) -> float | None:
    """The mean power of the total, over the time that was measured (in a group, not end to end).

    None for a lower bound: its devices were read for different times.
    """
    time_s, total = result.details.get("measured_s", result.time_s), result.run.total
    return total.value / time_s if total and not total.at_least and time_s > 0 else None


def warned(warning: QualityWarning) -> str:
    """A warning in one line, with the device that it is about."""
    return plain(f"{warning.device}: {warning.message}" if warning.device else warning.message)


def _exit(code: int) -> str:
    if not code:
        return "finished"
    return f"killed (signal {code - 128})" if code > 128 else f"failed (exit {code})"


def _facts(result: RunResult, about: Mapping[str, Any]) -> Iterator[str]:
    if about.get("command"):
        yield one_line(about["command"], _LONGEST_COMMAND)
    codes = [warning.code for warning in result.warnings]
    is_lower_bound = is_bound(result.run.total)
    facts = [
        ending(result.state, result.exit_code, codes, is_bound=is_lower_bound),
        seconds(result.time_s),
    ]
    facts += [plain(str(about[key])) for key in ("started", "host") if about.get(key)]
    facts += [f"group {plain(about['group'])}"] if about.get("group") else []
    facts += [f"tags {', '.join(map(plain, about['tags']))}"] if about.get("tags") else []
    yield " · ".join([*facts, *_settings(about.get("settings", {}), result)])


def _settings(settings: Mapping[str, Mapping[str, float]], result: RunResult) -> Iterator[str]:
    """What was set for the run: ``gpu0, gpu1 at 150 W, SM clock 1200 MHz``."""
    alike: dict[str, list[str]] = {}
    devices = result.details.get("devices", {})
    for key, values in settings.items():
        scope = devices.get(key, {}).get("limit_scope")
        texts = (
            ("" if control is ControlKind.POWER_LIMIT else f"{formatting.CONTROLS[control]} ")
            + formatting.setting(control, values[control.value])
            + (
                f" ({formatting.LIMITED[scope]})"
                if control is ControlKind.POWER_LIMIT and scope
                else ""
            )
            for control in ControlKind
            if control.value in values
        )
        alike.setdefault(", ".join(texts), []).append(key)
    for text, keys in alike.items():
        yield f"{listed_keys(keys)} at {text}"


def _row(key: str, use: Use, time_s: float, scope: PowerScope | None = None) -> DeviceRow:
    """``time_s`` is that of the run: a device that was read for less says for how long."""
    if use.energy is None:
        return DeviceRow(plain(key), "unavailable", "", "-", "-", "-")
    read_s = time_s if use.read_s is None else use.read_s
    how = []
    if use.energy.source.is_sensor:
        how.append("power samples" if use.counter_j is None else "counter")
    if _kind(key) == "cpu":
        how.append("whole machine")  # a CPU's energy includes that of other programs
    if scope is PowerScope.MODULE:
        how.append("module")
    return DeviceRow(
        plain(key),
        *figures(use.energy),
        watts(use.mean_w) + (f" in {seconds(read_s)}" if read_s < time_s else ""),
        watts(use.peak_w),
        use.energy.source.value + (f" ({', '.join(how)})" if how else ""),
        _parts(use.energy),
    )


def total_row(result: RunResult) -> DeviceRow:
    """The row of the total."""
    total = result.run.total
    if total is None:
        return DeviceRow("total", "unavailable", "", "-", "", "-")
    return DeviceRow(
        "total",
        *figures(total),
        watts(mean_power_w(result)),
        "",
        total_source(total, result.simulated_counted, _sources(result)),
        _parts(total),
    )


def provenance(*results: RunResult) -> str:
    """``GPU simulated``, also if it is not in the total; empty if all devices are real."""
    counted = [key for each in results for key in each.simulated_counted]
    others = formatting.simulated(key for each in results for key in each.simulated)
    return formatting.simulated(counted) or (others and f"{others} but not counted")


def total_source(total: Energy, simulated: Collection[str], sources: Iterable[Source] = ()) -> str:
    """Where a total comes from: ``measured``, or the sources of its devices, ``sources``.

    Where only the total is known, as in a list of runs, at least what is simulated is named.
    """
    if total.source is not Source.MIXED:
        return str(total.source.value)
    named = ", ".join(dict.fromkeys(source.value for source in sources))
    some = formatting.simulated(simulated)
    return named or (f"{some}, others not" if some else "several sources")


def _sources(result: RunResult) -> list[Source]:
    energies = (result.run.devices[key].energy for key in result.counted)
    return [energy.source for energy in energies if energy is not None]


def _parts(value: Energy) -> tuple[str, str]:
    return within(value.error_sampling, value.value), within(value.error_gain, value.value)


def _epoch_notes(result: RunResult) -> Iterator[str]:
    """Whether an epoch includes its validation, which differs between programs."""
    place = place_validations(result)
    if place is ValidationPlace.WITHIN:
        yield "an epoch contains its validation"
    elif place is ValidationPlace.OUTSIDE:
        yield "an epoch does not contain its validation, which is a span of its own"
    elif place is ValidationPlace.BOTH:
        yield "some validations lie within epochs, others outside"


def _notes(result: RunResult, rates: PriceAndCarbon) -> Iterator[str]:
    yield from outlook(result.outlook)
    by_reason: dict[str, list[str]] = {}
    for out in result.excluded:
        by_reason.setdefault(out.reason, []).append(out.device)
    for reason, devices in by_reason.items():
        yield f"not in the total: {plain(listed_keys(devices))} ({plain(reason)})"
    if result.missing:
        which = plain(listed_keys(result.missing))
        yield f"missing from the total, which is a lower bound: {which} could not be read"
    yield from _modules(result)
    yield from _epoch_notes(result)
    yield from _net(result)
    if more := result.details.get("more_names"):
        yield f"{more} more names of spans are not shown here; joulewise export has them all"
    total, given = result.run.total, result.details.get("rates", {})
    price = given.get("price_per_kwh") if rates.price_per_kwh is None else rates.price_per_kwh
    grams = given.get("gco2_per_kwh") if rates.gco2_per_kwh is None else rates.gco2_per_kwh
    if total and price is not None:
        yield f"cost: {_scaled(total, price)} at {price:g} per kWh"
    if total and grams is not None:
        yield f"emissions: {_scaled(total, grams)} g CO₂ at {grams:g} g per kWh"


def _modules(result: RunResult) -> Iterator[str]:
    """The energy of each superchip's module, and of the parts of it that were measured."""
    for key, scope in result.power_scopes.items():
        use = result.run.devices.get(key)
        if scope is PowerScope.MODULE and use and use.energy:
            parts = result.details.get("parts", {}).get(key, {})
            inside = [
                f"{_MODULE_PARTS.get(name, name)} {energy(part)}"
                for name, it in parts.items()
                if (part := decode_energy(it))
            ]
            of_which = f", of which {', '.join(inside)} ({use.energy.source.value})"
            module = f"module of {plain(key)}: {energy(use.energy)}, including CPU and memory"
            yield module + (of_which if inside else "")


def _net(result: RunResult) -> Iterator[str]:
    """Energy above idle of each GPU and of all; of a group only of all, or why it is unknown."""
    is_group = "runs" in result.details
    baselines = result.details.get("baseline", {})
    nets = [(key, result.run.devices[key].net) for key in result.counted]
    known = {key: net for key, net in nets if net is not None}
    for key, baseline in baselines.items():
        # A group has too many GPUs for a line each.
        if key in known and not is_group:
            idle = f"{watts(baseline.get('power_w'))}, {baseline.get('kind')}"
            yield f"net of idle ({idle}): {plain(key)} {energy(known[key])}"
    if result.net_total and (is_group or len(known) > 1):
        yield f"net of idle, all GPUs: {energy(result.net_total)}"
    elif is_group:
        for key, baseline in list(baselines.items())[:1]:
            more = f", and {len(baselines) - 1} more GPUs" if len(baselines) > 1 else ""
            yield f"net of idle: unavailable, {plain(key)}: {plain(baseline['reason'])}{more}"


def _scaled(value: Energy, per_kwh: float) -> str:
    if value.at_least:
        read_j = max(value.value, 0.0)
        return f"at least {amount(read_j / J_PER_KWH * per_kwh)} {within(value.error, read_j)}"
    # The error exceeds the value: only an upper bound can be stated.
    if not is_resolved(value):
        return f"below {amount((value.value + value.error) / J_PER_KWH * per_kwh)}"
    share = within(value.error, value.value)
    return f"{amount(value.value / J_PER_KWH * per_kwh)} {share}"


def _spans(result: RunResult) -> Iterator[SpanRow]:
    for name, kind in result.details.get("spans", {}).items():
        announced = kind.get("announced")
        planned = f" of {announced}" if announced and announced != kind["count"] else ""
        unfinished = f", {cut_off} unfinished" if (cut_off := kind.get("unfinished")) else ""
        yield SpanRow(
            plain(name),
            f"{kind['count']}{planned}{unfinished}",
            *_mean_and_range(kind["time_s"], "s"),
            *_mean_and_range(kind["energy_j"], "J"),
            _typical_error(result, name),
        )


def _typical_error(result: RunResult, name: str) -> str:
    """The mean error of one span of this name, of those that are listed and have an energy."""
    energies = [
        each.total
        for each in result.spans
        if each.span.name == name and each.span.closed and each.total and not each.total.at_least
    ]
    if not energies:
        return "-"
    mean_error_j = sum(each.error for each in energies) / len(energies)
    return within(mean_error_j, sum(each.value for each in energies) / len(energies))


def _mean_and_range(summary: Mapping[str, float | None] | None, unit: str) -> tuple[str, str]:
    mean = summary.get("mean") if summary else None
    if summary is None or mean is None:
        return "-", "-"
    figure = seconds(mean) if unit == "s" else joules(mean)
    return figure, between(summary.get("min"), summary.get("max"), unit)


def _finding(result: RunResult) -> str:
    """The energy and time of the run in a sentence, and the share of each kind of device."""
    total, simulated = result.run.total, provenance(result)
    time = f"{seconds(result.time_s)}{simulated and f', {simulated}'}"
    if total is None:
        return f"No device's energy could be read in these {time}."
    hours = f" ({watt_hours(total.value)})" if is_resolved(total) else ""
    finding = f"{energy(total)}{hours} in {time}"
    if total.at_least:
        return f"{capitalised(finding)}{_unread(result)}."
    parts = {key: result.run.devices[key].energy for key in result.counted}
    if len(parts) > 1 and is_resolved(total):
        shares = _shares({key: part.value for key, part in parts.items() if part})
        percents = _percents([value / total.value for _, value in shares])
        listed = (f"{share} % {kind}" for share, (kind, _) in zip(percents, shares, strict=True))
        finding += f": {', '.join(listed)}"
    return finding + "."


def _unread(result: RunResult) -> str:
    """Why a total is a lower bound: devices that were not read, or only for a part of the run."""
    uses = result.run.devices
    damaged = {it.device for it in result.warnings if it.code is WarningCode.DAMAGED}
    bounds = [key for key in result.counted if key in uses and is_bound(uses[key].energy)]
    damaged_keys = [key for key in bounds if key in damaged]
    partly = [key for key in bounds if key not in damaged]
    why = [f"{plain(listed_keys(result.missing))} could not be read"] if result.missing else []
    why += (
        [f"{plain(listed_keys(partly))} could be read for only a part of the time"]
        if partly
        else []
    )
    why += [f"the trace of {plain(listed_keys(damaged_keys))} is damaged"] if damaged_keys else []
    return f": {' and '.join(why)}" if why else ""


def is_bound(value: Energy | None) -> bool:
    """Whether an energy is only a lower bound."""
    return value is not None and value.at_least


def _shares(parts: Mapping[str, float]) -> Sequence[tuple[str, float]]:
    """Energy by kind of device (``GPU``, ``CPU``), largest first."""
    kinds: dict[str, float] = {}
    for key, value in parts.items():
        kind = _kind(key)
        kinds[kind] = kinds.get(kind, 0.0) + value
    named = {kind.value: name for kind, name in formatting.KINDS.items()}
    ordered = sorted(kinds.items(), key=lambda kind: -kind[1])
    return [(named.get(kind, plain(kind)), value) for kind, value in ordered]


def _percents(shares: Sequence[float]) -> list[int]:
    """Shares as whole percents that add up to 100, by the largest remainder method (Hamilton)."""
    percents = [math.floor(100 * share) for share in shares]
    # The shares that lost most by rounding down are rounded up until the sum is 100.
    by_remainder = sorted(range(len(shares)), key=lambda i: percents[i] - 100 * shares[i])
    for i in by_remainder[: max(0, 100 - sum(percents))]:
        percents[i] += 1
    return percents


def _kind(key: str) -> str:
    return key.rpartition("/")[2].rstrip("0123456789")


def _commands(result: RunResult, program: str, *, has_errors: bool) -> Iterator[tuple[str, str]]:
    has_energy = any(use.energy is not None for use in result.run.devices.values())
    if has_energy and not has_errors:
        yield f"{program} show {quote(plain(result.id))} --errors", "where the error comes from"
    runs = result.details.get("runs", (result.id,))
    run, which = plain(runs[0]), f", of one of {len(runs)} runs" if len(runs) > 1 else ""
    if result.details.get("spans"):
        yield f"{program} export {run} --what spans -o spans.csv", f"every span{which}"
    if has_energy:
        yield f"{program} export {run} -o trace.csv", f"power over time{which}"

"""What ``show`` tells of a run, in words and figures; ``run`` draws it.

What a run that goes on will take, in words.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, Final

from joulewise import formatting
from joulewise.analyse.validation import ValidationPlace, place_validations
from joulewise.data import (
    Caution,
    Energy,
    Knob,
    PowerScope,
    RunResult,
    RunWarning,
    Source,
    Use,
    listed_keys,
)
from joulewise.data.contract import told_energy
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
from joulewise.units import J_PER_KWH


def outlook(told: Mapping[str, Any] | None) -> Iterator[str]:
    """Epochs, time and energy in one line, costs in others; or why that cannot be told."""
    if not told:
        return
    done, of = told["epochs"]["done"], told["epochs"]["total"]
    epochs = f"epoch {done} of {of} is done" if of is not None else f"{done} epochs are done"
    training = told["epochs"].get("training", 0)
    if training:  # nobody knows whether it is the last one
        epochs = f"training {training + 1}, {epochs}"
    at_s = told.get("at_s")
    title = "outlook" if at_s is None else f"outlook at {seconds(at_s)}"
    whole = "up to the end of this training the run" if training else "the whole run"
    if "reason" in told:
        fix = f" ({told['fix']})" if told["fix"] else ""
        yield plain(f"{title}: {epochs}; none yet, {told['reason']}{fix}")
        return
    time_s, energy_j = told["time_s"], told["energy_j"]
    takes = f"{seconds(time_s['value'])} ({between(time_s['low'], time_s['high'], 's')})"
    is_bound = bool(energy_j and energy_j.get("at_least"))
    if is_bound:
        takes += f" and at least {joules(energy_j['low'])}"
    elif energy_j:
        within = between(energy_j["low"], energy_j["high"], "J")
        takes += f" and {joules(energy_j['value'])} ({within})"
    yield f"{title}: {epochs}; {whole} takes {takes}"
    for name, label, unit in (("price", "cost", ""), ("gco2", "emitted", " g CO₂")):
        if cost := told.get(name):
            value, low, high = (amount(cost[part]) for part in ("value", "low", "high"))
            if is_bound:
                yield f"outlook: {label} at least {low}{unit}"
                continue
            yield f"outlook: {label} {value}{unit} ({low}-{high})"


@dataclass(frozen=True)
class PriceAndCarbon:
    """What a kilowatt-hour costs and emits; None is what was said when the run was made."""

    price_per_kwh: float | None = None
    gco2_per_kwh: float | None = None


NO_RATES: Final = PriceAndCarbon()
_LONGEST_COMMAND: Final = 120
_PARTS: Final = {"gpu": "GPU", "memory": "GPU memory"}


@dataclass(frozen=True)
class DeviceRow:
    """One device, or the total; ``parts`` are its error's sampling and gain part."""

    device: str
    energy: str
    error: str
    mean: str
    peak: str
    source: str
    parts: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class SpanRow:
    """All spans of one name."""

    name: str
    count: str
    time: str
    times: str
    energy: str
    energies: str


@dataclass(frozen=True)
class RunView:
    title: str
    facts: tuple[str, ...]
    rows: tuple[DeviceRow, ...]
    total: DeviceRow
    notes: tuple[str, ...]
    spans: tuple[SpanRow, ...]
    warnings: tuple[RunWarning, ...]
    finding: str
    provenance: str
    commands: tuple[tuple[str, str], ...]


def run_view(
    result: RunResult, rates: PriceAndCarbon = NO_RATES, program: str = "joulewise"
) -> RunView:
    about = result.details.get("about", {})
    name = plain(about.get("name", ""))
    what = "group" if "runs" in result.details else "run"
    return RunView(
        title="  ".join(part for part in (f"{what} {plain(result.id)}", name) if part),
        facts=tuple(_facts(result, about)),
        rows=tuple(
            _row(key, use, result.time_s, result.power_scopes.get(key))
            for key, use in result.run.devices.items()
        ),
        total=_total(result),
        notes=tuple(_notes(result, rates)),
        spans=tuple(_spans(result.details.get("spans", {}))),
        # What is excluded stands among the notes.
        warnings=tuple(w for w in result.warnings if w.code is not Caution.EXCLUDED),
        finding=_finding(result),
        provenance=provenance(result),
        commands=tuple(_commands(result, program)),
    )


def ending(
    state: str, exit_code: int | None, codes: Collection[str], *, is_bound: bool = False
) -> str:
    """How a run ended, in a word or two; ``codes`` are those of its warnings or notes.

    ``is_bound``: its energy is a lower bound, so that the run is complete and its total is not.
    """
    if state == "stopped" and exit_code is not None and Caution.RECORDER_ENDED in codes:
        return f"{_exit(exit_code)}, recorder killed"
    ended = _exit(exit_code) if state == "complete" and exit_code else state
    return f"{ended}, energy in part" if state == "complete" and is_bound else ended


def mean_power_w(result: RunResult) -> float | None:
    """Of all that counts, over the time that was measured: of a group less than end to end."""
    time_s = result.details.get("measured_s", result.time_s)
    return result.run.total.value / time_s if result.run.total and time_s > 0 else None


def warned(warning: RunWarning) -> str:
    """Where, and what."""
    return plain(f"{warning.device}: {warning.message}" if warning.device else warning.message)


def _exit(code: int) -> str:
    return f"signal {code - 128}" if code > 128 else f"exit {code}"


def _facts(result: RunResult, about: Mapping[str, Any]) -> Iterator[str]:
    if about.get("command"):
        yield one_line(about["command"], _LONGEST_COMMAND)
    told = [
        ending(
            result.state,
            result.exit_code,
            [w.code for w in result.warnings],
            is_bound=is_bound(result.run.total),
        ),
        seconds(result.time_s),
    ]
    told += [plain(str(about[key])) for key in ("started", "host") if about.get(key)]
    told += [f"group {plain(about['group'])}"] if about.get("group") else []
    told += [f"tags {', '.join(map(plain, about['tags']))}"] if about.get("tags") else []
    yield " · ".join([*told, *_set(about.get("settings", {}), result)])


def _set(settings: Mapping[str, Mapping[str, float]], result: RunResult) -> Iterator[str]:
    """As in "gpu0, gpu1 at 150 W, SM clock 1200 MHz": what was set for the run."""
    alike: dict[str, list[str]] = {}
    devices = result.details.get("devices", {})
    for key, values in settings.items():
        scope = devices.get(key, {}).get("limit_scope")
        told = (
            ("" if knob is Knob.POWER_LIMIT else f"{formatting.KNOBS[knob]} ")
            + formatting.setting(knob, values[knob.value])
            + (f" ({formatting.LIMITED[scope]})" if knob is Knob.POWER_LIMIT and scope else "")
            for knob in Knob
            if knob.value in values
        )
        alike.setdefault(", ".join(told), []).append(key)
    for told_of, keys in alike.items():
        yield f"{listed_keys(keys)} at {told_of}"


def _row(key: str, use: Use, time_s: float, scope: PowerScope | None = None) -> DeviceRow:
    """``time_s`` is the run's: of a part of it the mean says how long that is."""
    if use.energy is None:
        return DeviceRow(plain(key), "unavailable", "", "-", "-", "-")
    read_s = time_s if use.read_s is None else use.read_s
    how = []
    if use.energy.source.is_sensor:
        how.append("power samples" if use.counter_j is None else "counter")
    if _kind(key) == "cpu":
        how.append("whole machine")  # of whoever ran on it
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


def _total(result: RunResult) -> DeviceRow:
    total = result.run.total
    if total is None:
        return DeviceRow("total", "unavailable", "", "-", "", "-")
    bound = "≥ " if total.at_least else ""
    return DeviceRow(
        "total",
        *figures(total),
        f"{bound}{watts(mean_power_w(result))}",
        "",
        total_source(total, result.simulated_counted),
        _parts(total),
    )


def provenance(*results: RunResult) -> str:
    """``GPU simulated``, or that it is but does not count; empty where all devices are there."""
    counted = [key for each in results for key in each.simulated_counted]
    besides = formatting.simulated(key for each in results for key in each.simulated)
    return formatting.simulated(counted) or (besides and f"{besides} but not counted")


def total_source(total: Energy, simulated: Collection[str]) -> str:
    """Where a sum comes from; ``mixed`` alone would hide that some of it is simulated."""
    source, *some = source_parts(total, simulated)
    return f"{source} ({some[0]})" if some else source


def source_parts(total: Energy, simulated: Collection[str]) -> tuple[str, ...]:
    """The source of a sum, and of a mixed one which devices of it are simulated, if any."""
    some = formatting.simulated(simulated) if total.source is Source.MIXED else ""
    return (total.source.value, some) if some else (total.source.value,)


def _parts(value: Energy) -> tuple[str, str]:
    return within(value.error_sampling, value.value), within(value.error_gain, value.value)


def _epoch_notes(result: RunResult) -> Iterator[str]:
    """What an epoch of this run is, where that is not the same in every program."""
    place = place_validations(result)
    if place is ValidationPlace.WITHIN:
        yield "an epoch contains its validation"
    elif place is ValidationPlace.OUTSIDE:
        yield "an epoch is without its validation, which is a span of its own"
    elif place is ValidationPlace.BOTH:
        yield "some validations lie within epochs, others outside"


def _notes(result: RunResult, rates: PriceAndCarbon) -> Iterator[str]:
    yield from outlook(result.outlook)
    by_reason: dict[str, list[str]] = {}
    for out in result.excluded:
        by_reason.setdefault(out.reason, []).append(out.device)
    for reason, devices in by_reason.items():
        yield f"not in the total: {plain(listed_keys(devices))}, {plain(reason)}"
    if result.missing:
        which = plain(listed_keys(result.missing))
        yield f"missing from the total, which is a lower bound: {which}, could not be read"
    yield from _modules(result)
    yield from _epoch_notes(result)
    yield from _net(result)
    if more := result.details.get("more_names"):
        yield f"{more} more names of spans are not told here: joulewise export has them all"
    total, told = result.run.total, result.details.get("rates", {})
    price = told.get("price_per_kwh") if rates.price_per_kwh is None else rates.price_per_kwh
    grams = told.get("gco2_per_kwh") if rates.gco2_per_kwh is None else rates.gco2_per_kwh
    if total and price is not None:
        yield f"cost: {_scaled(total, price)} at {price:g} per kWh"
    if total and grams is not None:
        yield f"emitted: {_scaled(total, grams)} g CO₂ at {grams:g} g per kWh"


def _modules(result: RunResult) -> Iterator[str]:
    """Of each superchip, which parts of its module's energy were measured."""
    for key, scope in result.power_scopes.items():
        use = result.run.devices.get(key)
        if scope is PowerScope.MODULE and use and use.energy:
            told = {name: told_energy(part) for name, part in _parts_of(result, key).items()}
            inside = [f"{_PARTS.get(name, name)} {energy(it)}" for name, it in told.items() if it]
            of_which = f", of which {', '.join(inside)} ({use.energy.source.value})"
            module = f"module of {plain(key)}: {energy(use.energy)}, CPU and memory included"
            yield module + (of_which if inside else "")


def _parts_of(result: RunResult, key: str) -> Mapping[str, Mapping[str, Any]]:
    parts: Mapping[str, Mapping[str, Any]] = result.details.get("parts", {}).get(key, {})
    return parts


def _net(result: RunResult) -> Iterator[str]:
    """Above idle: of each GPU, and of all; of a group only that, or why it cannot be told."""
    is_group = "runs" in result.details
    baselines = result.details.get("baseline", {})
    nets = [(key, result.run.devices[key].net) for key in result.counted]
    known = {key: net for key, net in nets if net is not None}
    for key, baseline in baselines.items():
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
    if not is_resolved(value):
        return f"below {amount((value.value + value.error) / J_PER_KWH * per_kwh)}"
    share = within(value.error, value.value)
    return f"{amount(value.value / J_PER_KWH * per_kwh)} {share}"


def _spans(kinds: Mapping[str, Mapping[str, Any]]) -> Iterator[SpanRow]:
    for name, kind in kinds.items():
        announced = kind.get("announced")
        of = f" of {announced}" if announced and announced != kind["count"] else ""
        unfinished = f", {cut_off} unfinished" if (cut_off := kind.get("unfinished")) else ""
        yield SpanRow(
            plain(name),
            f"{kind['count']}{of}{unfinished}",
            *_mean_and_range(kind["time_s"], "s"),
            *_mean_and_range(kind["energy_j"], "J"),
        )


def _mean_and_range(told: Mapping[str, float | None] | None, unit: str) -> tuple[str, str]:
    mean = told.get("mean") if told else None
    if told is None or mean is None:
        return "-", "-"
    figure = seconds(mean) if unit == "s" else joules(mean)
    return figure, between(told.get("min"), told.get("max"), unit)


def _finding(result: RunResult) -> str:
    total = result.run.total
    if total is None:
        simulated = provenance(result)
        lasted = f"{seconds(result.time_s)}{simulated and f', {simulated}'}"
        return f"No device's energy could be read in these {lasted}."
    hours = f" ({watt_hours(total.value)})" if is_resolved(total) else ""
    simulated = provenance(result)
    said = f"{energy(total)}{hours} in {seconds(result.time_s)}{simulated and f', {simulated}'}"
    if total.at_least:
        return f"{capitalised(said)}{_unread(result)}."
    parts = {key: result.run.devices[key].energy for key in result.counted}
    if len(parts) > 1 and is_resolved(total):
        shares = _shares({key: part.value for key, part in parts.items() if part})
        percents = _percents([value / total.value for _, value in shares])
        listed = (f"{of} % {kind}" for of, (kind, _) in zip(percents, shares, strict=True))
        said += f": {', '.join(listed)}"
    return said + "."


def _unread(result: RunResult) -> str:
    """Why a total is a lower bound: which devices were not read, or not to the end."""
    uses = result.run.devices
    damaged = {it.device for it in result.warnings if it.code is Caution.DAMAGED}
    bounds = [key for key in result.counted if key in uses and is_bound(uses[key].energy)]
    hurt = [key for key in bounds if key in damaged]
    partly = [key for key in bounds if key not in damaged]
    why = [f"{plain(listed_keys(result.missing))} could not be read"] if result.missing else []
    why += [f"{plain(listed_keys(partly))} was read in a part of it only"] if partly else []
    why += [f"the trace of {plain(listed_keys(hurt))} is damaged"] if hurt else []
    return f": {' and '.join(why)}" if why else ""


def is_bound(value: Energy | None) -> bool:
    return value is not None and value.at_least


def _shares(parts: Mapping[str, float]) -> Sequence[tuple[str, float]]:
    """By kind of device, largest first: ``GPU``, ``CPU``."""
    kinds: dict[str, float] = {}
    for key, value in parts.items():
        kind = _kind(key)
        kinds[kind] = kinds.get(kind, 0.0) + value
    named = {"gpu": "GPU", "cpu": "CPU", "dram": "RAM"}
    ordered = sorted(kinds.items(), key=lambda kind: -kind[1])
    return [(named.get(kind, plain(kind)), value) for kind, value in ordered]


def _percents(shares: Sequence[float]) -> list[int]:
    """Shares that make up a whole as percents that add up to 100: largest remainder method."""
    percents = [math.floor(100 * share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: percents[i] - 100 * shares[i])
    for i in by_remainder[: max(0, 100 - sum(percents))]:
        percents[i] += 1
    return percents


def _kind(key: str) -> str:
    return key.rpartition("/")[2].rstrip("0123456789")


def _commands(result: RunResult, program: str) -> Iterator[tuple[str, str]]:
    has_energy = any(use.energy is not None for use in result.run.devices.values())
    if has_energy:
        yield f"{program} show {quote(plain(result.id))} --errors", "where the error comes from"
    runs = result.details.get("runs", (result.id,))
    run, of = plain(runs[0]), f", of one of {len(runs)} runs" if len(runs) > 1 else ""
    if result.details.get("spans"):
        yield f"{program} export {run} --what spans -o spans.csv", f"every span{of}"
    if has_energy:
        yield f"{program} export {run} -o trace.csv", f"power over time{of}"

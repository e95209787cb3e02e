"""Draws what ``doctor`` found: equal devices share a table, and each problem has its fix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from joulewise import formatting
from joulewise.data import ControlKind, DeviceInfo, Kind, Quantity, Source, Unavailable, listed_keys
from joulewise.formatting import NO_BREAK, wrap_text
from joulewise.report.tables import new_rich_table
from joulewise.report.terminal import leases
from joulewise.report.terminal.layout import indent, print_command, print_fix
from joulewise.report.views.checkup import Checkup, ControlState, DeviceState, SensorState

# Below so many columns of the terminal (chosen: the widest table), the last columns of a table are
# drawn below its first three.
_NARROW = 80
_FIRST = 3

# Columns of a terminal that the table of sensors needs beside its values: the margin of two, the
# longest name (14), "simulated" (9), gaps of two; side by side, also "update period" (13) and
# "averaging window" (16).
_BESIDE_VALUES = 60
_BESIDE_VALUES_NARROW = 29

_SOURCE_STYLE = {
    Source.MEASURED: "green",
    Source.SIMULATED: "magenta",
    Source.MODELLED: "yellow",
    Source.ASSUMED: "yellow",
}


def draw(checkup: Checkup, console: Console) -> None:
    """Draw every device, what was not found, the leases, and what each energy is based on."""
    for group in alike(checkup.devices):
        _draw_group(group, console)
    if checkup.missing:
        console.print(Text("not found", style="bold"))
        for family, why in checkup.missing.items():
            _draw_why(family, why, console)
        console.print()
    leases.draw(checkup.leases, console, may_set=_may_set(checkup.devices))
    console.print()
    console.print(Text(summarise_sources(checkup), style="bold"))
    for command, what in next_commands(checkup):
        print_command(command, what, console)


def _may_set(devices: Iterable[DeviceState]) -> bool:
    controls = (control for device in devices for control in device.controls.values())
    return any(
        isinstance(control, ControlState) and control.info.writable is True for control in controls
    )


def alike(devices: Iterable[DeviceState]) -> list[list[DeviceState]]:
    """Devices in groups of one model whose sensors and settings are in the same state."""
    groups: dict[Any, list[DeviceState]] = {}
    for device in devices:
        info = device.info
        likeness = (
            (info.kind, info.name, info.vendor, info.driver, info.note, info.contains),
            info.better and _likeness(info.better),
            tuple((quantity, _likeness(s)) for quantity, s in device.sensors.items()),
            tuple((control, _likeness(k)) for control, k in device.controls.items()),
        )
        groups.setdefault(likeness, []).append(device)
    return list(groups.values())


def summarise_sources(checkup: Checkup) -> str:
    """One line: the source of each kind of device's energy."""
    parts: list[str] = []
    for kind, name in formatting.KINDS.items():
        devices = [device for device in checkup.devices if device.info.kind is kind]
        sources: dict[str, list[str]] = {}
        for device in devices:
            sources.setdefault(_energy_basis(device), []).append(device.info.key)
        label = name if parts else f"{name} energy"
        if len(sources) == 1:
            parts.append(f"{label}: {next(iter(sources))}")
        elif sources:
            listed = (f"{listed_keys(keys)} {source}" for source, keys in sources.items())
            parts.append(f"{label}: {', '.join(listed)}")
        elif kind in {Kind.GPU, Kind.CPU}:
            parts.append(f"{label}: no {name} found")
    return ". ".join(parts) + "."


def next_commands(checkup: Checkup) -> Iterator[tuple[str, str]]:
    """Commands to try next, each with its purpose."""
    kinds = {device.info.kind for device in checkup.devices}
    if Kind.GPU not in kinds:
        yield "joulewise sim --gpu v100 -- joulewise doctor", "the same on a simulated GPU"
    if any(_energy_basis(device).startswith("modelled") for device in checkup.devices):
        yield "joulewise doctor --cpu-tdp WATTS", "if you know the TDP of the CPU"


def _energy_basis(device: DeviceState) -> str:
    source = device.energy_source()
    if isinstance(source, Unavailable):
        return "cannot be read"
    kind, means = source
    return f"{kind.value} ({means})" if kind.is_sensor else kind.value


def _likeness(state: SensorState | ControlState | Unavailable) -> object:
    """What must be equal for devices to share a table.

    Without values, which differ between boards, fixes, which may name the board, and the numbers
    in a reason.
    """
    if isinstance(state, Unavailable):
        return re.sub(r"[\d.]+", "0", state.reason)
    if isinstance(state, SensorState):
        return state.info
    info = state.info
    writable = info.writable if isinstance(info.writable, bool) else _likeness(info.writable)
    return (info.minimum, info.maximum, info.default, info.choices, info.readable, writable)


def _draw_group(group: Sequence[DeviceState], console: Console) -> None:
    info = group[0].info
    count = f"{len(group)} x " if len(group) > 1 else ""
    title = f"{listed_keys(device.info.key for device in group)}  {count}{info.name}"
    uid = info.uid if len(group) == 1 and info.uid != info.key else ""
    console.print(Text.assemble((title, "bold"), (f"  {uid}" if uid else "", "dim")))
    driver = f"driver {info.driver}" if info.kind is Kind.GPU and info.driver else info.driver
    facts = [part for part in (info.vendor, driver) if part not in {"", "unknown"}]
    indent(Text(" · ".join(facts), style="dim"), console)
    _draw_scope(info, console)
    tables = [_device_table(group)] if len(group) > 1 else []
    beside = _BESIDE_VALUES_NARROW if console.width < _NARROW else _BESIDE_VALUES
    sensors = _sensor_table(group, max(1, console.width - beside))
    tables += [table for table in (sensors, _control_table(group)) if table.row_count]
    for number, table in enumerate(tables):
        if number:
            console.print()
        for block in _blocks(table) if console.width < _NARROW else [table]:
            indent(block, console)
    for note in _sensor_notes(group[0]):
        indent(Text("\n".join(wrap_text(note, console.width - 2)), style="dim"), console)
    for device in group:
        _draw_calibration(device, console)
    if info.better:
        _draw_why("why it is not measured", info.better, console, style="yellow")
    for names, why in _missing(group):
        _draw_why(names, why, console)
    console.print()


def _draw_scope(info: DeviceInfo, console: Console) -> None:
    """What the figures of a device include."""
    if info.note:
        lines = wrap_text(info.note, console.width - 2)
        indent(Text("\n".join(lines), style="yellow"), console)
    if info.contains:
        indent(Text(f"its energy includes that of {listed_keys(info.contains)}"), console)
    if info.limit_scope:
        indent(Text(f"its power limit is {formatting.LIMITED[info.limit_scope.value]}"), console)


def _draw_calibration(device: DeviceState, console: Console) -> None:
    if isinstance(device.card, Unavailable):
        _draw_why(f"{device.info.key} is not calibrated", device.card, console, style="yellow")
    elif device.card is not None:
        gain = "" if device.card.gain else ", without a wall meter"
        indent(Text(f"{device.info.key} calibrated {device.card.when}{gain}", "dim"), console)


def _sensor_notes(device: DeviceState) -> list[str]:
    by_note: dict[str, list[str]] = {}
    for quantity, name in formatting.SENSORS.items():
        sensor = device.sensors.get(quantity)
        if isinstance(sensor, SensorState) and sensor.info.note not in {"", device.info.note}:
            by_note.setdefault(sensor.info.note, []).append(name)
    return [f"{', '.join(names)}: {note}" for note, names in by_note.items()]


def _device_table(group: Sequence[DeviceState]) -> Table:
    """One row for each device of a group, with what differs between them."""
    table = _table("device", "power", "energy", "temperature", "uid")
    for device in group:
        cells = [
            _now([device], quantity)
            for quantity in (Quantity.POWER, Quantity.ENERGY, Quantity.TEMPERATURE)
        ]
        table.add_row(device.info.key, *cells, Text(device.info.uid, style="dim"))
    return table


def _sensor_table(group: Sequence[DeviceState], room: int) -> Table:
    """``room`` columns of the terminal are left for the values; none is broken over two lines."""
    table = _table("sensor", "now", "source", "update period", "averaging window")
    for name, members in formatting.GROUPS:
        rows: dict[tuple[Source, float | None, float | None], list[str]] = {}
        for quantity, label in members.items():
            sensor = group[0].sensors.get(quantity)
            if isinstance(sensor, SensorState):
                info = sensor.info
                cells = rows.setdefault((info.source, info.update_period_s, info.window_s), [])
                cells.append(f"{label} {_now(group, quantity)}".strip())
        for (source, period_s, window_s), cells in rows.items():
            styled = Text(source.value, style=_SOURCE_STYLE[source])
            unbroken = (cell.replace(" ", NO_BREAK) for cell in cells)
            values = "\n".join(wrap_text(", ".join(unbroken), room))
            period, window = formatting.duration(period_s), formatting.duration(window_s)
            table.add_row(name, values, styled, period, window)
    return table


def _control_table(group: Sequence[DeviceState]) -> Table:
    table = _table("setting", "now", "range", "default", "can be set")
    for control, name in formatting.CONTROLS.items():
        state = group[0].controls.get(control)
        if isinstance(state, ControlState):
            info = state.info
            table.add_row(
                name,
                _set_to(group, control),
                formatting.settings(control, info.minimum, info.maximum, info.choices),
                "-" if info.default is None else formatting.setting(control, info.default),
                _settable(state),
            )
    return table


def _settable(state: ControlState) -> Text:
    if state.by_service:
        return Text("by the guard service", style="green")
    return Text("yes", style="green") if state.info.writable is True else Text("no", style="red")


def _now(group: Sequence[DeviceState], quantity: Quantity) -> str:
    states = [device.sensors.get(quantity) for device in group]
    values = [state.value for state in states if isinstance(state, SensorState)]
    return formatting.span(quantity, values, group[0].info.vendor) if values else "-"


def _set_to(group: Sequence[DeviceState], control: ControlKind) -> str:
    states = [device.controls.get(control) for device in group]
    values = [state.value for state in states if isinstance(state, ControlState)]
    known = [value for value in values if not isinstance(value, Unavailable)]
    return formatting.settings(control, min(known), max(known), None) if known else "not reported"


def _missing(group: Sequence[DeviceState]) -> Iterator[tuple[str, Unavailable]]:
    """What cannot be read or set, with everything that has the same reason in one line."""
    by_why: dict[tuple[str, Unavailable], list[str]] = {}
    others = [_unavailable(device) for device in group[1:]]
    device, mine = group[0], _unavailable(group[0])
    # A device that nothing can be read of has one reason, not one for each sensor.
    if len(mine) == len(device.sensors) + len(device.controls) and len(set(mine.values())) == 1:
        yield "cannot read or set anything", next(iter(mine.values()))
        return
    for (doing, name), why in mine.items():
        # The fix may name the board, as nvidia-smi -i 0 does.
        differ = any(other[doing, name].fix != why.fix for other in others)
        reason = replace(why, fix=f"{why.fix} (and so for each)") if differ else why
        by_why.setdefault((doing, reason), []).append(name)
    for (doing, why), names in by_why.items():
        yield f"cannot {doing} {', '.join(names)}", why


def _unavailable(device: DeviceState) -> dict[tuple[str, str], Unavailable]:
    found: dict[tuple[str, str], Unavailable] = {}
    for quantity, name in formatting.SENSORS.items():
        sensor = device.sensors.get(quantity)
        if isinstance(sensor, Unavailable):
            found["read", name] = sensor
    for control, name in formatting.CONTROLS.items():
        state = device.controls.get(control)
        why = state.info.writable if isinstance(state, ControlState) else state
        is_served = isinstance(state, ControlState) and state.by_service
        if isinstance(why, Unavailable) and not is_served:
            found["set", name] = why
    return found


def _draw_why(what: str, why: Unavailable, console: Console, style: str = "red") -> None:
    indent(Text.assemble((what, style), f": {why.reason}"), console)
    if why.fix:
        print_fix(why.fix, console)


def _blocks(table: Table) -> list[Table]:
    """A table in two blocks: its first columns, and the others beside what names a row.

    Rows without a value in the others are not repeated.
    """
    columns = table.columns
    blocks = []
    for some in (columns[:_FIRST], [columns[0], *columns[_FIRST:]]):
        block = _table(*(str(column.header).replace(" ", "\n") for column in some))
        for row in zip(*(column.cells for column in some), strict=True):
            if any(str(cell) != "-" for cell in row[1:]):
                block.add_row(*row)
        blocks.append(block)
    return [block for block in blocks if block.row_count]


def _table(*headers: str) -> Table:
    table = new_rich_table()
    for header in headers:
        table.add_column(header, overflow="fold", no_wrap=header != "now")
    return table

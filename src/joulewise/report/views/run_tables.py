"""The tables of a run: devices, spans, the runs of a group, and what the sensors read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from joulewise.data import Energy, Quantity, RunResult, Use
from joulewise.data.run_result_json import encode_energy
from joulewise.formatting import SENSORS, figure, plain, seconds
from joulewise.report.tables import Column, Table, number_columns, text_columns
from joulewise.report.views.run import (
    DeviceRow,
    RunView,
    ending,
    is_bound,
    mean_power_w,
    provenance,
    total_row,
)
from joulewise.units import digits

_Record = Mapping[str, float | str | None]


def total_table(result: RunResult, shown: RunView) -> Table:
    """The run as one row: its time and its total energy."""
    row = shown.total
    mean_w = mean_power_w(result)
    return Table(
        "Time and energy of the run",
        (
            Column("run", right=False),
            *number_columns("time", "energy", "error (95 %)", "mean power"),
            Column("source", right=False),
        ),
        ((plain(result.id), seconds(result.time_s), row.energy, row.error, row.mean, row.source),),
        (
            {
                "run": result.id,
                "time_s": result.time_s,
                **_energy_record(result.run.total),
                "mean_power_w": mean_w,
                # A total of mixed sources does not say by itself that some of them are simulated.
                **({"provenance": shown.provenance} if shown.provenance else {}),
            },
        ),
        provenance=shown.provenance,
    )


def devices_table(result: RunResult, shown: RunView) -> Table:
    """Every device with both parts of its error, and a row for the total."""
    return Table(
        "Energy by device",
        (
            Column("device", right=False),
            *number_columns("energy", "error (95 %)"),
            Column("of which sampling", spare=3),
            Column("of which calibration", spare=3),
            Column("mean power", spare=1),
            Column("peak power", spare=2),
            Column("source", right=False),
        ),
        tuple(map(_cells, (*shown.rows, shown.total))),
        tuple(_device_record(key, use, result) for key, use in result.run.devices.items()),
        provenance=shown.provenance,
    )


def spans_table(result: RunResult, shown: RunView) -> Table:
    """Mean and range of time and energy for the spans of each name."""
    return Table(
        "Time and energy of spans",
        (
            Column("span", right=False),
            *number_columns("count", "mean time", "min-max time", "mean energy", "min-max energy"),
        ),
        tuple(
            (row.name, row.count, row.time, row.times, row.energy, row.energies)
            for row in shown.spans
        ),
        tuple(
            {
                "span": name,
                "count": kind["count"],
                **_statistics("time", "s", kind["time_s"]),
                **_statistics("energy", "j", kind["energy_j"]),
            }
            for name, kind in result.details.get("spans", {}).items()
        ),
        provenance=shown.provenance,
    )


def members_table(members: Sequence[RunResult]) -> Table:
    """The runs of a group, each by itself."""
    return Table(
        "Runs of the group",
        (
            *text_columns("run", "host", "ended"),
            *number_columns("time", "energy", "error (95 %)"),
            Column("source", right=False),
        ),
        tuple(map(_member_cells, members)),
        tuple(
            {
                "run": member.id,
                "host": member.details.get("about", {}).get("host", ""),
                "state": member.state,
                "exit_code": member.exit_code,
                "time_s": member.time_s,
                **_energy_record(member.run.total),
            }
            for member in members
        ),
        provenance=provenance(*members),
    )


def _cells(row: DeviceRow) -> tuple[str | None, ...]:
    numbers = (row.energy, row.error, *row.parts, row.mean, row.peak)
    return (row.device, *(None if cell in {"", "-"} else cell for cell in numbers), row.source)


def _device_record(key: str, use: Use, result: RunResult) -> _Record:
    return {
        "device": key,
        **_energy_record(use.energy),
        "mean_power_w": use.mean_w,
        "peak_power_w": use.peak_w,
        "read_s": use.read_s,
        "counted": int(key in result.counted),
    }


def _energy_record(energy: Energy | None) -> _Record:
    fields = encode_energy(energy) or {}
    return {
        "energy_j": fields.get("value"),
        **{f"{part}_j": fields.get(part) for part in ("error", "error_sampling", "error_gain")},
        "source": fields.get("source"),
        "at_least": int(energy.at_least) if energy else None,
    }


def _statistics(what: str, unit: str, summary: Mapping[str, Any] | None) -> _Record:
    return {f"{what}_{name}_{unit}": (summary or {}).get(name) for name in _FIGURES}


def _member_cells(member: RunResult) -> tuple[str | None, ...]:
    total = total_row(member)
    cells = (total.energy, total.error or None, total.source)
    codes = [warning.code for warning in member.warnings]
    return (
        plain(member.id),
        plain(member.details.get("about", {}).get("host", "")),
        ending(member.state, member.exit_code, codes, is_bound=is_bound(member.run.total)),
        seconds(member.time_s),
        *(cells if member.run.total else (None, None, None)),
    )


_STATES: Final = (Quantity.PERFORMANCE_STATE, Quantity.THROTTLE)
_OF_SPANS: Final = (
    Quantity.GPU_UTILISATION,
    Quantity.MEMORY_UTILISATION,
    Quantity.SM_CLOCK,
    Quantity.MEMORY_CLOCK,
    Quantity.MEMORY_USED,
    Quantity.PCIE_TX,
    Quantity.PCIE_RX,
    Quantity.LOAD,
)
_RATES: Final = (Quantity.POWER, Quantity.ENERGY, Quantity.GPU_UTILISATION)
_STREAMS: Final = {"": "polls", ".slow": "polls", ".buffer": "driver's samples"}
_FIGURES: Final = ("mean", "min", "max")
_WHEN: Final = ("run", "idle", "load")


def sensor_tables(runs: Mapping[str, RunResult]) -> tuple[Table, ...]:
    """The tables of sensors; ``runs`` are by the prefix of their devices, such as ``node7/``."""
    return (readings_table(runs), states_table(runs), span_table(runs), rates_table(runs))


def readings_table(runs: Mapping[str, RunResult]) -> Table:
    """Mean and range of everything that was recorded of the devices."""
    readings = [
        (device, quantity, figures)
        for device, sensors in _devices(runs)
        for quantity, figures in _known(sensors["run"])
        if quantity not in _STATES
    ]
    return Table(
        "Sensors over the run",
        (
            *text_columns("device", "sensor"),
            *number_columns("mean", "min", "max"),
        ),
        tuple(
            (device, SENSORS[quantity], *(_cell(quantity, figures, name) for name in _FIGURES))
            for device, quantity, figures in readings
        ),
        tuple(
            {
                "device": device,
                "quantity": quantity.value,
                **{name: (figures or {}).get(name) for name in _FIGURES},
            }
            for device, quantity, figures in readings
        ),
        provenance=provenance(*runs.values()),
    )


def states_table(runs: Mapping[str, RunResult]) -> Table:
    """The share of the readings in each performance state and with each throttle reason."""
    shares = [
        (device, quantity, state, share)
        for device, sensors in _devices(runs)
        for quantity, figures in _known(sensors["run"])
        if quantity in _STATES
        for state, share in (figures or {}).items()
    ]
    return Table(
        "Share of the time in each state",
        (
            *text_columns("device", "sensor", "state"),
            Column("share", "%"),
        ),
        tuple(
            (device, SENSORS[quantity], plain(state), digits(100 * share))
            for device, quantity, state, share in shares
        ),
        tuple(
            {"device": device, "quantity": quantity.value, "state": state, "share": share}
            for device, quantity, state, share in shares
        ),
        provenance=provenance(*runs.values()),
    )


def span_table(runs: Mapping[str, RunResult]) -> Table:
    """Mean readings over the spans of each name; without rows and columns that have none."""
    rows = [
        (device, plain(name), {q.value: _mean(summary, q) for q in _OF_SPANS})
        for device, sensors in _devices(runs)
        for name, summary in sensors["spans"].items()
    ]
    rows = [row for row in rows if any(value is not None for value in row[2].values())]
    present = [q for q in _OF_SPANS if any(means[q.value] is not None for _, _, means in rows)]
    return Table(
        "Sensors by span, means",
        (
            *text_columns("span", "device"),
            *(Column(SENSORS[quantity]) for quantity in present),
        ),
        tuple(
            (name, device, *(_figure(quantity, means[quantity.value]) for quantity in present))
            for device, name, means in rows
        ),
        tuple({"span": name, "device": device, **means} for device, name, means in rows),
        provenance=provenance(*runs.values()),
    )


def rates_table(runs: Mapping[str, RunResult]) -> Table:
    """How often each sensor was read and had a new value: in the run, idle, and under load."""
    rows = [
        (f"{before}{key}", quantity, _stream(key, stream), rates)
        for before, result in runs.items()
        for key, quantities in result.details.get("sensor_rates", {}).items()
        for quantity in _RATES
        for stream, rates in quantities.get(quantity.value, {}).items()
    ]
    return Table(
        "Readings per second with a new value, of all readings",
        (
            *text_columns("device", "sensor", "read as"),
            Column("in the run", "Hz"),
            Column("idle", "Hz"),
            Column("under load", "Hz"),
        ),
        tuple(
            (
                plain(device),
                SENSORS[quantity],
                stream,
                *(_new_of_read(rates.get(when)) for when in _WHEN),
            )
            for device, quantity, stream, rates in rows
        ),
        tuple(
            {
                "device": device,
                "quantity": quantity.value,
                "read_as": stream,
                **{
                    f"{when}_{name}": (rates.get(when) or {}).get(name)
                    for when in _WHEN
                    for name in ("time_s", "read_hz", "new_hz")
                },
            }
            for device, quantity, stream, rates in rows
        ),
        provenance=provenance(*runs.values()),
        note="A sensor that is read more often than it updates repeats its last value.",
        keys=3,
    )


def _devices(runs: Mapping[str, RunResult]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for before, result in runs.items():
        for key, sensors in result.details.get("sensors", {}).items():
            yield plain(f"{before}{key}"), sensors


def _known(summary: Mapping[str, Any]) -> Iterable[tuple[Quantity, Mapping[str, float] | None]]:
    """The sensors that this version knows: a result of a newer one may have more."""
    names = {quantity.value: quantity for quantity in SENSORS}
    return [(names[name], figures) for name, figures in summary.items() if name in names]


def _mean(summary: Mapping[str, Any], quantity: Quantity) -> float | None:
    figures = summary.get(quantity.value)
    return figures["mean"] if figures else None


def _cell(quantity: Quantity, figures: Mapping[str, float] | None, name: str) -> str | None:
    return _figure(quantity, figures.get(name) if figures else None)


def _figure(quantity: Quantity, value: float | None) -> str | None:
    return None if value is None else figure(quantity, value)


def _stream(key: str, stream: str) -> str:
    kind = stream.removeprefix(key)
    return _STREAMS[".buffer" if kind.startswith(".buffer") else kind]


def _new_of_read(rates: Mapping[str, float] | None) -> str | None:
    """``6.25 of 25.0``."""
    return f"{digits(rates['new_hz'])} of {digits(rates['read_hz'])}" if rates else None

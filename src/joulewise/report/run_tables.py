"""The tables of a run: its devices, its spans, and the runs of a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from joulewise.data import Energy, RunResult, Use
from joulewise.data.contract import energy_json
from joulewise.report.figures import figures, plain, seconds
from joulewise.report.run_view import (
    Row,
    RunView,
    ending,
    is_bound,
    mean_power_w,
    provenance,
    total_source,
)
from joulewise.report.tables import Column, Table

_Record = Mapping[str, float | str | None]


def total_table(result: RunResult, shown: RunView) -> Table:
    """The run as one row: its time, and what all devices that count took together."""
    row = shown.total
    mean_w = mean_power_w(result)
    return Table(
        "Time and energy of the run",
        (
            Column("run", right=False),
            Column("time"),
            Column("energy"),
            Column("error (95 %)"),
            Column("mean power"),
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
    """Every device, with both parts of each error, and the source; for people their total, too."""
    return Table(
        "Energy by device",
        (
            Column("device", right=False),
            Column("energy"),
            Column("error (95 %)"),
            Column("of it sampling", spare=3),
            Column("of it gain", spare=3),
            Column("mean power", spare=1),
            Column("peak power", spare=2),
            Column("source", right=False),
        ),
        tuple(map(_cells, (*shown.rows, shown.total))),
        tuple(_device_record(key, use, result) for key, use in result.run.devices.items()),
        provenance=shown.provenance,
    )


def spans_table(result: RunResult, shown: RunView) -> Table:
    return Table(
        "Time and energy of spans",
        (
            Column("span", right=False),
            Column("count"),
            Column("mean time"),
            Column("least to most time"),
            Column("mean energy"),
            Column("least to most energy"),
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
            Column("run", right=False),
            Column("host", right=False),
            Column("ended", right=False),
            Column("time"),
            Column("energy"),
            Column("error (95 %)"),
            Column("source", right=False),
        ),
        tuple(_member_cells(each) for each in members),
        tuple(
            {
                "run": each.id,
                "host": each.details.get("about", {}).get("host", ""),
                "state": each.state,
                "exit_code": each.exit_code,
                "time_s": each.time_s,
                **_energy_record(each.run.total),
            }
            for each in members
        ),
        provenance=provenance(*members),
    )


def _cells(row: Row) -> tuple[str | None, ...]:
    figures_ = (row.energy, row.error, *row.parts, row.mean, row.peak)
    return (row.device, *(None if cell in {"", "-"} else cell for cell in figures_), row.source)


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
    told = energy_json(energy) or {}
    return {
        "energy_j": told.get("value"),
        **{f"{part}_j": told.get(part) for part in ("error", "error_sampling", "error_gain")},
        "source": told.get("source"),
        "at_least": int(energy.at_least) if energy else None,
    }


def _statistics(what: str, unit: str, told: Mapping[str, Any] | None) -> _Record:
    return {f"{what}_{name}_{unit}": (told or {}).get(name) for name in ("mean", "min", "max")}


def _member_cells(each: RunResult) -> tuple[str | None, ...]:
    total = each.run.total
    energy, error = (None, None) if total is None else figures(total)
    codes = [warning.code for warning in each.warnings]
    return (
        plain(each.id),
        plain(each.details.get("about", {}).get("host", "")),
        ending(each.state, each.exit_code, codes, is_bound=is_bound(total)),
        seconds(each.time_s),
        energy,
        error or None,
        None if total is None else total_source(total, each.simulated_counted),
    )

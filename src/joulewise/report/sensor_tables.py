"""The tables of a run's sensors: what they read, in which states, and how often it was new."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from joulewise.data import Quantity, RunResult
from joulewise.report.figures import plain
from joulewise.report.run_view import provenance
from joulewise.report.tables import Column, Table
from joulewise.report.words import SENSORS, figure
from joulewise.units import digits

_Record = Mapping[str, float | str | None]
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
    """Of runs by what stands before their devices' names: nothing, or a group's node."""
    return (readings_table(runs), states_table(runs), span_table(runs), rates_table(runs))


def readings_table(runs: Mapping[str, RunResult]) -> Table:
    """Mean, least and most of everything that was recorded of any device beside its power."""
    told = [
        (device, quantity, figures)
        for device, sensors in _devices(runs)
        for quantity, figures in _known(sensors["run"])
        if quantity not in _STATES
    ]
    return Table(
        "Sensors over the run",
        (
            Column("device", right=False),
            Column("sensor", right=False),
            Column("mean"),
            Column("least"),
            Column("most"),
        ),
        tuple(
            (device, SENSORS[quantity], *(_cell(quantity, figures, of) for of in _FIGURES))
            for device, quantity, figures in told
        ),
        tuple(
            {
                "device": device,
                "quantity": quantity.value,
                **{of: (figures or {}).get(of) for of in _FIGURES},
            }
            for device, quantity, figures in told
        ),
        provenance=provenance(*runs.values()),
    )


def states_table(runs: Mapping[str, RunResult]) -> Table:
    """The share of the readings in each performance state, and of each reason for lower clocks."""
    told = [
        (device, quantity, state, share)
        for device, sensors in _devices(runs)
        for quantity, figures in _known(sensors["run"])
        if quantity in _STATES
        for state, share in (figures or {}).items()
    ]
    return Table(
        "Share of the time in each state",
        (
            Column("device", right=False),
            Column("sensor", right=False),
            Column("state", right=False),
            Column("share", "%"),
        ),
        tuple(
            (device, SENSORS[quantity], plain(state), digits(100 * share))
            for device, quantity, state, share in told
        ),
        tuple(
            {"device": device, "quantity": quantity.value, "state": state, "share": share}
            for device, quantity, state, share in told
        ),
        provenance=provenance(*runs.values()),
    )


def span_table(runs: Mapping[str, RunResult]) -> Table:
    """Means over the spans of each name; a name in which nothing was read has no row."""
    told = [
        (device, plain(name), {q.value: _mean(summary, q) for q in _OF_SPANS})
        for device, sensors in _devices(runs)
        for name, summary in sensors["spans"].items()
    ]
    told = [each for each in told if any(value is not None for value in each[2].values())]
    there = [q for q in _OF_SPANS if any(means[q.value] is not None for _, _, means in told)]
    return Table(
        "Sensors by span, means",
        (
            Column("span", right=False),
            Column("device", right=False),
            *(Column(SENSORS[quantity]) for quantity in there),
        ),
        tuple(
            (name, device, *(_figure(quantity, means[quantity.value]) for quantity in there))
            for device, name, means in told
        ),
        tuple({"span": name, "device": device, **means} for device, name, means in told),
        provenance=provenance(*runs.values()),
    )


def rates_table(runs: Mapping[str, RunResult]) -> Table:
    """How often each sensor was read and had a new value: in the run, idle, and under load."""
    told = [
        (f"{before}{key}", quantity, _stream(key, stream), rates)
        for before, result in runs.items()
        for key, quantities in result.details.get("sensor_rates", {}).items()
        for quantity in _RATES
        for stream, rates in quantities.get(quantity.value, {}).items()
    ]
    return Table(
        "New values a second, of readings a second",
        (
            Column("device", right=False),
            Column("sensor", right=False),
            Column("read as", right=False),
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
            for device, quantity, stream, rates in told
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
            for device, quantity, stream, rates in told
        ),
        provenance=provenance(*runs.values()),
        note="A sensor that is read more often than it updates repeats itself.",
        keys=3,
    )


def _devices(runs: Mapping[str, RunResult]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for before, result in runs.items():
        for key, sensors in result.details.get("sensors", {}).items():
            yield plain(f"{before}{key}"), sensors


def _known(summary: Mapping[str, Any]) -> Iterable[tuple[Quantity, Mapping[str, float] | None]]:
    """A newer joulewise may have more."""
    names = {quantity.value: quantity for quantity in SENSORS}
    return [(names[name], figures) for name, figures in summary.items() if name in names]


def _mean(summary: Mapping[str, Any], quantity: Quantity) -> float | None:
    figures = summary.get(quantity.value)
    return figures["mean"] if figures else None


def _cell(quantity: Quantity, figures: Mapping[str, float] | None, of: str) -> str | None:
    return _figure(quantity, figures.get(of) if figures else None)


def _figure(quantity: Quantity, value: float | None) -> str | None:
    return None if value is None else figure(quantity, value)


def _stream(key: str, stream: str) -> str:
    kind = stream.removeprefix(key)
    return _STREAMS[".buffer" if kind.startswith(".buffer") else kind]


def _new_of_read(rates: Mapping[str, float] | None) -> str | None:
    """``6.25 of 25.0``."""
    return f"{digits(rates['new_hz'])} of {digits(rates['read_hz'])}" if rates else None

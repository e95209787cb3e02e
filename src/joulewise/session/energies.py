"""What the library hands back: joules by device, spans with theirs, and how they read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from joulewise.data import Energy, RunResult, SpanResult
from joulewise.data.energy import error_words, in_words, joules
from joulewise.units import NS_PER_S


class Energies(Mapping[str, "Energy | None"]):
    """Device to energy, with their sum as ``total``; None is what could not be read.

    Every visible device has a key; ``total`` sums those in ``counted``, which the program used.
    """

    def __init__(
        self, devices: Mapping[str, Energy | None], total: Energy | None, counted: Sequence[str]
    ) -> None:
        self._devices = dict(devices)
        self.total = total
        self.counted = tuple(counted)

    @classmethod
    def of(cls, result: SpanResult, counted: Sequence[str]) -> Energies:
        return cls({key: use.energy for key, use in result.devices.items()}, result.total, counted)

    def __getitem__(self, device: str) -> Energy | None:
        return self._devices[device]

    def __iter__(self) -> Iterator[str]:
        return iter(self._devices)

    def __len__(self) -> int:
        return len(self._devices)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Energies):
            return NotImplemented
        return (self._devices, self.total, self.counted) == (
            other._devices,
            other.total,
            other.counted,
        )

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        parts = [f"{key} {in_words(self.get(key))}" for key in self.counted]
        return f"total {in_words(self.total)}" + (f": {', '.join(parts)}" if parts else "")

    def __repr__(self) -> str:
        return f"<{self}>"


@dataclass(frozen=True)
class MeasuredSpan:
    """A span, when it was (seconds from the start of the measurement), and its joules."""

    name: str
    index: int | None
    start_s: float
    end_s: float
    energy_j: Energies

    @property
    def time_s(self) -> float:
        return self.end_s - self.start_s

    def __str__(self) -> str:
        return f"{title(self.name, self.index)}: {self.time_s:.3g} s, {self.energy_j}"


def measured_spans(result: RunResult) -> tuple[MeasuredSpan, ...]:
    origin_ns = result.run.span.start_ns
    return tuple(
        MeasuredSpan(
            each.span.name,
            each.span.index,
            (each.span.start_ns - origin_ns) / NS_PER_S,
            (each.span.end_ns - origin_ns) / NS_PER_S,
            Energies.of(each, result.counted),
        )
        for each in result.spans
    )


def title(name: str, index: int | None) -> str:
    return name if index is None else f"{name} {index}"


def _cells(energy: Energy) -> str:
    if energy.at_least:
        return f"<td>at least {joules(max(energy.value, 0.0))}</td><td>± {error_words(energy)}</td>"
    return f"<td>{joules(energy.value)}</td><td>± {error_words(energy)}</td>"


def html(head: str, energies: Energies, cautions: Sequence[str]) -> str:
    """A small table for a notebook."""
    rows = [*((key, energies.get(key)) for key in energies.counted), ("total", energies.total)]
    cells = "".join(
        f"<tr><td>{escape(key)}</td>{_cells(energy)}<td>{energy.source.value}</td></tr>"
        if energy
        else f"<tr><td>{escape(key)}</td><td colspan=3>could not be read</td></tr>"
        for key, energy in rows
    )
    notes = "".join(f"<div>{escape(caution)}</div>" for caution in cautions)
    header = "<tr><th>device</th><th>energy</th><th>error</th><th>source</th></tr>"
    return f"<div><b>{escape(head)}</b></div><table>{header}{cells}</table>{notes}"

"""Joules with their error and their source, and what is known of a power sensor."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from joulewise.data.devices import DeviceInfo, Source, find_parts_of_uncounted

_SI: Final = ((1e9, "GJ"), (1e6, "MJ"), (1e3, "kJ"))
_KILO_FROM: Final = 1e4  # joules (chosen); below, kilojoules would hide digits of a short run


@dataclass(frozen=True)
class Energy:
    """Joules and their error, as 95 % half-widths.

    ``error_sampling`` is what the sensor's timing may have missed; repeating runs shrinks it.
    ``error_gain`` comes from one unknown factor of the board (its calibration): repeating does not
    shrink it, and it cancels in ratios on one board. ``at_least`` marks a lower bound: a part could
    not be read, and the errors are those of the rest.
    """

    value: float
    error_sampling: float
    error_gain: float
    source: Source
    at_least: bool = False

    @property
    def error(self) -> float:
        """Both errors, which are independent, added in quadrature."""
        return math.hypot(self.error_sampling, self.error_gain)

    def __str__(self) -> str:
        return in_words(self)


def total(parts: Iterable[Energy | None]) -> Energy | None:
    """The sum over devices; their errors are independent and add in quadrature.

    A part that is None belongs to the sum and could not be read: what is known of the others is
    then a lower bound, as it is where a part is one itself. None where nothing is known.
    """
    parts = list(parts)
    known = [part for part in parts if part is not None]
    if not known:
        return None
    sources = {part.source for part in known}
    return Energy(
        math.fsum(part.value for part in known),
        math.hypot(*(part.error_sampling for part in known)),
        math.hypot(*(part.error_gain for part in known)),
        sources.pop() if len(sources) == 1 else Source.MIXED,
        at_least=len(known) < len(parts) or any(part.at_least for part in known),
    )


def total_of_one(parts: Iterable[Energy | None]) -> Energy | None:
    """The sum over stretches of one device, whose gain errors are the same and add up."""
    parts = list(parts)
    whole = total(parts)
    gains_j = (part.error_gain for part in parts if part is not None)
    return whole and replace(whole, error_gain=math.fsum(gains_j))


def factors_of_estimates(
    energies: Mapping[str, Energy | None], devices: Iterable[DeviceInfo], counted: Collection[str]
) -> dict[str, tuple[float, float]]:
    """By what to multiply modelled energies and their errors, by the device's key.

    A module whose GPU was not used does not count, and the model of its contents in its place may
    be far too high: together they draw no more than the module. So their sum is confined to the
    part of its interval that lies below the upper end of the module's. Devices whose interval lies
    there already are left out.
    """
    factors: dict[str, tuple[float, float]] = {}
    for whole, keys in find_parts_of_uncounted(devices, counted).items():
        module = energies.get(whole)
        parts = {
            key: part
            for key in keys
            if (part := energies.get(key)) and part.source in (Source.MODELLED, Source.ASSUMED)
        }
        estimate = total(parts.values())
        if not estimate or not module or module.at_least:
            continue
        most_j = module.value + module.error
        if estimate.value + estimate.error <= most_j:
            continue
        least_j = min(max(0.0, estimate.value - estimate.error), module.value)
        half_j = (most_j - least_j) / 2
        pair = (least_j + half_j) / estimate.value, half_j / (estimate.error or half_j)
        factors |= dict.fromkeys(parts, pair)
    return factors


def scale(energy: Energy | None, factor: float, error_factor: float) -> Energy | None:
    """An energy times a factor, with its errors times another; None stays None."""
    return energy and replace(
        energy,
        value=factor * energy.value,
        error_sampling=error_factor * energy.error_sampling,
        error_gain=error_factor * energy.error_gain,
    )


@dataclass(frozen=True)
class SensorProfile:
    """What is known of a device's power sensor, and how well.

    Times are None where nobody has published them. ``timing_spread`` is the relative half-width
    (95 %) of period, window and lag: 0.2 is chosen, and twice as much doubles the part of the
    sampling error that comes from timing. ``gain`` is reading over truth, 1 until it is calibrated
    against a meter; ``gain_sigma`` is its standard deviation (origin: ``record.sensor_profiles``).
    ``origin`` is ``table``, or when it was calibrated.
    """

    update_period_s: float | None = None
    window_s: float | None = None
    lag_s: float | None = None
    counter_period_s: float | None = None
    timing_spread: float = 0.2
    gain: float = 1.0
    gain_sigma: float = 0.025
    origin: str = "table"


def in_words(energy: Energy | None, sources: str = "several sources") -> str:
    """An energy for people: ``774.7 J ± 1.9 %``, ``below 1.2 J`` where the error is larger.

    A lower bound is ``at least 83.7 J ± 1.2 %``. A source other than measured is named;
    those of a sum are ``sources``.
    """
    if energy is None:
        return "could not be read"
    named = sources if energy.source is Source.MIXED else energy.source.value
    source = "" if energy.source is Source.MEASURED else f" ({named})"
    if energy.at_least:
        return f"at least {joules(max(energy.value, 0.0))} ± {error_words(energy)}{source}"
    if energy.value < energy.error:
        return f"below {joules(energy.value + energy.error)}{source}"
    return f"{joules(energy.value)} ± {error_words(energy)}{source}"


def joules(value: float) -> str:
    """Joules for people: ``774.7 J``, ``12.35 kJ``; kilojoules from ten of them on."""
    for factor, unit in _SI:
        if value >= factor * (_KILO_FROM / 1e3 if unit == "kJ" else 1):
            return f"{value / factor:.4g} {unit}"
    return f"{value:.1f} J" if value >= 100 else f"{value:.3g} J"


def error_words(energy: Energy) -> str:
    """The error of an energy in percent, or in joules where the value is not above 0."""
    if energy.value <= 0:
        return f"{energy.error:.2g} J"
    percent = 100 * energy.error / energy.value
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"

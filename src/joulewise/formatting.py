"""Joules, seconds and errors with the digits that a person needs, and text that stays text.

Figures as a person reads them: units, prefixes, ranges.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

from joulewise.data import Energy, Kind, Knob, Quantity
from joulewise.data.throttling import throttle_names
from joulewise.units import digits, prefixed

_PLAIN: Final = {
    "±": "+/-",
    "µ": "u",
    "·": "-",
    "…": "...",
    "≥": ">=",
    "≤": "<=",
    "₀": "0",
    "°": "",
    "₂": "2",
    "²": "^2",
}


def joules(value: float) -> str:
    return prefixed(value, "J")


def watts(value: float | None) -> str:
    return "-" if value is None else f"{digits(value)} W"


def watt_hours(value_j: float) -> str:
    return prefixed(value_j / 3600, "Wh")


def energy(value: Energy | None) -> str:
    """``12.3 kJ ± 1.2 %``; ``below 499 mJ`` where the error leaves nothing of it.

    A lower bound is ``at least 83.7 J ± 1.2 %``: the error is that of what was read.
    """
    return "unavailable" if value is None else " ".join(filter(None, figures(value)))


def figures(value: Energy) -> tuple[str, str]:
    """The joules and their error, for two columns."""
    if value.at_least:
        read_j = max(value.value, 0.0)
        return f"at least {joules(read_j)}", within(value.error, read_j)
    if is_resolved(value):
        return joules(value.value), within(value.error, value.value)
    return f"below {joules(value.value + value.error)}", ""


def is_resolved(value: Energy) -> bool:
    """Whether the error leaves something of it."""
    return not abs(value.value) < value.error < math.inf


def within(half_width: float, value: float) -> str:
    """A half-width as a share of its value; in joules where the share would say nothing."""
    if not math.isfinite(half_width):
        return "± unknown"
    share = 100 * half_width / abs(value) if value else math.inf
    if share >= 1000:
        return f"± {joules(half_width)}"
    if share == 0:
        return "± 0 %"
    if share < 0.1:
        return "± <0.1 %"
    return f"± {share:.1f} %" if share < 9.95 else f"± {share:.0f} %"


def seconds(value: float) -> str:
    """``840 µs``, ``23.1 ms``, ``12.4 s``, ``3 min 20 s``, ``2 h 05 min``."""
    if value < 0:
        return f"-{seconds(-value)}"
    if value < 59.95:
        return prefixed(value, "s")
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(value / 60), 60)
    return f"{hours} h {minutes:02d} min"


def amount(value: float) -> str:
    """Three digits that matter of what has no prefixes, such as money; never an exponent."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:.0f}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def between(low: float | None, high: float | None, unit: str) -> str:
    """The least and the most of several: ``12.1-12.4 s``."""
    if low is None or high is None:
        return "-"
    least, most = (seconds(v) if unit == "s" else prefixed(v, unit) for v in (low, high))
    if least == most:
        return least
    (number, *unit_low), (_, *unit_high) = least.split(" "), most.split(" ")
    alike = len(unit_low) == 1 and unit_low == unit_high
    return f"{number}-{most}" if alike else f"{least} - {most}"


def plain(text: str) -> str:
    """Text from elsewhere, which must not steer a terminal: what does not print is spelt out."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in shell_bytes(text)
    )


def shell_bytes(text: str) -> str:
    r"""The same with bytes that are no UTF-8 (surrogates, PEP 383) as a shell has them.

    ``\xff``, and in quotes ``$'a\xff'``, which bash and zsh read as the same word.
    """
    if not _NO_UTF8.search(text):
        return text
    return _NO_UTF8.sub(_byte, _QUOTED_NO_UTF8.sub(_ansi_quoted, text))


def _ansi_quoted(quoted: re.Match[str]) -> str:
    inside = quoted[1].replace("\\", "\\\\")
    return f"$'{inside}'"


def _byte(surrogate: re.Match[str]) -> str:
    return f"\\x{ord(surrogate[0]) - 0xDC00:02x}"


def one_line(text: str, most: int | None = None) -> str:
    """The same with white space as single blanks, and its end left off where it is long."""
    line = plain(" ".join(text.split()))
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def capitalised(text: str) -> str:
    """As a sentence that stands alone; what follows keeps its letters."""
    return f"{text[:1].upper()}{text[1:]}"


_NO_UTF8: Final = re.compile("[\udc80-\udcff]")
_QUOTED_NO_UTF8: Final = re.compile(r"(?<!\$)'([^'\n]*[\udc80-\udcff][^'\n]*)'")
NO_BREAK: Final = "\N{NO-BREAK SPACE}"
_UNIT: Final = r"(?:±|\+/-|%|°C|min\b|h\b|days?\b|[kMGTmµu]?(?:J|Wh?|s|Hz|B)\b|gCO)"
_TOGETHER: Final = re.compile(rf"(?<=\d) (?={_UNIT})|(?<=±) (?=[\d<])|(?<=\+/-) (?=[\d<])")
_NAMED: Final = re.compile(r"\b([a-z]+_[a-z_]+) (?=\d)")  # such as batch_size 32


def keep_together(text: str) -> str:
    """The same with no-break spaces between a number and its unit or error, and within a setting.

    For a page or a terminal, never for what is copied into a shell.
    """
    return _NAMED.sub(rf"\1{NO_BREAK}", _TOGETHER.sub(NO_BREAK, text))


def wrap_text(text: str, columns: int) -> list[str]:
    """Lines of so many columns, which do not end between a number and its unit.

    What is longer than a line by itself is left for the terminal to break.
    """
    from rich.cells import cell_len

    lines = []
    for paragraph in text.split("\n"):
        line = ""
        for word in keep_together(paragraph).split(" "):
            longer = f"{line} {word}" if line else word
            if line and cell_len(longer) > columns:
                lines.append(line)
                longer = word
            line = longer
        lines.append(line)
    return [line.replace(NO_BREAK, " ") for line in lines]


def fitting(text: str, encoding: str) -> str:
    """The same in signs that the encoding has."""
    for sign, instead in _PLAIN.items():
        if sign in text:
            try:
                sign.encode(encoding)
            except (UnicodeEncodeError, LookupError):
                text = text.replace(sign, instead)
    return text


def hanging(line: str, begin: str, columns: int | None) -> str:
    """What begins so, wrapped beside its beginning; whole where there are no columns.

    What is there to be pasted stays in one piece: commands in backticks, or after "run:", "go on:".
    """
    line = " ".join(line.split())
    if columns is None:
        return f"{begin}{line}\n"
    whole = re.sub(
        r"`[^`]*`|\b(run|see|(to )?go on): .*", lambda found: found[0].replace(" ", "\0"), line
    )
    wrapped = textwrap.fill(
        whole,
        max(columns, 2 * len(begin)),
        initial_indent=begin,
        subsequent_indent=" " * len(begin),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapped.replace("\0", " ") + "\n"


KINDS: Final = {Kind.GPU: "GPU", Kind.CPU: "CPU", Kind.DRAM: "RAM", Kind.NODE: "node"}
LIMITED: Final = {"gpu": "the GPU's, not its module's", "module": "its module's"}
"""What a superchip's power limit holds, by the word in a result."""

# What stands for all GPUs of a driver that did not answer (record.inventory.unanswered_devices).
_DRIVERS: Final = {"nvidia", "amd"}
SENSORS: Final = {
    Quantity.POWER: "power",
    Quantity.POWER_INSTANT: "instant power",
    Quantity.POWER_AVERAGE: "average power",
    Quantity.GPU_POWER: "GPU power",
    Quantity.MEMORY_POWER: "memory power",
    Quantity.ENERGY: "energy",
    Quantity.ENFORCED_LIMIT: "limit in force",
    Quantity.LOAD: "load",
    Quantity.GPU_UTILISATION: "GPU utilisation",
    Quantity.MEMORY_UTILISATION: "memory utilisation",
    Quantity.ENCODER_UTILISATION: "encoder utilisation",
    Quantity.DECODER_UTILISATION: "decoder utilisation",
    Quantity.SM_CLOCK: "SM clock",
    Quantity.MEMORY_CLOCK: "memory clock",
    Quantity.PERFORMANCE_STATE: "performance state",
    Quantity.THROTTLE: "throttled by",
    Quantity.TEMPERATURE: "temperature",
    Quantity.FAN: "fan",
    Quantity.MEMORY_USED: "memory used",
    Quantity.PCIE_TX: "PCIe sent",
    Quantity.PCIE_RX: "PCIe received",
}
# Sensors that are read together stand together: a group's name, and each member's own.
GROUPS: Final[tuple[tuple[str, dict[Quantity, str]], ...]] = (
    (
        "power",
        {
            Quantity.POWER: "",
            Quantity.POWER_INSTANT: "instant",
            Quantity.POWER_AVERAGE: "average",
            Quantity.GPU_POWER: "GPU",
            Quantity.MEMORY_POWER: "memory",
        },
    ),
    ("energy", {Quantity.ENERGY: ""}),
    ("limit in force", {Quantity.ENFORCED_LIMIT: ""}),
    ("load", {Quantity.LOAD: ""}),
    (
        "utilisation",
        {
            Quantity.GPU_UTILISATION: "GPU",
            Quantity.MEMORY_UTILISATION: "memory",
            Quantity.ENCODER_UTILISATION: "encoder",
            Quantity.DECODER_UTILISATION: "decoder",
        },
    ),
    ("clock", {Quantity.SM_CLOCK: "SM", Quantity.MEMORY_CLOCK: "memory"}),
    ("state", {Quantity.PERFORMANCE_STATE: "", Quantity.THROTTLE: "throttled by"}),
    ("temperature", {Quantity.TEMPERATURE: "", Quantity.FAN: "fan"}),
    ("memory used", {Quantity.MEMORY_USED: ""}),
    ("PCIe", {Quantity.PCIE_TX: "sent", Quantity.PCIE_RX: "received"}),
)
KNOBS: Final = {knob: knob.label for knob in Knob}
_SI: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY: Final = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))
_UNITS: Final = {"w": "W", "j": "J", "pct": "%", "mhz": "MHz", "c": "°C", "b": "B", "s": "MB/s"}


def figure(quantity: Quantity, value: float, vendor: str = "") -> str:
    """A sensor's value with its unit."""
    if quantity is Quantity.PERFORMANCE_STATE:
        return f"P{value:.0f}"
    if quantity is Quantity.THROTTLE:
        return throttle(value, vendor)
    return with_unit(value, _unit(quantity))


def span(quantity: Quantity, values: Sequence[float], vendor: str = "") -> str:
    """The values of several devices: one where they read alike, else the lowest and highest."""
    if quantity is Quantity.THROTTLE:
        return ", ".join(dict.fromkeys(throttle(value, vendor) for value in values))
    return _between(figure(quantity, min(values), vendor), figure(quantity, max(values), vendor))


def simulated(keys: Iterable[str]) -> str:
    """``GPU simulated``, ``GPU and CPU simulated``; empty without a device, as of real results."""
    kinds = {key.rpartition("/")[2].rstrip("0123456789") for key in keys}
    if kinds & _DRIVERS:
        kinds.add(Kind.GPU.value)
    names = [name for kind, name in KINDS.items() if kind.value in kinds]
    if not names:
        return ""
    first, last = ", ".join(names[:-1]), names[-1]
    return f"{first} and {last} simulated" if first else f"{last} simulated"


def setting(knob: Knob, value: float) -> str:
    return with_unit(value, _unit(knob))


def settings(knob: Knob, low: float, high: float, choices: Sequence[float] | None) -> str:
    """A knob's range: ``135-1530 MHz, 187 steps``."""
    steps = f", {len(choices)} steps" if choices and len(choices) > 1 else ""
    return _between(setting(knob, low), setting(knob, high)) + steps


def throttle(bits: float, vendor: str) -> str:
    if not bits:
        return "nothing"
    # Only NVIDIA's bits have names; for others the sensor's note says what a figure means.
    return ", ".join(throttle_names(int(bits))) if vendor == "nvidia" else f"{bits:g}"


def with_unit(value: float, unit: str) -> str:
    prefixes = {"J": _SI, "B": _BINARY}.get(unit, ())
    for factor, prefix in prefixes:
        if abs(value) >= factor:
            return f"{_short(value / factor)} {prefix}{unit}"
    return f"{_short(value)} {unit}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds >= 1:
        return f"{seconds:g} s"
    return f"{seconds * 1e3:g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:g} µs"


def _unit(name: Quantity | Knob) -> str:
    return _UNITS[name.value.rsplit("_", 1)[-1]]


def _short(value: float) -> str:
    """Three digits that matter, or as many as the integer has."""
    decimals = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    number = f"{value:.{decimals}f}"
    return number.rstrip("0").rstrip(".") if decimals else number


def _between(low: str, high: str) -> str:
    if low == high:
        return low
    number, _, unit = low.partition(" ")
    return f"{number}-{high}" if unit and high.endswith(f" {unit}") else f"{low} - {high}"

"""Numbers with units and errors as a person reads them, and text that is safe in a terminal.

In this order: energies, times and other amounts; text from elsewhere (escaped, wrapped, in the
signs of an encoding); names and values of sensors and settings.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

from joulewise.data import ControlKind, Energy, Kind, Quantity
from joulewise.data.devices import throttle_names
from joulewise.units import digits, prefixed

# What stands for signs that the encoding of a terminal lacks.
_ASCII: Final = {
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
    """``12.3 kJ``."""
    return prefixed(value, "J")


def watts(value: float | None) -> str:
    """``150 W``; ``-`` where it is not known."""
    return "-" if value is None else f"{digits(value)} W"


def watt_hours(value_j: float) -> str:
    """Joules as watt-hours: ``3.42 Wh``."""
    return prefixed(value_j / 3600, "Wh")


def energy(value: Energy | None) -> str:
    """``12.3 kJ ± 1.2 %``; ``below 499 mJ`` where the error exceeds the value.

    A lower bound is ``at least 83.7 J ± 1.2 %``, with the error of the part that was read.
    """
    return "unavailable" if value is None else " ".join(filter(None, figures(value)))


def figures(value: Energy) -> tuple[str, str]:
    """An energy and its error as two texts, for two columns."""
    if value.at_least:
        read_j = max(value.value, 0.0)
        return f"at least {joules(read_j)}", within(value.error, read_j)
    if is_resolved(value):
        return joules(value.value), within(value.error, value.value)
    return f"below {joules(value.value + value.error)}", ""


def is_resolved(value: Energy) -> bool:
    """Whether the error is smaller than the value, so that the value says something."""
    return not abs(value.value) < value.error < math.inf


def within(half_width: float, value: float) -> str:
    """A half-width as a percentage of its value; in joules where that is 1000 % or more."""
    if not math.isfinite(half_width):
        return "± unknown"
    share = 100 * half_width / abs(value) if value else math.inf
    # The thresholds are those at which one more digit would be rounded up: 9.95 is 10.
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
    # From here on it would be rounded to 60.0 s.
    if value < 59.95:
        return prefixed(value, "s")
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(round(value / 60), 60)
    return f"{hours} h {minutes:02d} min"


def amount(value: float) -> str:
    """Three significant digits of what takes no prefix, such as money; never an exponent."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:.0f}"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}"


def between(low: float | None, high: float | None, unit: str) -> str:
    """A range with one unit where both ends have it: ``12.1-12.4 s``; ``-`` if unknown."""
    if low is None or high is None:
        return "-"
    least, most = (seconds(v) if unit == "s" else prefixed(v, unit) for v in (low, high))
    return _join_range(least, most)


def _join_range(low: str, high: str) -> str:
    if low == high:
        return low
    (number, *unit_low), (_, *unit_high) = low.split(" "), high.split(" ")
    alike = len(unit_low) == 1 and unit_low == unit_high
    return f"{number}-{high}" if alike else f"{low} - {high}"


def plain(text: str) -> str:
    """Text from elsewhere with control characters escaped, so that it cannot steer a terminal."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in shell_bytes(text)
    )


def shell_bytes(text: str) -> str:
    r"""Text with bytes that are no UTF-8 (surrogates, PEP 383) in the notation of a shell.

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
    """Text in one line, escaped, and cut off with … after ``most`` characters, if given."""
    line = plain(" ".join(text.split()))
    return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def capitalised(text: str) -> str:
    """Text with its first letter as a capital; the others are kept."""
    return f"{text[:1].upper()}{text[1:]}"


_NO_UTF8: Final = re.compile("[\udc80-\udcff]")
_QUOTED_NO_UTF8: Final = re.compile(r"(?<!\$)'([^'\n]*[\udc80-\udcff][^'\n]*)'")
NO_BREAK: Final = "\N{NO-BREAK SPACE}"
# A number is not parted from what belongs to it: its unit, its error, its ± sign.
_UNIT: Final = r"(?:±|\+/-|%|°C|min\b|h\b|days?\b|[kMGTmµu]?(?:J|Wh?|s|Hz|B)\b|gCO)"
_TOGETHER: Final = re.compile(rf"(?<=\d) (?={_UNIT})|(?<=±) (?=[\d<])|(?<=\+/-) (?=[\d<])")
_NAMED: Final = re.compile(r"\b([a-z]+_[a-z_]+) (?=\d)")  # such as batch_size 32


def keep_together(text: str) -> str:
    """Text with no-break spaces between a number and its unit or error, and within a setting.

    For a page or a terminal, never for what is copied into a shell.
    """
    return _NAMED.sub(rf"\1{NO_BREAK}", _TOGETHER.sub(NO_BREAK, text))


def wrap_text(text: str, columns: int) -> list[str]:
    """Text in lines of at most ``columns``, never broken between a number and its unit.

    A word that is longer than a line is left for the terminal to break.
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
    """Text with ASCII in place of the signs that the encoding lacks, such as ``+/-`` for ±."""
    for sign, instead in _ASCII.items():
        if sign in text:
            try:
                sign.encode(encoding)
            except (UnicodeEncodeError, LookupError):
                text = text.replace(sign, instead)
    return text


def hanging(line: str, begin: str, columns: int | None) -> str:
    """A line after ``begin``, wrapped with a hanging indent; not wrapped if ``columns`` is None.

    What is there to be pasted stays in one piece: commands in backticks, or after "run:", "go on:".
    """
    line = " ".join(line.split())
    if columns is None:
        return f"{begin}{line}\n"
    whole = re.sub(
        r"`[^`]*`|\b(run|see|(to )?go on): .*", lambda command: command[0].replace(" ", "\0"), line
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
"""Whose power a superchip's power limit holds, by the word in a result."""

# Keys that stand for all GPUs of a driver that did not answer (record.inventory).
_DRIVERS: Final = {"nvidia", "amd"}
SENSORS: Final = {
    Quantity.POWER: "power",
    Quantity.POWER_INSTANT: "instant power",
    Quantity.POWER_AVERAGE: "average power",
    Quantity.GPU_POWER: "GPU power",
    Quantity.MEMORY_POWER: "memory power",
    Quantity.ENERGY: "energy",
    Quantity.ENFORCED_LIMIT: "enforced power limit",
    Quantity.LOAD: "load",
    Quantity.GPU_UTILISATION: "GPU utilisation",
    Quantity.MEMORY_UTILISATION: "memory utilisation",
    Quantity.ENCODER_UTILISATION: "encoder utilisation",
    Quantity.DECODER_UTILISATION: "decoder utilisation",
    Quantity.SM_CLOCK: "SM clock",
    Quantity.MEMORY_CLOCK: "memory clock",
    Quantity.PERFORMANCE_STATE: "performance state",
    Quantity.THROTTLE: "clocks reduced by",
    Quantity.TEMPERATURE: "temperature",
    Quantity.FAN: "fan",
    Quantity.MEMORY_USED: "memory used",
    Quantity.PCIE_TX: "PCIe sent",
    Quantity.PCIE_RX: "PCIe received",
}
# Sensors that share a row of a table: the name of the row, and the label of each sensor in it.
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
    ("enforced limit", {Quantity.ENFORCED_LIMIT: ""}),
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
    ("state", {Quantity.PERFORMANCE_STATE: "", Quantity.THROTTLE: "clocks reduced by"}),
    ("temperature", {Quantity.TEMPERATURE: "", Quantity.FAN: "fan"}),
    ("memory used", {Quantity.MEMORY_USED: ""}),
    ("PCIe", {Quantity.PCIE_TX: "sent", Quantity.PCIE_RX: "received"}),
)
CONTROLS: Final = {control: control.label for control in ControlKind}
_SI: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_BINARY: Final = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki"))
# The units by the last part of the names of quantities and controls, such as power_limit_w.
_UNITS: Final = {"w": "W", "j": "J", "pct": "%", "mhz": "MHz", "c": "°C", "b": "B", "s": "MB/s"}


def figure(quantity: Quantity, value: float, vendor: str = "") -> str:
    """A sensor's value with its unit."""
    if quantity is Quantity.PERFORMANCE_STATE:
        return f"P{value:.0f}"
    if quantity is Quantity.THROTTLE:
        return throttle(value, vendor)
    return with_unit(value, _unit(quantity))


def span(quantity: Quantity, values: Sequence[float], vendor: str = "") -> str:
    """The values of several devices: one if they are equal, else the lowest and the highest."""
    if quantity is Quantity.THROTTLE:
        return ", ".join(dict.fromkeys(throttle(value, vendor) for value in values))
    return _join_range(figure(quantity, min(values), vendor), figure(quantity, max(values), vendor))


def simulated(keys: Iterable[str]) -> str:
    """``GPU and CPU simulated``, from the keys of simulated devices; empty if there are none."""
    kinds = {key.rpartition("/")[2].rstrip("0123456789") for key in keys}
    # A driver that did not answer stands for its GPUs.
    if kinds & _DRIVERS:
        kinds.add(Kind.GPU.value)
    names = [name for kind, name in KINDS.items() if kind.value in kinds]
    if not names:
        return ""
    return f"{' and '.join(filter(None, (', '.join(names[:-1]), names[-1])))} simulated"


def setting(control: ControlKind, value: float) -> str:
    """The value of a control with its unit: ``150 W``."""
    return with_unit(value, _unit(control))


def settings(control: ControlKind, low: float, high: float, choices: Sequence[float] | None) -> str:
    """The range of a control: ``135-1530 MHz, 187 steps``."""
    steps = f", {len(choices)} steps" if choices and len(choices) > 1 else ""
    return _join_range(setting(control, low), setting(control, high)) + steps


def throttle(bits: float, vendor: str) -> str:
    """Why clocks are lowered, from the bits of the driver: ``power cap, heat``."""
    if not bits:
        return "nothing"
    # Only NVIDIA's bits have names; for others the sensor's note says what a figure means.
    return ", ".join(throttle_names(int(bits))) if vendor == "nvidia" else f"{bits:g}"


def with_unit(value: float, unit: str) -> str:
    """``1.2 kJ``, ``16 GiB``, ``300 W``: three significant digits, without zeros at the end."""
    prefixes = {"J": _SI, "B": _BINARY}.get(unit, ())
    for factor, prefix in prefixes:
        if abs(value) >= factor:
            return f"{_short(value / factor)} {prefix}{unit}"
    return f"{_short(value)} {unit}"


def duration(seconds: float | None) -> str:
    """A period of a sensor, exactly as known: ``20 ms``; ``-`` where it is not known."""
    if seconds is None:
        return "-"
    if seconds >= 1:
        return f"{seconds:g} s"
    return f"{seconds * 1e3:g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:g} µs"


def with_error(value: float, error: float, unit: str, decimals: int | None = None) -> str:
    """``20.0 ± 0.1 ms``: with the decimals that the error's first digit needs, at most three."""
    if decimals is None and error < 0.5e-3:
        return f"{value:.3f} ± <0.001 {unit}"
    if decimals is None:
        decimals = next((d for d in range(4) if error >= 0.95 * 10**-d), 3)
    return f"{value:.{decimals}f} ± {error:.{decimals}f} {unit}"


def _unit(name: Quantity | ControlKind) -> str:
    return _UNITS[name.value.rsplit("_", 1)[-1]]


def _short(value: float) -> str:
    """Three significant digits, or as many as the integer has, without zeros after the point."""
    number = digits(value)
    return number.rstrip("0").rstrip(".") if "." in number else number

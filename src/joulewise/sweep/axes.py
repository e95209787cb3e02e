"""Parsing of axes: ``150:300:5``, ``150,200``, ``50%:100%:5%``, ``full``, or a list of words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from joulewise.data.sweeps import CPU_LIMIT, MEM_CLOCK, POWER_LIMIT, SM_CLOCK, Value
from joulewise.errors import NotSupportedError, OutOfRangeError, UsageError
from joulewise.sweep.boards import TargetBoard
from joulewise.units import accepted_units, parse_amount

FULL: Final = "full"
UNLOCKED: Final = "unlocked"
# Values of an axis, and runs of a sweep, at most. Chosen: at a minute for each, that many runs take
# ten weeks, so that more are a typing error.
MOST: Final = 100_000

LABELS: Final = {
    POWER_LIMIT: "power limit",
    SM_CLOCK: "SM clock",
    MEM_CLOCK: "memory clock",
    CPU_LIMIT: "CPU power limit",
}
# What ``full`` tries, both chosen. 5 W are 31 limits from 150 to 300 W; 16 of the hundred or so
# clocks that a driver lists are a fifteenth of their range apart. Half the step, or twice the
# clocks, makes a sweep twice as long.
_FULL_STEP_W: Final = Decimal(5)
_MAX_FULL_CLOCKS: Final = 16
_NUMBER: Final = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
_STEPS: Final = re.compile(rf"({_NUMBER}):({_NUMBER}):({_NUMBER})")
_PART: Final = re.compile(r"""\s*(?:"((?:[^"]|"")*)"|'((?:[^']|'')*)'|([^,"'\s][^,]*|))\s*(,|\Z)""")
_LARGEST: Final = 15  # digits before or after the point, which a float holds exactly


@dataclass(frozen=True)
class Axis:
    """The values of an axis, and what the user should know of them."""

    name: str
    values: tuple[Value, ...]
    notes: tuple[str, ...] = ()


def parse_limits(name: str, text: str, board: TargetBoard) -> Axis:
    """Parse power limits in W: ``150:300:5``, ``150,200``, ``50%`` of the default, ``full``."""
    if board.default_w is None:
        raise NotSupportedError(
            f"the {LABELS[name]} of {board.key} cannot be set", "run `joulewise doctor`"
        )
    default_w = board.default_w

    def watts(number: Decimal, unit: str) -> float:
        if unit == "%":
            return round(float(number) * default_w / 100, 1)
        return float(number)

    low, high = (Decimal(str(end_w)) for end_w in board.full_w)
    values = [
        watts(*item)
        for item in _parse_quantities(name, text, ("power", "share"), (low, high, _FULL_STEP_W))
    ]
    for value_w in values:
        if not board.lowest_w <= value_w <= board.highest_w:
            raise OutOfRangeError(
                f"{board.key}'s {LABELS[name]} cannot be {value_w:g} W",
                f"it takes {board.lowest_w:g} to {board.highest_w:g} W "
                f"({100 * board.lowest_w / default_w:.3g} to "
                f"{100 * board.highest_w / default_w:.3g} %)",
            )
    return _make_axis(name, values, [])


def parse_clocks(name: str, text: str, board: TargetBoard) -> Axis:
    """Parse clocks in MHz; each becomes the nearest that can be locked.

    ``full`` are up to 16 of these. ``unlocked`` (None) leaves the clock to the driver.
    """
    supported = board.clocks_mhz(name)
    if not supported:
        raise NotSupportedError(
            f"the {LABELS[name]} of {board.key} cannot be locked", "run `joulewise doctor`"
        )
    values: list[float | None] = []
    notes = []
    for item in _split_items(name, text):
        if item in {FULL, UNLOCKED}:
            values += _thin_out(supported) if item == FULL else [None]
            continue
        for number, _ in _parse_quantities(name, item, ("clock",)):
            wanted_mhz = float(number)
            if not supported[0] <= wanted_mhz <= supported[-1]:
                raise OutOfRangeError(
                    f"{board.key}'s {LABELS[name]} cannot be {wanted_mhz:g} MHz",
                    f"it takes {supported[0]:g} to {supported[-1]:g} MHz",
                )
            values.append(nearest(wanted_mhz, supported))
            if values[-1] != wanted_mhz:
                notes.append(
                    f"{LABELS[name]} {wanted_mhz:g} MHz becomes {values[-1]:g} MHz, the nearest "
                    f"that {board.key} takes"
                )
    return _make_axis(name, values, notes)


def parse_words(name: str, text: str) -> Axis:
    """Parse values of a parameter of the command: words and ``from:to:step``, between commas.

    In quotes, a comma is a part of the word, and a range stays a word.
    """
    values = []
    for word, is_quoted in _split_words(name, text):
        steps = None if is_quoted else _STEPS.fullmatch(word)
        if steps is None:
            values.append(word)
        else:
            first, last, step = (_parse_decimal(end, word) for end in steps.groups())
            values += [f"{value:f}" for value in _list_steps(first, last, step, word)]
    return _make_axis(name, values, [])


def format_values(values: Iterable[object]) -> str:
    """Write values as on the command line, for :func:`parse_words` to parse."""
    return ",".join(_quote(str(value)) for value in values)


def nearest(value: float, supported: Sequence[float]) -> float:
    """The nearest supported value, and the lower of two as near, as a lease rounds."""
    return min(supported, key=lambda other: (abs(other - value), other))


def _make_axis(name: str, values: Sequence[Value], notes: list[str]) -> Axis:
    unique = tuple(dict.fromkeys(values))
    if len(unique) > MOST:
        raise _make_too_many_error(name)
    if len(unique) < len(values):
        repeated = len(values) - len(unique)
        label = LABELS.get(name, name)
        notes = [*notes, f"{label}: {repeated} of {len(values)} values were given twice"]
    return Axis(name, unique, tuple(notes))


def _parse_quantities(
    name: str,
    text: str,
    kinds: tuple[str, ...],
    full: tuple[Decimal, Decimal, Decimal] | None = None,
) -> Iterator[tuple[Decimal, str]]:
    """Parse numbers and ranges with their units; ``full`` is the range of that word, if any."""
    for item in _split_items(name, text):
        if item == FULL and full:
            yield from ((value, "") for value in _list_steps(*full, item))
            continue
        parts = [_parse_quantity(name, part, kinds) for part in item.split(":")]
        shares = {unit == "%" for _, unit in parts}
        if len(parts) not in {1, 3} or len(shares) > 1:
            raise UsageError(
                f"{item!r} is not a range of the {LABELS[name]}",
                "write from:to:step, all in one unit, as in 150:300:5 or 50%:100%:5%",
            )
        unit = parts[0][1]
        if len(parts) == 1:
            yield parts[0]
        else:
            first, last, step = (number for number, _ in parts)
            yield from ((value, unit) for value in _list_steps(first, last, step, item))


def _parse_quantity(name: str, text: str, kinds: tuple[str, ...]) -> tuple[Decimal, str]:
    """The number in watts, percent or MHz, and the unit that it was written in."""
    sign, unsigned = ("-", text.strip()[1:]) if text.strip().startswith("-") else ("", text)
    try:
        amount = parse_amount(unsigned, *kinds, default_unit="MHz" if "clock" in kinds else "W")
    except ValueError as error:
        raise UsageError(
            f"{text!r} is not a valid {LABELS[name]}: {error}",
            f"give numbers in {accepted_units(*kinds)}, or {FULL}",
        ) from None
    return _parse_decimal(sign + amount.number, text) * Decimal(str(amount.factor)), amount.unit


def _parse_decimal(text: str, written: str) -> Decimal:
    number = Decimal(text)
    if number and abs(number.adjusted()) > _LARGEST:
        raise UsageError(f"{written!r} has a number that is too large or small", "correct it")
    return number


def _list_steps(first: Decimal, last: Decimal, step: Decimal, written: str) -> list[Decimal]:
    """Values from the first by steps; the last is always among them."""
    if step <= 0:
        raise UsageError(f"{written!r} has a step of {step}", "give a step above 0")
    if last < first:
        raise UsageError(
            f"{written!r} ends below its start", "write the lower end first: from:to:step"
        )
    count = (last - first) / step
    if count > MOST:
        raise _make_too_many_error(written)
    values = (first + k * step for k in range(int(count) + 1))
    return [*(value for value in values if value < last), last]


def _thin_out(supported: Sequence[float]) -> list[float | None]:
    """Up to ``_MAX_FULL_CLOCKS`` of the values, evenly spaced, both ends among them."""
    if len(supported) <= _MAX_FULL_CLOCKS:
        return list(supported)
    low, high = supported[0], supported[-1]
    gap = (high - low) / (_MAX_FULL_CLOCKS - 1)
    return [nearest(low + k * gap, supported) for k in range(_MAX_FULL_CLOCKS)]


def _split_items(name: str, text: str) -> list[str]:
    items = [item.strip() for item in text.split(",")]
    if not all(items):
        raise _make_empty_error(name, text)
    return items


def _split_words(name: str, text: str) -> Iterator[tuple[str, bool]]:
    """The words between commas, and whether each is quoted."""
    position = 0
    while True:
        match = _PART.match(text, position)
        if match is None:
            raise UsageError(
                f"{name}: a quote in {text!r} is in the wrong place",
                'quote whole values, as in: "a,b",c',
            )
        double, single, plain, end = match.groups()
        if double is not None or single is not None:
            word = single.replace("''", "'") if double is None else double.replace('""', '"')
            yield word, True
        elif not plain.strip():
            raise _make_empty_error(name, text)
        else:
            yield plain.strip(), False
        if not end:
            return
        position = match.end()


def _quote(word: str) -> str:
    is_plain = word and word == word.strip() and word[0] not in "\"'" and "," not in word
    if is_plain and not _STEPS.fullmatch(word):
        return word
    return '"{}"'.format(word.replace('"', '""'))


def _make_empty_error(name: str, text: str) -> UsageError:
    problem = f"an empty value in {text!r}" if text.strip() else "no values"
    return UsageError(f"{LABELS.get(name, name)}: {problem}", 'give some; "" is an empty word')


def _make_too_many_error(what: str) -> UsageError:
    return UsageError(f"{what} has more than {MOST:,} values", "use a larger step, or fewer values")

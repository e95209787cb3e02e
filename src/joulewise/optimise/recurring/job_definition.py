"""A job's definition: from what a user wrote and what is stored, and whether the two agree."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeVar

from joulewise.data.jobs import JobDefinition, JobTarget
from joulewise.errors import UsageError
from joulewise.sweep.validate import check_placeholders

_Value = TypeVar("_Value")
_ELLIPSES: Final = {"...", "…"}
_MAX: Final = "max"
# The largest value of a set without an end, as 8:max: more than any GPU of today takes of anything
# but the smallest models. Doubled, a policy has one more value to know of.
_LARGEST: Final = 1 << 16
# The most values that a job may have. Chosen: neighbours so near to each other differ by less than
# their noise, and an answer of the policy takes about 2 s of CPU time. Doubled, it takes 4 s.
_MOST_VALUES: Final = 100
_MOST_SHOWN: Final = 16  # values in a message (chosen: about a line)
DEFAULT_ETA: Final = 0.5
"""Energy and time weigh the same, as in Zeus."""

_TOO_LARGE: Final = 1 << 63  # for an integer in a database
_MOST_EPOCHS: Final = (1 << 31) - 1  # of a column of type INTEGER in PostgreSQL
_MOST_DIGITS: Final = len(str(_TOO_LARGE))
_COMPARED: Final = ("parameter", "default", "target", "max_epochs", "eta")
"""Fields that must not change once something was learned, because it would be worth nothing."""

_SHOWN: Final = (*_COMPARED, "values", "policy", "seed", "metric_pattern")


@dataclass(frozen=True)
class JobRequest:
    """What ``joulewise job run`` was given of a job; None is what was left out.

    ``values`` and ``default`` are texts of the form NAME=VALUES and NAME=VALUE. An empty
    ``metric_pattern`` means that the command logs its metric.
    """

    name: str
    values: str | None = None
    default: str | None = None
    target: str | None = None
    max_epochs: int | None = None
    eta: float | None = None
    policy: str | None = None
    seed: int | None = None
    metric_pattern: str | None = None


@dataclass(frozen=True)
class ParameterValues:
    """The values that a policy may choose from, ascending; ``is_open`` where they have no end."""

    name: str
    values: tuple[int, ...]
    is_open: bool = False


def define_job(
    request: JobRequest, command: Sequence[str], stored: JobDefinition | None, policy: str
) -> JobDefinition:
    """The definition of a job.

    What was left out is as it is ``stored``; ``policy`` is the name of the usual one. Raises
    UsageError where something is missing, or where the command does not use the parameter.
    """
    if not request.name.strip():
        raise UsageError("the name of the job is empty", "give a name, such as nightly")
    if stored is None:
        _check_complete(request)
    parameter = None if request.values is None else parse_values(request.values)
    name = parameter.name if parameter else stored.parameter if stored else ""
    if request.default is not None:
        default = _parse_default(request.default, name)
    else:
        assert stored is not None  # noqa: S101  # checked above
        default = stored.default
    values = parameter.values if parameter else stored.values if stored else ()
    check_placeholders(command, [name])
    known = stored or JobDefinition(
        request.name,
        name,
        values,
        default,
        _parse_target(request.target or ""),
        request.max_epochs or 1,
        DEFAULT_ETA,
        policy,
        0,
    )
    defined = replace(
        known,
        parameter=name,
        values=values,
        default=default,
        target=known.target if request.target is None else _parse_target(request.target),
        max_epochs=_given(request.max_epochs, known.max_epochs),
        eta=_given(request.eta, known.eta),
        policy=_given(request.policy, known.policy),
        seed=_given(request.seed, known.seed),
        is_open=parameter.is_open if parameter else known.is_open,
        metric_pattern=_given(request.metric_pattern, known.metric_pattern) or None,
    )
    check_definition(defined)
    return defined


def _parse_target(text: str) -> JobTarget:
    try:
        return JobTarget.parse(text)
    except ValueError as error:
        raise UsageError(
            f"--target: {error}", "write it in quotes, as in: --target 'val_acc>=0.65'"
        ) from None


def _given(value: _Value | None, otherwise: _Value) -> _Value:
    return otherwise if value is None else value


def parse_values(text: str) -> ParameterValues:
    """``batch_size=8,16,32``, ``batch_size=8,16,…,1024`` or ``batch_size=8:max``, ascending."""
    name, equals, listed = (part.strip() for part in text.partition("="))
    if not name.isidentifier() or not equals or not listed:
        raise UsageError(
            f"--set {text!r} is not NAME=VALUES", "write, for example: --set batch_size=8,16,32"
        )
    low, colon, high = (part.strip() for part in listed.partition(":"))
    if colon:
        if high != _MAX:
            raise UsageError(
                f"--set {text!r} has a colon, but does not end in :max",
                f"write {name}={low}:max for all that fits in memory, or list the values",
            )
        return ParameterValues(name, _unending(_whole(low, text), name, text), is_open=True)
    values = _expand([part.strip() for part in listed.split(",")], text)
    _check_count(len(values), text)
    if len(set(values)) < len(values):
        twice = next(value for value in values if values.count(value) > 1)
        raise UsageError(f"--set {text!r} has {twice} twice", "give each value once")
    return ParameterValues(name, tuple(sorted(values)))


def _check_complete(request: JobRequest) -> None:
    options = {
        "--set": request.values,
        "--default": request.default,
        "--target": request.target,
        "--max-epochs": request.max_epochs,
    }
    missing = [option for option, value in options.items() if value is None]
    if missing:
        raise UsageError(
            f"job {request.name} is new, and {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing",
            "write, for example: --set batch_size=64,128,256 --default batch_size=128 "
            "--target 'val_acc>=0.65' --max-epochs 100; later runs of the job need none of it",
        )


def _parse_default(text: str, name: str) -> int:
    given, equals, value = (part.strip() for part in text.partition("="))
    if not equals or given != name:
        raise UsageError(
            f"--default {text!r} is not {name}=VALUE", f"write, for example: --default {name}=128"
        )
    return _whole(value, text)


def _expand(parts: Sequence[str], text: str) -> list[int]:
    """The values of a list; ``…`` stands for those that the two before it lead to."""
    values: list[int] = []
    for at, part in enumerate(parts):
        if part not in _ELLIPSES:
            values.append(_whole(part, text))
            continue
        if at < 2 or at + 2 != len(parts):
            raise UsageError(
                f"in --set {text!r} the dots do not stand between two values and the last one",
                "write, for example: 8,16,...,1024",
            )
        values += _between(values[-2], values[-1], _whole(parts[-1], text), text)
    return values


def _between(first: int, second: int, last: int, text: str) -> list[int]:
    """What follows first and second before last.

    By the same factor where second is a multiple of first, as batch sizes double; else by the same
    step. A last value that the factor misses is no hint at steps, as a typo may be: 8,16,...,1000.
    """
    factor, rest = divmod(second, first)
    if not rest and factor > 1 and second < last:
        values = [second]
        while values[-1] < last:
            values.append(values[-1] * factor)
        if values[-1] != last:
            raise UsageError(
                f"in --set {text!r}, {first},{second} goes on by the factor {factor}, to "
                f"{values[-2]} or {values[-1]}, and not to {last}",
                f"end in one of these; for steps of {second - first}, write three values before "
                f"the dots, as in: {first},{second},{2 * second - first},...",
            )
        return values[1:-1]
    step = second - first
    if step <= 0 or last <= second or (last - second) % step:
        raise UsageError(
            f"in --set {text!r}, {first} and {second} do not lead to {last}",
            "list all of the values",
        )
    _check_count(2 + (last - second) // step, text)
    return list(range(second + step, last, step))


def _check_count(count: int, text: str) -> None:
    if count > _MOST_VALUES:
        raise UsageError(
            f"--set {text!r} has {count} values, more than the {_MOST_VALUES} that a job can have",
            "take fewer, such as doublings: 8,16,...,1024",
        )


def _unending(low: int, name: str, text: str) -> tuple[int, ...]:
    """The doublings of ``low`` up to the largest that anybody would try."""
    values = [low]
    while values[-1] * 2 <= _LARGEST:
        values.append(values[-1] * 2)
    if len(values) < 2:
        raise UsageError(
            f"--set {text!r} begins at {low}, but it goes up to {_LARGEST} at most",
            f"list the values, as in: --set {name}={low},{2 * low}",
        )
    return tuple(values)


def _whole(part: str, text: str) -> int:
    # int() would also take 8_16, which is more likely a typo of 8,16.
    value = int(part) if part.isascii() and part.isdigit() and len(part) <= _MOST_DIGITS else 0
    if value < 1:
        raise UsageError(
            f"in {text!r}, {part!r} is not a whole number above 0",
            "a job chooses among whole numbers, such as batch sizes",
        )
    return value


def _list_values(values: Sequence[int]) -> str:
    """All of them, or the first and the last few of many."""
    shown = [str(value) for value in values]
    if len(shown) > _MOST_SHOWN:
        shown[_MOST_SHOWN // 2 : -_MOST_SHOWN // 2] = ["…"]
    return ", ".join(shown)


def check_definition(definition: JobDefinition) -> None:
    """Raise a UsageError for what cannot be stored, or cannot be a job."""
    for text in (definition.name, definition.parameter):
        if not text or not text.isprintable():  # nor can a database hold it
            raise UsageError(
                f"a job or a parameter cannot be called {text!r}",
                "choose a name of letters, digits and signs",
            )
    for text in (definition.target.metric, definition.metric_pattern or ""):
        if text.encode("utf-8", "ignore").decode() != text:
            raise UsageError(
                f"{text!r} has characters that are not of Unicode", "write it in UTF-8"
            )
    if definition.default not in definition.values:
        raise UsageError(
            f"the default {definition.parameter}={definition.default} is not among "
            f"{_list_values(definition.values)}",
            f"add it to --set {definition.parameter}=…, or choose another --default",
        )
    if not all(abs(number) < _TOO_LARGE for number in (*definition.values, definition.seed)):
        raise UsageError("a value or the seed has more than 63 bits", "choose a smaller one")
    if not 0 < definition.max_epochs <= _MOST_EPOCHS:
        raise UsageError(
            f"{definition.max_epochs} epochs are not between 1 and {_MOST_EPOCHS}",
            "give --max-epochs as the most that a training may run",
        )
    if len(definition.values) > _MOST_VALUES:
        raise UsageError(
            f"job {definition.name} would have {len(definition.values)} values, more than the "
            f"{_MOST_VALUES} that a job can have",
            "take fewer, such as doublings",
        )


class Learned(Enum):
    """What the tries of a job have taught, and with that what of it may still change."""

    NOTHING = "nothing"
    MEMORY = "memory"
    """Only which values do not fit in memory, whatever the target is."""
    COSTS = "costs"


def merge_definitions(
    stored: JobDefinition, given: JobDefinition, learned: Learned = Learned.COSTS
) -> JobDefinition:
    """The definition from now on: the given one, as far as what was learned stays true.

    Values may be added at any time, and another policy or seed learns from the same tries.
    Raises UsageError for another difference once something was learned.
    """
    if learned is Learned.NOTHING:
        return given
    compared = _COMPARED if learned is Learned.COSTS else ("parameter",)
    differences = [name for name in compared if getattr(stored, name) != getattr(given, name)]
    missing = sorted(set(stored.values) - set(given.values))
    if not differences and not missing:
        return given
    if differences:
        name = differences[0]
        old, new = (_shown_field(one, name) for one in (stored, given))
        difference = f"has {name.replace('_', ' ')} {old}, not {new}"
    else:
        difference = f"also has {stored.parameter} {_list_values(missing)}"
    raise UsageError(
        f"job {stored.name} {difference}",
        f"give it as it was, or take another name, or delete what was learned: "
        f"joulewise job forget {shlex.quote(stored.name)}",
    )


def describe_changes(stored: JobDefinition, defined: JobDefinition) -> list[str]:
    """What of a job is another than before, a sentence each."""
    return [
        f"job {defined.name}: {name.replace('_', ' ')} is {_shown_field(defined, name)} from now "
        f"on, and was {_shown_field(stored, name)}"
        for name in _SHOWN
        if getattr(stored, name) != getattr(defined, name)
        or _shown_field(stored, name) != _shown_field(defined, name)
    ]


def _shown_field(definition: JobDefinition, name: str) -> str:
    if name == "target":
        return definition.target.text
    if name == "values":
        return show_values(definition)
    value = getattr(definition, name)
    return "none" if value is None else str(value)


def show_values(definition: JobDefinition) -> str:
    """The values of a job as --set has them."""
    if definition.is_open:
        return f"{definition.values[0]}:{_MAX}"
    return _list_values(definition.values)

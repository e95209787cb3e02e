"""Sweeps from a TOML file: one or several benchmarks, each with its command and its space.

Keys are the options of ``joulewise sweep``. Those above the first ``[[benchmark]]`` hold for all
benchmarks; a file without any is one benchmark itself.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from joulewise.data.sweeps import CONTROL_KEYS
from joulewise.errors import UsageError, did_you_mean
from joulewise.sweep.axes import format_values
from joulewise.sweep.spec import SimulationSpec, SweepSpec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_BENCHMARK: Final = "benchmark"


def _hint() -> str:
    """All keys, and a benchmark to begin with, for users without the documentation."""
    return (
        f"there are {', '.join(sorted(_KEYS))}; such as: [[benchmark]] "
        'command = ["python", "train.py"], power_limit = "150:300:25"'
    )


def read(path: Path) -> list[SweepSpec]:
    """Read the spec of each benchmark of a file, in order.

    Raises:
        UsageError: the message says what is wrong in which benchmark.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "name a TOML file") from None
    except ValueError as error:  # of TOML, and of UTF-8
        raise UsageError(f"{path} is not a TOML file: {error}", _hint()) from None
    benchmarks = tables.pop(_BENCHMARK, None)
    if benchmarks is None:
        return [_read_spec(path, "", {"name": path.stem, **tables})]
    if not isinstance(benchmarks, list) or not all(isinstance(one, dict) for one in benchmarks):
        raise UsageError(f"{path}: {_BENCHMARK} is not a list of tables", "write [[benchmark]]")
    if not benchmarks:
        raise UsageError(f"{path}: there is no benchmark", _hint())
    if "name" in tables and len(benchmarks) > 1:
        raise UsageError(
            f"{path}: all benchmarks have one name", "give each [[benchmark]] its own name"
        )
    specs = [
        _read_spec(
            path, f"benchmark {n}: ", {"name": f"{path.stem}-{n}", **_merge(tables, benchmark)}
        )
        for n, benchmark in enumerate(benchmarks, 1)
    ]
    names = [spec.name for spec in specs]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"{path}: two benchmarks are named {min(twice)}", "use different names")
    return specs


def _merge(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Override common keys by a benchmark's own; those of tables one by one."""
    merged = {**common, **own}
    for key, table in own.items():
        above = common.get(key)
        if isinstance(table, dict) and isinstance(above, dict):
            merged[key] = {**above, **table}
    return merged


def _read_spec(path: Path, where: str, table: Mapping[str, Any]) -> SweepSpec:
    fields: dict[str, Any] = {}
    for key, value in table.items():
        if key not in _KEYS:
            raise UsageError(
                f"{path}: {where}{key} is unknown", f"{did_you_mean(key, _KEYS)}{_hint()}"
            )
        rule = _KEYS[key]
        try:
            field = rule.read(value)
        except (TypeError, ValueError) as error:
            what = str(error) or rule.form
            raise UsageError(f"{path}: {where}{key} is not {what}", _hint()) from None
        if isinstance(field, dict):
            field = {**fields.get(rule.field, {}), **field}
        fields[rule.field] = field
    simulated = {key: fields.pop(key) for key in _SIMULATED if key in fields}
    if "gpu" in simulated:
        fields["simulated"] = SimulationSpec(**simulated)
    elif simulated:
        raise UsageError(f"{path}: {where}{min(simulated)} without sim", 'add sim = "v100"')
    if fields.get("cwd"):
        fields["cwd"] = str((path.parent / fields["cwd"]).resolve())
    return SweepSpec(**fields)


@dataclass(frozen=True)
class _Rule:
    """The field of a spec that a key sets, how its value is read, and its form in words.

    ``read`` raises a TypeError for a value of another form, or a ValueError that says what else is
    wrong.
    """

    field: str
    read: Callable[[Any], Any]
    form: str


def _typed(*kinds: type) -> Callable[[Any], Any]:
    """Return a function that passes on values of these types; true and false are only ``bool``."""

    def read(value: Any) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise TypeError
        return value

    return read


_text, _flag, _whole, _number = _typed(str), _typed(bool), _typed(int), _typed(int, float)
_list, _table = _typed(list), _typed(dict)


def _percent(value: Any) -> Any:
    return _number(value) / 100


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_text(item) for item in (value if isinstance(value, list) else [value]))


def _wholes(value: Any) -> tuple[int, ...]:
    return tuple(_whole(item) for item in (value if isinstance(value, list) else [value]))


def _command(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            raise ValueError(f"a command line: {error}") from None
    return tuple(_word(item) for item in _list(value))


def _word(value: Any) -> str:
    """A value as an argument of a program."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else str(_number(value))


def _words(value: Any) -> dict[str, str]:
    return {name: _word(item) for name, item in _table(value).items()}


def _own_axes(value: Any) -> dict[str, str]:
    """Read axes of parameters: text as on the command line, the items of a list as they are."""
    return dict(_own_axis(name, item) for name, item in _table(value).items())


def _own_axis(name: str, value: Any) -> tuple[str, str]:
    if name in CONTROL_KEYS:
        raise ValueError(
            f"for limits and clocks: write {CONTROL_KEYS[name]} = … beside it, not {name} in it"
        )
    return name, format_values(map(_word, value)) if isinstance(value, list) else _word(value)


def _control_axis(control: str) -> Callable[[Any], dict[str, str]]:
    def read(value: Any) -> dict[str, str]:
        items = value if isinstance(value, list) else [value]
        if any(isinstance(item, bool) for item in items):
            raise TypeError
        return {control: ",".join(_word(item) for item in items)}

    return read


def _rules() -> Iterator[tuple[str, _Rule]]:
    for key in ("name", "cwd", "cool_down", "boundary", "on"):
        yield key, _Rule(key, _text, "text")
    for key, field in (("sim", "gpu"), ("workload", "workload"), ("like", "like")):
        yield key, _Rule(field, _text, "text")
    for key in ("repeat", "seed", "warm_up"):
        yield key, _Rule(key, _whole, "a whole number")
    for key in ("max_slowdown", "overhead_w", "pue"):
        yield key, _Rule(key, _number, "a number")
    yield "timeout", _Rule("timeout_s", _number, "a number of seconds")
    yield "rate", _Rule("rate_hz", _number, "a number of Hz")
    for key in ("tolerance", "run_noise"):
        yield key, _Rule(key, _percent, "a number of percent")
    for key in ("each_gpu", "adaptive", "hooks", "force"):
        yield key, _Rule(key, _flag, "true or false")
    for key in ("constraints", "by"):
        yield key, _Rule(key, _texts, "a list of texts")
    yield "gpu", _Rule("gpus", _wholes, "a list of whole numbers")
    yield "command", _Rule("command", _command, "a command, as text or a list of texts")
    for control, key in CONTROL_KEYS.items():
        yield (
            key,
            _Rule("axes", _control_axis(control), "a range (as text), a number or a list of them"),
        )
    yield "set", _Rule("axes", _own_axes, "a table of names and their values")
    yield "reference", _Rule("reference", _words, "a table of names and values")
    yield "environment", _Rule("environ", _words, "a table of names and values")


_SIMULATED: Final = ("gpu", "workload", "like", "run_noise")
_KEYS: Final = dict(_rules())

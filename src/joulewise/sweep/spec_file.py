"""Sweeps from a TOML file: one or several benchmarks, each with its command and its space.

Keys are the options of ``joulewise sweep``. What stands above the first ``[[benchmark]]`` holds
for all of them; a file without any is one benchmark itself.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from joulewise.data.sweeps import KNOB_KEYS
from joulewise.errors import UsageError, did_you_mean
from joulewise.sweep.axes import written
from joulewise.sweep.spec import SimulationSpec, SweepSpec

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_BENCHMARK: Final = "benchmark"


def _hint() -> str:
    """All keys, and a benchmark to begin with: the documentation may not be at hand."""
    return (
        f"there are {', '.join(sorted(_KEYS))}; such as: [[benchmark]] "
        'command = ["python", "train.py"], power_limit = "150:300:25"'
    )


def read(path: Path) -> list[SweepSpec]:
    """What each benchmark of the file asks for, in order; a UsageError with what is wrong."""
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "name a TOML file") from None
    except ValueError as error:  # of TOML, and of UTF-8
        raise UsageError(f"{path} is no TOML: {error}", _hint()) from None
    benchmarks = told.pop(_BENCHMARK, None)
    if benchmarks is None:
        return [_asked(path, "", {"name": path.stem, **told})]
    if not isinstance(benchmarks, list) or not all(isinstance(each, dict) for each in benchmarks):
        raise UsageError(f"{path}: {_BENCHMARK} is no list of tables", "write [[benchmark]]")
    if not benchmarks:
        raise UsageError(f"{path}: there is no benchmark", _hint())
    if "name" in told and len(benchmarks) > 1:
        raise UsageError(f"{path}: one name for all", "give each [[benchmark]] a name of its own")
    named = [
        {"name": f"{path.stem}-{n}", **_merged(told, each)} for n, each in enumerate(benchmarks, 1)
    ]
    every = [_asked(path, f"benchmark {n}: ", each) for n, each in enumerate(named, 1)]
    names = [asked.name for asked in every]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"{path}: two benchmarks are named {min(twice)}", "name each otherwise")
    return every


def _merged(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A benchmark's keys go before the common ones; so do those of its tables, each by itself."""
    merged = {**common, **own}
    for key, table in own.items():
        above = common.get(key)
        if isinstance(table, dict) and isinstance(above, dict):
            merged[key] = {**above, **table}
    return merged


def _asked(path: Path, where: str, told: Mapping[str, Any]) -> SweepSpec:
    fields: dict[str, Any] = {}
    for key, value in told.items():
        if key not in _KEYS:
            raise UsageError(
                f"{path}: {where}{key} is unknown", f"{did_you_mean(key, _KEYS)}{_hint()}"
            )
        rule = _KEYS[key]
        try:
            given = rule.read(value)
        except (TypeError, ValueError) as error:
            what = str(error) or rule.form
            raise UsageError(f"{path}: {where}{key} is not {what}", _hint()) from None
        if isinstance(given, dict):
            given = {**fields.get(rule.field, {}), **given}
        fields[rule.field] = given
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
    """Where a key's value goes, how it is read (an error where it is not), and its form."""

    field: str
    read: Callable[[Any], Any]
    form: str


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError
    return value


def _percent(value: Any) -> float:
    return _number(value) / 100


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_text(each) for each in (value if isinstance(value, list) else [value]))


def _wholes(value: Any) -> tuple[int, ...]:
    return tuple(_whole(each) for each in (value if isinstance(value, list) else [value]))


def _command(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        try:
            return tuple(shlex.split(value))
        except ValueError as error:
            raise ValueError(f"a command line: {error}") from None
    return tuple(_word(each) for each in _list(value))


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _word(value: Any) -> str:
    """A value as a program gets it."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else str(_number(value))


def _words(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise TypeError
    return {name: _word(each) for name, each in value.items()}


def _own_axes(value: Any) -> dict[str, str]:
    """Text is read as on the command line; what stands in a list is taken as it is."""
    if not isinstance(value, dict):
        raise TypeError
    return dict(_own_axis(name, each) for name, each in value.items())


def _own_axis(name: str, value: Any) -> tuple[str, str]:
    if name in KNOB_KEYS:
        raise ValueError(f"for knobs: write {KNOB_KEYS[name]} = … beside it, not {name} in it")
    return name, written(map(_word, value)) if isinstance(value, list) else _word(value)


def _knob_axis(knob: str) -> Callable[[Any], dict[str, str]]:
    def read(value: Any) -> dict[str, str]:
        items = value if isinstance(value, list) else [value]
        if any(isinstance(each, bool) for each in items):
            raise TypeError
        return {knob: ",".join(_word(each) for each in items)}

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
    for knob, key in KNOB_KEYS.items():
        yield key, _Rule("axes", _knob_axis(knob), "a range (as text), a number or a list of them")
    yield "set", _Rule("axes", _own_axes, "a table of names and their values")
    yield "reference", _Rule("reference", _words, "a table of names and values")
    yield "environment", _Rule("environ", _words, "a table of names and values")


_SIMULATED: Final = ("gpu", "workload", "like", "run_noise")
_KEYS: Final = dict(_rules())

"""The settings of a sweep and its reference, with everything checked before the first run.

Which points of a grid are meant: ``batch_size * accumulation == 256``.

A small part of Python's expressions, evaluated over the axes' values and nothing else: numbers,
words in quotes, names of axes, arithmetic, comparisons, ``and``, ``or`` and ``not``.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from joulewise.data.sweeps import CPU_LIMIT, KNOBS, MEM_CLOCK, POWER_LIMIT, SM_CLOCK, Setting, Value
from joulewise.errors import NotSupportedError, UsageError, did_you_mean
from joulewise.sweep.axes import LABELS, MOST, Axis, parse_clocks, parse_limits, parse_words
from joulewise.sweep.boards import TargetBoard, require_alike
from joulewise.sweep.spec import SweepSpec
from joulewise.sweep.validate import check, check_command, check_metrics

Number = float | str
_Evaluate = Callable[[Mapping[str, Number]], Any]

_LONGEST: Final = 1000
_HINT: Final = "compare axes with numbers, as in: batch_size * accumulation == 256"
_BINARY: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_UNARY: Final[Mapping[type[ast.unaryop], Callable[[Any], Any]]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
}
_COMPARE: Final[Mapping[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def constraint(text: str, axes: Collection[str]) -> Callable[[Mapping[str, Number]], bool]:
    """What tells whether a point is meant, from its values by the name of the axis."""
    if len(text) > _LONGEST:
        raise UsageError(f"{text[:80]!r}… is too long for a constraint", "make it several")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(f"{text[:80]!r} is no constraint", _HINT) from None
    if not isinstance(tree.body, ast.Compare | ast.BoolOp | ast.UnaryOp):
        raise UsageError(f"{text!r} compares nothing", _HINT)
    evaluate = _Compiler(text, axes).compile(tree.body)

    def holds(values: Mapping[str, Number]) -> bool:
        try:
            return bool(evaluate(values))
        except (TypeError, ArithmeticError) as error:
            at = ", ".join(f"{name} = {value!r}" for name, value in values.items())
            raise UsageError(f"{text!r} cannot be told at {at}: {error}", _HINT) from None

    return holds


class _Compiler:
    def __init__(self, text: str, axes: Collection[str]) -> None:
        self._text = text
        self._axes = axes

    def compile(self, node: ast.expr) -> _Evaluate:
        match node:
            case ast.Constant(value=bool()):
                pass
            case ast.Constant(value=int() | float() | str() as value):
                return lambda _: value
            case ast.Name(id=name):
                return self._name(name)
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                return self._unary(_UNARY[type(op)], operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return self._binary(_BINARY[type(op)], left, right)
            case ast.BoolOp(op=op, values=parts):
                return self._logical(all if isinstance(op, ast.And) else any, parts)
            case ast.Compare(left=left, ops=ops, comparators=rest):
                if all(type(op) in _COMPARE for op in ops):
                    return self._comparison([_COMPARE[type(op)] for op in ops], [left, *rest])
        part = ast.get_source_segment(self._text.strip(), node) or self._text
        raise UsageError(f"{part!r} cannot stand in a constraint", _HINT)

    def _name(self, name: str) -> _Evaluate:
        if name not in self._axes:
            raise UsageError(
                f"{self._text!r}: there is no axis {name}", f"there are {', '.join(self._axes)}"
            )
        return lambda values: values[name]

    def _unary(self, apply: Callable[[Any], Any], operand: ast.expr) -> _Evaluate:
        inner = self.compile(operand)
        return lambda values: apply(inner(values))

    def _binary(
        self, apply: Callable[[Any, Any], Any], left: ast.expr, right: ast.expr
    ) -> _Evaluate:
        one, other = self.compile(left), self.compile(right)
        return lambda values: apply(_number(one(values)), _number(other(values)))

    def _logical(self, decide: Callable[[Any], bool], parts: list[ast.expr]) -> _Evaluate:
        inner = [self.compile(part) for part in parts]
        return lambda values: decide(bool(part(values)) for part in inner)

    def _comparison(
        self, compares: list[Callable[[Any, Any], Any]], operands: list[ast.expr]
    ) -> _Evaluate:
        inner = [self.compile(operand) for operand in operands]

        def chain(values: Mapping[str, Number]) -> bool:
            told = [each(values) for each in inner]
            pairs = zip(compares, told, told[1:], strict=False)
            return all(compare(one, other) for compare, one, other in pairs)

        return chain


def _number(value: Number) -> float:
    """Arithmetic is of numbers: a word times a number would be a long word."""
    if isinstance(value, str):
        raise TypeError(f"{value!r} is no number")
    return value


@dataclass(frozen=True)
class Space:
    """The settings of a sweep in the order of the grid, and the reference.

    The reference need not be one of the settings. ``notes`` are for the user: values that were
    rounded or given twice.
    """

    settings: tuple[Setting, ...]
    reference: Setting
    boards: tuple[TargetBoard, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> tuple[TargetBoard, ...]:
        return tuple(board for board in self.boards if board.is_gpu)

    @property
    def board(self) -> TargetBoard | None:
        """The GPU, the first of several; None where there is none."""
        return self.gpus[0] if self.gpus else None

    @property
    def limits_w(self) -> tuple[float, float, float] | None:
        """The lowest, default and highest power limit of the GPU."""
        return self.board.limits_w if self.board else None

    @property
    def points(self) -> tuple[Setting, ...]:
        """The runs of one block: every setting, and the reference once."""
        if self.reference in self.settings:
            return self.settings
        return (self.reference, *self.settings)


def is_one_knob(points: Sequence[Setting]) -> bool:
    """Whether all points differ in one control only: a search then makes no probes."""
    differing = [name for name in points[0] if len({point[name] for point in points}) > 1]
    return len(differing) == 1 and differing[0] in KNOBS


def resolve(
    spec: SweepSpec, boards: Sequence[TargetBoard], environ: Mapping[str, str] | None = None
) -> Space:
    """Resolve the axes against the boards, and check everything that can be checked before a run.

    Raises:
        JoulewiseError: something in the spec is wrong, or more than ``MOST`` runs result.
    """
    check(spec)
    axes = [_axis(name, text, boards) for name, text in spec.axes.items()]
    settings = _grid(axes, spec, boards)
    reference = _reference(axes, spec, settings, boards)
    space = Space(
        settings, reference, tuple(boards), tuple(note for axis in axes for note in axis.notes)
    )
    check_metrics(spec, space.limits_w and space.limits_w[2])
    check_command(spec, space.points, os.environ if environ is None else environ)
    runs = len(space.points) * spec.repeat
    if runs > MOST:
        raise UsageError(f"the sweep has {runs:,} runs", f"at most {MOST:,}: use larger steps")
    return space


def _axis(name: str, text: str, boards: Sequence[TargetBoard]) -> Axis:
    if name not in KNOBS:
        return parse_words(name, text)
    label = LABELS[name]
    if name == CPU_LIMIT:
        packages = [board for board in boards if not board.is_gpu]
        if not packages:
            raise NotSupportedError(
                "no CPU reports the range of its power limit", "run `joulewise doctor`"
            )
        return parse_limits(
            name, text, require_alike(packages, label, lambda board: board.limits_w)
        )
    gpus = [board for board in boards if board.is_gpu]
    if not gpus:
        raise UsageError(f"there is no GPU to set the {label} of", "run `joulewise doctor`")
    if name == POWER_LIMIT:
        return parse_limits(name, text, require_alike(gpus, label, lambda board: board.limits_w))
    return parse_clocks(
        name, text, require_alike(gpus, label, lambda board: board.clocks_mhz(name))
    )


def _grid(
    axes: Sequence[Axis], spec: SweepSpec, boards: Sequence[TargetBoard]
) -> tuple[Setting, ...]:
    names = [axis.name for axis in axes]
    count = math.prod(len(axis.values) for axis in axes)
    if count > MOST:
        raise UsageError(f"the sweep has {count:,} settings", f"at most {MOST:,}: use larger steps")
    tests = [constraint(text, names) for text in spec.constraints]
    points = (
        dict(zip(names, values, strict=True))
        for values in itertools.product(*(axis.values for axis in axes))
    )
    if tests:
        highest = _unlocked(boards)
        points = (
            point
            for point in points
            if all(
                test({name: _plain(name, point[name], highest) for name in names}) for test in tests
            )
        )
    settings = tuple(Setting.of(point) for point in points)
    if not settings:
        raise UsageError(
            f"the constraints leave none of {count} settings", "loosen them, or add values"
        )
    return settings


def _plain(name: str, value: Value, highest: Mapping[str, float]) -> float | str:
    """A value as a constraint sees it: a number where it can be one."""
    if value is None:
        return highest.get(name, math.inf)
    try:
        number = float(value)
    except ValueError:
        return str(value)
    return number if math.isfinite(number) else str(value)


def _unlocked(boards: Sequence[TargetBoard]) -> dict[str, float]:
    """What a constraint takes an unlocked clock for: the highest that can be locked."""
    return {
        name: max((clock for board in boards for clock in board.clocks_mhz(name)), default=math.inf)
        for name in (SM_CLOCK, MEM_CLOCK)
    }


def _reference(
    axes: Sequence[Axis],
    spec: SweepSpec,
    settings: Sequence[Setting],
    boards: Sequence[TargetBoard],
) -> Setting:
    """The default limit, clocks unlocked, and the values that the user named.

    Other parameters of the command have the first values that the constraints allow together.
    """
    for name in spec.reference:
        if name in KNOBS:
            raise UsageError(
                f"the {LABELS[name]} of the reference is always the default", f"leave out {name}"
            )
        if name not in spec.axes:
            own = [axis.name for axis in axes if axis.name not in KNOBS]
            raise UsageError(
                f"--reference names {name}, which is not an axis",
                f"{did_you_mean(name, own)}there are {', '.join(own)}"
                if own
                else "it takes axes of --set",
            )
    named = dict(spec.reference)
    matching = [setting for setting in settings if named.items() <= setting.as_json().items()]
    first: Mapping[str, Value] = (matching[0] if matching else settings[0]).as_json()
    default_w = next((board.default_w for board in boards if board.is_gpu), None)
    knobs: dict[str, Value] = {name: default_w if name == POWER_LIMIT else None for name in KNOBS}
    return Setting.of({axis.name: {**first, **named, **knobs}[axis.name] for axis in axes})

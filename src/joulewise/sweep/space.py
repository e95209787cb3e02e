"""The settings of a sweep and its reference, with everything checked before the first run.

A `constraint` says which points of a grid are run: ``batch_size * accumulation == 256``. It is
evaluated by simpleeval, over the axes' values and nothing else.

A full grid has every setting the same number of times, in random order, with the reference.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
import os
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from joulewise.data.sweeps import (
    CONTROL_AXES,
    CPU_LIMIT,
    MEM_CLOCK,
    POWER_LIMIT,
    SM_CLOCK,
    WARM_UP,
    Planned,
    Setting,
    Trial,
    Value,
)
from joulewise.errors import NotSupportedError, UsageError, did_you_mean
from joulewise.sweep.axes import LABELS, MOST, Axis, parse_clocks, parse_limits, parse_words
from joulewise.sweep.boards import TargetBoard, require_alike
from joulewise.sweep.spec import SweepSpec
from joulewise.sweep.validate import check, check_command, check_metrics

Number = float | str

# Longer constraints take the parser's memory; nobody has one (chosen).
_MAX_CHARS: Final = 1000
_HINT: Final = "compare axes with numbers, as in: batch_size * accumulation == 256"
_ARITHMETIC: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
# What may stand in a constraint. simpleeval would allow more (calls, attributes, lists), and would
# find the rest only at the first point at which it is evaluated.
_ALLOWED: Final = (
    *(ast.Name, ast.Constant, ast.UAdd, ast.USub, ast.Not, ast.And, ast.Or, *_ARITHMETIC),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
)


def constraint(text: str, axes: Collection[str]) -> Callable[[Mapping[str, Number]], bool]:
    """A function that says whether a point, its values by the name of the axis, is allowed.

    ``text`` is an expression of numbers, words in quotes, names of axes, arithmetic, comparisons,
    ``and``, ``or`` and ``not``; all of it is checked here, before the first run.
    """
    from simpleeval import DEFAULT_OPERATORS, InvalidExpression, SimpleEval

    if len(text) > _MAX_CHARS:
        raise UsageError(f"{text[:80]!r}… is too long for a constraint", "make it several")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UsageError(f"{text[:80]!r} is no constraint", _HINT) from None
    if not isinstance(tree, ast.Compare | ast.BoolOp | ast.UnaryOp):
        raise UsageError(f"{text!r} compares nothing", _HINT)
    _check_constraint(text, tree, axes)
    arithmetic = {kind: _of_numbers(apply) for kind, apply in _ARITHMETIC.items()}
    evaluator = SimpleEval(operators={**DEFAULT_OPERATORS, **arithmetic}, functions={})

    def holds(values: Mapping[str, Number]) -> bool:
        evaluator.names = values
        try:
            return bool(evaluator.eval(text, previously_parsed=tree))
        except (TypeError, ArithmeticError, InvalidExpression) as error:
            at = ", ".join(f"{name} = {value!r}" for name, value in values.items())
            raise UsageError(f"{text!r} cannot be evaluated at {at}: {error}", _HINT) from None

    return holds


def _check_constraint(text: str, tree: ast.expr, axes: Collection[str]) -> None:
    """Raise a UsageError for a name that is no axis, and for the first part that is not allowed."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in axes:
            raise UsageError(
                f"{text!r}: there is no axis {node.id}", f"there are {', '.join(axes)}"
            )
        parts: list[Any] = [node]
        if isinstance(node, ast.Constant) and type(node.value) not in {int, float, str}:
            parts = [None]
        elif isinstance(node, ast.BinOp | ast.UnaryOp | ast.BoolOp):
            parts = [node.op]
        elif isinstance(node, ast.Compare):
            parts = list(node.ops)
        if isinstance(node, ast.expr) and not all(isinstance(part, _ALLOWED) for part in parts):
            part = ast.get_source_segment(text.strip(), node) or text
            raise UsageError(f"{part!r} cannot stand in a constraint", _HINT)


def _of_numbers(apply: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The same operator for numbers alone: a word times a number would be a long word."""

    def of_numbers(left: Number, right: Number) -> Any:
        for value in (left, right):
            if isinstance(value, str):
                raise TypeError(f"{value!r} is no number")
        return apply(left, right)

    return of_numbers


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


def resolve(
    spec: SweepSpec, boards: Sequence[TargetBoard], environ: Mapping[str, str] | None = None
) -> Space:
    """Resolve the axes against the boards, and check everything that can be checked before a run.

    Raises:
        JoulewiseError: something in the spec is wrong, or more than ``MOST`` runs result.
    """
    check(spec)
    axes = [_parse_axis(name, text, boards) for name, text in spec.axes.items()]
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


def _parse_axis(name: str, text: str, boards: Sequence[TargetBoard]) -> Axis:
    if name not in CONTROL_AXES:
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
        raise UsageError(f"there is no GPU whose {label} could be set", "run `joulewise doctor`")
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
        if name in CONTROL_AXES:
            raise UsageError(
                f"the {LABELS[name]} of the reference is always the default", f"leave out {name}"
            )
        if name not in spec.axes:
            own = [axis.name for axis in axes if axis.name not in CONTROL_AXES]
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
    controls: dict[str, Value] = {
        name: default_w if name == POWER_LIMIT else None for name in CONTROL_AXES
    }
    return Setting.of({axis.name: {**first, **named, **controls}[axis.name] for axis in axes})


class Grid:
    """A :class:`~joulewise.search.strategy.Strategy` that makes all runs of a space.

    Block ``b`` is one repetition of all settings in GPU slot ``b % slots``. Its order is random
    and follows from the seed and ``b`` alone (a randomised block design), so that a continued sweep
    has the same order. A slot that has runs left warms up first.
    """

    def __init__(self, space: Space, spec: SweepSpec, slots: int = 1) -> None:
        self._reference = space.reference
        self._warm_up = spec.warm_up
        self._slots = slots
        self._warmed: Counter[int] = Counter()
        self._queues: list[dict[tuple[Setting, int], Planned]] = [{} for _ in range(slots)]
        for block in range(spec.repeat):
            slot = block % slots
            for setting in order(space, spec, block):
                self._queues[slot][setting, block] = Planned(setting, block, slot)

    def ask(self, busy: Sequence[Planned]) -> Planned | None:
        taken = {planned.lane for planned in busy}
        under_way = {(planned.setting, planned.block) for planned in busy}
        for slot, queue in enumerate(self._queues):
            if slot in taken:
                continue
            planned = next((run for key, run in queue.items() if key not in under_way), None)
            if planned is None:
                continue
            if self._warmed[slot] < self._warm_up:
                return Planned(self._reference, WARM_UP, slot)
            return planned
        return None

    def tell(self, trial: Trial) -> None:
        if trial.block == WARM_UP:
            self._warmed[trial.lane] += 1
        else:
            self._queues[trial.block % self._slots].pop((trial.setting, trial.block), None)

    @property
    def left(self) -> int:
        """The exact number, with warm-up runs."""
        warming = (
            max(self._warm_up - self._warmed[slot], 0)
            for slot, queue in enumerate(self._queues)
            if queue
        )
        return sum(map(len, self._queues)) + sum(warming)

    @property
    def sure(self) -> Mapping[str, Any]:
        return {}


def order(space: Space, spec: SweepSpec, block: int) -> list[Setting]:
    """The settings of a block in the order of its runs.

    Where slow settings are to be skipped, the first block begins with the reference.
    """
    settings = list(space.points)
    random.Random(f"{spec.seed} {block}").shuffle(settings)  # noqa: S311  # no secret
    if block == 0 and spec.max_slowdown is not None:
        settings.remove(space.reference)
        settings.insert(0, space.reference)
    return settings

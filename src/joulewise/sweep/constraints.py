"""Which points of a grid are meant: ``batch_size * accumulation == 256``.

A small part of Python's expressions, evaluated over the axes' values and nothing else: numbers,
words in quotes, names of axes, arithmetic, comparisons, ``and``, ``or`` and ``not``.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from joulewise.errors import UsageError

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

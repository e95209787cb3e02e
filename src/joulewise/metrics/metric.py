"""The rules that rank pairs of energy and time; of every score less is better.

Others come from installed packages, by an entry point in the group ``joulewise.metrics``: its name
is the metric's, and it is a function that is given what stands after the colon (nothing: ``""``)
and returns a :class:`Metric`. What that argument cannot be, it raises as a ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from joulewise.errors import JoulewiseError, UsageError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "joulewise.metrics"

Array = Any
"""A number or a numpy array: this file does not need the library to name a rule."""

Rule = Callable[[Array, Array, "Reference"], Array]


@dataclass(frozen=True)
class Reference:
    """What is compared with: numbers, or arrays as long as what is scored.

    ``max_power_w`` is the highest limit of the board, times the GPUs that a run uses.
    """

    time_s: Array
    energy_j: Array
    max_power_w: float | None = None


@dataclass(frozen=True)
class Metric:
    """``name`` is canonical, and what files know it by; ``rule`` takes seconds and joules.

    With ``max_slowdown`` a time beyond so many times the reference's is out of the question.
    """

    name: str
    label: str
    unit: str
    rule: Rule = field(compare=False, repr=False)
    max_slowdown: float | None = None

    def score(self, time_s: Array, energy_j: Array, reference: Reference) -> Array:
        """As the rule has it, and infinite where the slowdown is too much."""
        import numpy as np

        scores = np.asarray(self.rule(time_s, energy_j, reference), dtype=float)
        if self.max_slowdown is None:
            return scores
        return np.where(time_s > self.max_slowdown * reference.time_s, np.inf, scores)


def parse(text: str) -> Metric:
    """The metric of that name, as ``edp``, ``eds:2.0``, ``cost:0.5``, ``slowdown:1.1``."""
    name, _, argument = (part.strip() for part in text.strip().lower().partition(":"))
    if name in _PLAIN:
        if argument:
            raise UsageError(f"{name} takes no argument, and {argument!r} was given", f"say {name}")
        return _PLAIN[name]
    try:
        if name in _WITH_NUMBER:
            return _WITH_NUMBER[name](_number(argument))
        others = _installed()
        if name in others:
            return _made_by(others[name], argument)
    except ValueError as error:
        raise UsageError(
            f"{text.strip()!r} is no metric: {error}", f"as in: {_examples()}"
        ) from None
    known = (*_PLAIN, *_WITH_NUMBER, *others)
    raise UsageError(
        f"no metric is called {text.strip()!r}",
        f"{did_you_mean(name, known)}there are: {_examples(others)}",
    )


def default_metrics() -> tuple[Metric, ...]:
    """The four by which published tables choose, and time, which every choice is paid with."""
    return tuple(map(parse, ("energy", "time", "edp", "eds:1.5", "eds:2.0")))


def _eds(k: float) -> Metric:
    if not k > 1:
        raise ValueError("the slowdown that free energy would be worth is more than 1")

    def rule(time_s: Array, energy_j: Array, reference: Reference) -> Array:
        energy, time = energy_j / reference.energy_j, time_s / reference.time_s
        return (k - 1) / k * energy + time / k

    return Metric(f"eds:{k!r}", f"EDS({k:g})", "", rule)


def _cost(eta: float) -> Metric:
    if not 0 <= eta <= 1:
        raise ValueError("the share that energy has of the cost is 0 to 1")

    def rule(time_s: Array, energy_j: Array, reference: Reference) -> Array:
        if reference.max_power_w is None:
            raise UsageError(
                f"cost:{eta!r} needs the highest power limit, which is not known here",
                "take a metric without it: energy, edp, eds:2.0",
            )
        return eta * energy_j + (1 - eta) * reference.max_power_w * time_s

    return Metric(f"cost:{eta!r}", f"cost({eta:g})", "J", rule)


def _slowdown(most: float) -> Metric:
    if not most >= 1:
        raise ValueError("the time that is allowed is at least 1 times the reference's")
    return Metric(f"slowdown:{most!r}", f"energy, time ≤ {most:g} t₀", "J", _energy, most)


def _energy(_time_s: Array, energy_j: Array, _reference: Reference) -> Array:
    return energy_j


_PLAIN: Final = {
    metric.name: metric
    for metric in (
        Metric("energy", "energy", "J", _energy),
        Metric("time", "time", "s", lambda time_s, _energy_j, _reference: time_s),
        Metric("edp", "EDP", "J s", lambda time_s, energy_j, _: energy_j * time_s),
        Metric("ed2p", "ED²P", "J s²", lambda time_s, energy_j, _: energy_j * time_s**2),
    )
}
_WITH_NUMBER: Final = {"eds": _eds, "cost": _cost, "slowdown": _slowdown}
_EXAMPLES: Final = (*_PLAIN, "eds:2.0", "cost:0.5", "slowdown:1.1")


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError("a number belongs behind the colon") from None
    if number in {float("inf"), -float("inf")}:
        raise ValueError("the number is to be finite")
    return number


def _installed() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # slow to load, for what few have

    return {point.name: point for point in entry_points(group=GROUP)}


def _made_by(point: EntryPoint, argument: str) -> Metric:
    try:
        made = point.load()(argument)
    except (ValueError, JoulewiseError):
        raise
    except Exception as error:
        raise JoulewiseError(
            f"the metric {point.name} ({point.value}) cannot be had: {error!r}",
            "ask whoever made that package, or take a metric of joulewise's own",
        ) from error
    if not isinstance(made, Metric):
        raise JoulewiseError(
            f"{point.value} made a {type(made).__name__}, no joulewise.metrics.metric.Metric",
            "ask whoever made that package, or take a metric of joulewise's own",
        )
    return made


def _examples(others: Iterable[str] = ()) -> str:
    return ", ".join((*_EXAMPLES, *others))

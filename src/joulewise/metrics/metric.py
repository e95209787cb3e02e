"""The rules that rank pairs of energy E and time t; of every score less is better.

================  =====================================================  =======================
``energy``        E
``time``          t
``edp``           E · t                                                  energy-delay product
``ed2p``          E · t²
``eds:k``         (k - 1)/k · E/E₀ + 1/k · t/t₀                          k: accepted slowdown, > 1
``cost:η``        η · E + (1 - η) · P_max · t                            Zeus' cost, η from 0 to 1
``slowdown:k``    E, if t ≤ k · t₀, else infinite
================  =====================================================  =======================

E₀ and t₀ are the reference's, P_max is the highest power limit of the GPUs.

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
    """Time and energy that others are compared with: numbers, or arrays as long as the scores.

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
        """The score by the rule; infinite where the slowdown is too much."""
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
            raise UsageError(f"{name} takes no argument, but has {argument!r}", f"write {name}")
        return _PLAIN[name]
    try:
        if name in _WITH_NUMBER:
            return _WITH_NUMBER[name](_number(argument))
        others = _installed()
        if name in others:
            return _load(others[name], argument)
    except ValueError as error:
        raise UsageError(
            f"{text.strip()!r} is not a valid metric: {error}", f"as in: {_examples()}"
        ) from None
    known = (*_PLAIN, *_WITH_NUMBER, *others)
    raise UsageError(
        f"there is no metric {text.strip()!r}",
        f"{did_you_mean(name, known)}the metrics are: {_examples(others)}",
    )


def default_metrics() -> tuple[Metric, ...]:
    """The four by which published tables choose, and time."""
    return tuple(map(parse, ("energy", "time", "edp", "eds:1.5", "eds:2.0")))


def _eds(k: float) -> Metric:
    if not k > 1:
        raise ValueError("the number after eds: must be above 1")

    def rule(time_s: Array, energy_j: Array, reference: Reference) -> Array:
        energy, time = energy_j / reference.energy_j, time_s / reference.time_s
        return (k - 1) / k * energy + time / k

    return Metric(f"eds:{k!r}", f"EDS({k:g})", "", rule)


def _cost(eta: float) -> Metric:
    if not 0 <= eta <= 1:
        raise ValueError("the share of energy in the cost must be between 0 and 1")

    def rule(time_s: Array, energy_j: Array, reference: Reference) -> Array:
        if reference.max_power_w is None:
            raise UsageError(
                f"cost:{eta!r} needs the highest power limit, which is not known here",
                "use a metric without it: energy, edp, eds:2.0",
            )
        return eta * energy_j + (1 - eta) * reference.max_power_w * time_s

    return Metric(f"cost:{eta!r}", f"cost({eta:g})", "J", rule)


def _slowdown(most: float) -> Metric:
    if not most >= 1:
        raise ValueError("the allowed slowdown must be at least 1")
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
        raise ValueError("a number must follow the colon") from None
    if number in {float("inf"), -float("inf")}:
        raise ValueError("the number must be finite")
    return number


def _installed() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # slow to load, for what few have

    return {point.name: point for point in entry_points(group=GROUP)}


def _load(point: EntryPoint, argument: str) -> Metric:
    try:
        metric = point.load()(argument)
    except (ValueError, JoulewiseError):
        raise
    except Exception as error:
        raise JoulewiseError(
            f"the metric {point.name} ({point.value}) cannot be loaded: {error!r}",
            "ask the authors of that package, or use a metric of joulewise's own",
        ) from error
    if not isinstance(metric, Metric):
        raise JoulewiseError(
            f"{point.value} returned {type(metric).__name__}, not joulewise.metrics.metric.Metric",
            "ask the authors of that package, or use a metric of joulewise's own",
        )
    return metric


def _examples(others: Iterable[str] = ()) -> str:
    return ", ".join((*_EXAMPLES, *others))

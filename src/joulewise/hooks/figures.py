"""Figures that a program logs (a loss, an accuracy), from values of any library to marks."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from .marks import Marks

# What frameworks log beside figures of the training's quality: its progress, its schedule, and
# speeds, which joulewise measures itself.
NOT_QUALITY = re.compile(
    r"(?:^|[\W_])(?:(?:lr|learning_rate)(?:[\W_]|$)|(?:epoch|step|runtime|per_second|flos)$)",
    re.IGNORECASE,
)

MOST_EPOCHS = 2**53  # integers that a float holds


def as_number(value: Any) -> float | None:
    """A value as a float: a number of Python, or one of numpy, torch or another library.

    None where it is not a single real number. An integer that is too large for a float is infinite.
    """
    try:
        if isinstance(value, (str, bytes, bytearray)):
            return None
        # torch warns at float() of a tensor with gradients, and numpy of an array of one element.
        item = getattr(value, "item", None)
        value = item() if callable(item) else value
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except Exception:  # noqa: BLE001 - whatever a library raises of what is not a number
        return None


def write_figures(
    targets: Iterable[Marks],
    figures: Mapping[Any, Any],
    epoch: Any = None,
    *,
    guessed: bool = False,
) -> None:
    """Write each figure that is a number; never raises. ``guessed`` as in :class:`Marks`."""
    try:
        named = [(str(name), as_number(value)) for name, value in figures.items()]
        number = as_number(epoch)
        is_known = number is not None and abs(number) < MOST_EPOCHS
        whole = int(number or 0) if is_known else None
        now_ns = time.monotonic_ns()
        for marks in targets:
            for name, value in named:
                if name.strip() and value is not None:
                    marks.figure(name, value, whole, now_ns, guessed=guessed)
    except Exception:  # noqa: BLE001 - an error in logging must not reach the program
        return


def select_quality(figures: Mapping[Any, Any]) -> dict[Any, Any]:
    """The figures of a framework's log without its progress, its schedule and its speed."""
    return {name: value for name, value in figures.items() if not NOT_QUALITY.search(str(name))}


def find_lightning_figures(trainer: Any) -> dict[str, Any]:
    """What was logged in the loop of Lightning that ends.

    At a validation those are its figures alone; ``trainer.callback_metrics``, where the loop's own
    are not known, has those of the training as well. A sanity check before the training has none.
    """
    if trainer.sanity_checking:
        return {}
    connector = getattr(trainer, "_logger_connector", None)
    metrics = getattr(connector, "metrics", None)
    return dict(trainer.callback_metrics if metrics is None else metrics["callback"])

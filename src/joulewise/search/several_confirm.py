"""The runs that confirm what a search along several axes chose: whole, fresh, and in pairs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from joulewise.data.sweeps import CONFIRMING, Planned, Setting, Trial, TrialState
from joulewise.metrics.amounts import amount
from joulewise.metrics.boundary import Line
from joulewise.metrics.view import View
from joulewise.search.adaptive_confirm import Pair, saving, slowdown

PAIRS: Final = 3
_SPARE: Final = 2  # pairs that may be lost to runs that fail

Told = Mapping[tuple[Setting, int, float | None], Trial]


def unconfirmed(
    chosen: Sequence[Setting], reference: Setting, told: Told, *, lanes: int, seed: int
) -> Iterator[Planned]:
    """Runs of pairs that are missing; a pair one run of which failed is made anew."""
    together = [reference, *(setting for setting in chosen if setting != reference)]
    if len(together) == 1:
        return
    whole = 0
    for number in range(PAIRS + _SPARE):
        if whole >= PAIRS:
            return
        block = CONFIRMING + number
        done = [told.get((setting, block, None)) for setting in together]
        if any(it and it.state is not TrialState.DONE for it in done):
            continue
        whole += 1
        order = random.Random(f"{seed} {block}")  # noqa: S311  # no secret
        for setting in order.sample(together, len(together)):
            if (setting, block, None) not in told:
                yield Planned(setting, block, number % lanes)


def confirmed(chosen: Setting, reference: Setting, told: Told, view: View) -> dict[str, Any]:
    """What the pairs say that the choice saves and costs."""
    pairs = list(_pairs(chosen, reference, told, view)) if chosen != reference else []
    return {"saving": saving(pairs), "slowdown": slowdown(pairs)}


def _pairs(chosen: Setting, reference: Setting, told: Told, view: View) -> Iterator[Pair]:
    counted = [
        (trial, found)
        for trial in told.values()
        if trial.block >= CONFIRMING and trial.state is TrialState.DONE
        if (found := amount(trial, view))
    ]
    line = Line.around(counted, view)
    figures = {}
    for trial, found in counted:
        energy = dict(line.energies(found)).get(view.boundary)
        if energy is not None and energy.value > 0 and found.time_s > 0:
            figures[trial.setting, trial.block, trial.gpu] = found.time_s, energy.value
    for (setting, block, gpu), its in figures.items():
        other = figures.get((reference, block, gpu))
        if setting == chosen and other:
            yield Pair(*its, *other)

"""Many spans in few figures: counts, means and quantiles by name, and the steps of each epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from joulewise.hooks.marks import NONE
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from joulewise.record.marks import SpanTable

Figures = dict[str, "float | None"]


def by_name(spans: SpanTable, energy_j: NDArray[np.float64]) -> dict[str, dict[str, Any]]:
    """Each name's spans, in the order in which the names first appear."""
    told = {}
    codes, first = np.unique(spans.name, return_index=True)
    for code in codes[np.argsort(first)].tolist():
        chosen = spans.name == code
        mine = spans.where(chosen)
        announced = mine.total.max()
        told[spans.names[code]] = {
            "count": len(mine),
            "announced": None if announced == NONE else int(announced),
            "unfinished": int((~mine.closed).sum()),
            **_figures(mine, energy_j[chosen]),
        }
    return told


def steps_by_epoch(spans: SpanTable, energy_j: NDArray[np.float64]) -> list[dict[str, Any]]:
    """The steps of each epoch; those of no epoch stand under a null index."""
    epochs, steps = spans.named("epoch"), spans.named("step")
    if not len(steps):
        return []
    middle_ns = (steps.start_ns + steps.end_ns) // 2
    owner = np.searchsorted(epochs.start_ns, middle_ns, side="right") - 1
    if len(epochs):
        owner[middle_ns > epochs.end_ns[owner]] = -1
    order = np.argsort(owner, kind="stable")
    owners, first = np.unique(owner[order], return_index=True)
    energy_j = energy_j[np.isin(spans.name, steps.name[:1])]
    return [
        {
            "epoch": None if epoch < 0 or epochs.index[epoch] == NONE else int(epochs.index[epoch]),
            "count": len(mine),
            **_figures(steps.where(mine), energy_j[mine]),
        }
        for epoch, mine in zip(owners.tolist(), np.split(order, first[1:]), strict=True)
    ]


def figures(values: NDArray[np.float64]) -> Figures:
    """Mean, standard deviation and quantiles of those values that there are."""
    values = values[np.isfinite(values)]
    if not len(values):
        return dict.fromkeys(("mean", "std", "min", "median", "p95", "max"))
    low, median, high, top = np.quantile(values, [0, 0.5, 0.95, 1]).tolist()
    deviation = float(values.std(ddof=1)) if len(values) > 1 else None
    return {
        "mean": float(values.mean()),
        "std": deviation,
        "min": low,
        "median": median,
        "p95": high,
        "max": top,
    }


def _figures(spans: SpanTable, energy_j: NDArray[np.float64]) -> dict[str, Figures]:
    times_s = (spans.end_ns - spans.start_ns) / NS_PER_S
    return {"time_s": figures(times_s), "energy_j": figures(energy_j)}

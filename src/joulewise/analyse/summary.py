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


def names_in_order(spans: SpanTable) -> NDArray[np.int64]:
    """The codes of the names, as they first appear."""
    codes, first = np.unique(spans.name, return_index=True)
    return np.asarray(codes[np.argsort(first)])


def by_name(
    spans: SpanTable,
    seen: SpanTable,
    energy_j: NDArray[np.float64],
    codes: NDArray[np.int64],
) -> dict[str, dict[str, Any]]:
    """Each of these names' spans.

    Energies are of those in ``seen``, counts and times of all. A span that was cut off is none of
    its kind: it counts as unfinished and is in no figure.
    """
    told = {}
    closed = np.flatnonzero(seen.closed)
    energies = _by_code(seen.name[closed], codes)
    for code, positions, measured in zip(
        codes.tolist(), _by_code(spans.name, codes), energies, strict=True
    ):
        mine = spans.where(positions)
        announced = mine.total.max()
        told[spans.names[code]] = {
            "count": int(mine.closed.sum()),
            "announced": None if announced == NONE else int(announced),
            "unfinished": int((~mine.closed).sum()),
            "time_s": figures(_times_s(mine)[mine.closed]),
            "energy_j": figures(energy_j[closed[measured]]),
        }
    return told


def _by_code(names: NDArray[np.int64], codes: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    """The positions of each code, found by one sort however many there are."""
    order = np.argsort(names, kind="stable")
    first = np.searchsorted(names[order], codes)
    end = np.searchsorted(names[order], codes, side="right")
    return [order[a:b] for a, b in zip(first.tolist(), end.tolist(), strict=True)]


def steps_by_epoch(
    spans: SpanTable, seen: SpanTable, energy_j: NDArray[np.float64]
) -> list[dict[str, Any]]:
    """The steps of each epoch; those of no epoch stand under a null index."""
    epochs, steps = spans.named("epoch"), spans.where(spans.closed).named("step")
    seen, energy_j = seen.where(seen.closed), energy_j[seen.closed]
    times_s = _times_s(steps)
    all_by_epoch = _by_epoch(steps, epochs)
    is_step = seen.is_named("step")
    step_j, some_by_epoch = energy_j[is_step], _by_epoch(seen.where(is_step), epochs)
    return [
        {
            "epoch": None if epoch < 0 or epochs.index[epoch] == NONE else int(epochs.index[epoch]),
            "count": len(mine),
            "time_s": figures(times_s[mine]),
            "energy_j": figures(step_j[some_by_epoch.get(epoch, [])]),
        }
        for epoch, mine in all_by_epoch.items()
    ]


def figures(values: NDArray[np.float64]) -> Figures:
    """Mean, standard deviation and quantiles of those values that there are."""
    values = values[np.isfinite(values)]
    if not len(values):
        return dict.fromkeys(("mean", "std", "min", "median", "p95", "max"))
    values = np.sort(values)
    # numpy's own quantiles cost more than all the rest where values are few.
    last = len(values) - 1
    median, high = np.interp([0.5 * last, 0.95 * last], np.arange(last + 1), values).tolist()
    deviation = float(values.std(ddof=1)) if len(values) > 1 else None
    return {
        "mean": float(values.mean()),
        "std": deviation,
        "min": float(values[0]),
        "median": median,
        "p95": high,
        "max": float(values[-1]),
    }


def _times_s(spans: SpanTable) -> NDArray[np.float64]:
    return np.asarray((spans.end_ns - spans.start_ns) / NS_PER_S)


def _by_epoch(steps: SpanTable, epochs: SpanTable) -> dict[int, NDArray[np.intp]]:
    """The positions of each epoch's steps, by that of the epoch; -1 is none."""
    if not len(steps):
        return {}
    middle_ns = (steps.start_ns + steps.end_ns) // 2
    owner = np.searchsorted(epochs.start_ns, middle_ns, side="right") - 1
    if len(epochs):
        owner[middle_ns > epochs.end_ns[owner]] = -1
    order = np.argsort(owner, kind="stable")
    owners, first = np.unique(owner[order], return_index=True)
    return dict(zip(owners.tolist(), np.split(order, first[1:]), strict=True))

"""Where a run stands while it is recorded: joules so far, the outlook, the budgets.

``live.json`` tells it to whoever looks from outside::

    {"t_ns": …, "time_s": 42.0,
     "energy_j": {"total": {"value", "error", "error_sampling", "error_gain", "source", "at_least"},
                  "gpu0": …},
     "counted": ["gpu0", …],
     "epochs": {"done": 3, "total": 10, "training": 0},
     "outlook": {"time_s": {"value", "low", "high"}, "energy_j": {…}, "gco2": {…}, "price": {…}}}

The epochs are those of the training under way, counted from 0; of all trainings where the user gave
their number. An energy that could not be read is null; an outlook that cannot be told yet is
``{"reason", "fix"}``. The file is replaced as a whole, every second where there is a budget, else
every five, however often budgets are looked at.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from joulewise.data import Energy, Span, Unavailable, total
from joulewise.data.contract import TOTAL, energy_json, finite
from joulewise.record.layout import LIVE
from joulewise.session.budget import Budget, BudgetWatch, Event
from joulewise.session.meters import Draw
from joulewise.session.outlook import Forecast, Outlook, as_json
from joulewise.units import NS_PER_S

# A little less than the second between two looks, so that each of these is told.
_TELL_NS: Final = round(0.9 * NS_PER_S)


class Progress:
    """Follows one run from the start of its command."""

    def __init__(
        self,
        run: Path,
        start_ns: int,
        *,
        budgets: Sequence[Budget] = (),
        epochs: int | None = None,
        per_kwh: Mapping[str, float] | None = None,
    ) -> None:
        self._run = run
        self._start_ns = start_ns
        self._course = Forecast(start_ns, epochs=epochs, per_kwh=per_kwh)
        self._watch = BudgetWatch(budgets)
        self._told_ns = -NS_PER_S

    def look(
        self,
        now_ns: int,
        energy_j: Mapping[str, Energy | None],
        counted: Collection[str],
        spans: Iterable[Span] = (),
        *,
        draw: Draw | None = None,
        ended: bool = False,
    ) -> list[Event]:
        """Take in what is new, write ``live.json``, and tell what became of the budgets.

        ``energy_j`` is what each device drew from the start until it was last read; ``counted`` are
        those that the command has touched so far, and ``draw`` what they used up to now.
        """
        whole = total(energy for key, energy in energy_j.items() if key in counted)
        self._course.spans(spans)
        if whole is not None:
            self._course.energy(now_ns, whole.value)
        gain_error = whole.error_gain / whole.value if whole and whole.value > 0 else 0.0
        outlook = self._course.outlook(now_ns, gain_error)
        time_s = (now_ns - self._start_ns) / NS_PER_S
        if now_ns - self._told_ns >= _TELL_NS:
            self._told_ns = now_ns
            self._tell(now_ns, energy_j, counted, whole, outlook=outlook)
        measured_j = whole.value if whole else None
        return self._watch.look(
            time_s=time_s,
            energy_j=draw.energy_j if draw else measured_j,
            outlook=None if isinstance(outlook, Unavailable) else outlook,
            ended=ended,
        )

    def seconds_left(self, draw: Draw | None) -> float | None:
        """After how long a budget may be used up at the earliest; None where none can be."""
        return self._watch.seconds_left(draw.energy_j, draw.most_w) if draw else None

    def _tell(
        self,
        now_ns: int,
        energy_j: Mapping[str, Energy | None],
        counted: Collection[str],
        whole: Energy | None,
        *,
        outlook: Outlook | Unavailable,
    ) -> None:
        content = {
            "t_ns": now_ns,
            "time_s": (now_ns - self._start_ns) / NS_PER_S,
            "energy_j": {
                TOTAL: energy_json(whole),
                **{key: energy_json(energy) for key, energy in energy_j.items()},
            },
            "counted": sorted(counted),
            "epochs": self._course.epochs,
            "outlook": _outlook_json(outlook, whole),
        }
        _write(self._run / LIVE, content)

    def heard(self, message: Mapping[str, Any]) -> Event | None:
        """What the starting process found out about a budget by itself, if it is new."""
        return self._watch.heard(message)


def _outlook_json(outlook: Outlook | Unavailable, so_far: Energy | None) -> dict[str, Any]:
    """With ``at_least`` where the energy so far is a lower bound: so is what follows from it."""
    told = as_json(outlook)
    if so_far is not None and so_far.at_least and told.get("energy_j"):
        told["energy_j"] = {**told["energy_j"], "at_least": True}
    return told


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """A disk that is full costs the view, not the run."""
    new = path.with_name(f".{path.name}.part")
    try:
        new.write_text(json.dumps(finite(content)), encoding="utf-8")
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)

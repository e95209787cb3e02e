"""What a run that goes on will take, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from joulewise.report.figures import amount, between, joules, plain, seconds


def outlook(told: Mapping[str, Any] | None) -> Iterator[str]:
    """Epochs, time and energy in one line, costs in others; or why that cannot be told."""
    if not told:
        return
    done, of = told["epochs"]["done"], told["epochs"]["total"]
    epochs = f"epoch {done} of {of} is done" if of is not None else f"{done} epochs are done"
    training = told["epochs"].get("training", 0)
    if training:  # nobody knows whether it is the last one
        epochs = f"training {training + 1}, {epochs}"
    at_s = told.get("at_s")
    title = "outlook" if at_s is None else f"outlook at {seconds(at_s)}"
    whole = "up to the end of this training the run" if training else "the whole run"
    if "reason" in told:
        fix = f" ({told['fix']})" if told["fix"] else ""
        yield plain(f"{title}: {epochs}; none yet, {told['reason']}{fix}")
        return
    time_s, energy_j = told["time_s"], told["energy_j"]
    takes = f"{seconds(time_s['value'])} ({between(time_s['low'], time_s['high'], 's')})"
    is_bound = bool(energy_j and energy_j.get("at_least"))
    if is_bound:
        takes += f" and at least {joules(energy_j['low'])}"
    elif energy_j:
        within = between(energy_j["low"], energy_j["high"], "J")
        takes += f" and {joules(energy_j['value'])} ({within})"
    yield f"{title}: {epochs}; {whole} takes {takes}"
    for name, label, unit in (("price", "cost", ""), ("gco2", "emitted", " g CO₂")):
        if cost := told.get(name):
            value, low, high = (amount(cost[part]) for part in ("value", "low", "high"))
            if is_bound:
                yield f"outlook: {label} at least {low}{unit}"
                continue
            yield f"outlook: {label} {value}{unit} ({low}-{high})"

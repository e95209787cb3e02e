"""What the figures of a sweep say in one line."""

from __future__ import annotations

from joulewise.data.sweeps import POWER_LIMIT, Setting
from joulewise.metrics.result import Choice, Interval, Verdict
from joulewise.metrics.rules import parse
from joulewise.report.charts.sweep_source import Swept, varied
from joulewise.report.sweep_words import setting_words


def finding(seen: Swept) -> str:
    """The choice of the first metric that weighs time against energy, else of the first."""
    reference = setting_words(seen.result.reference.setting)
    bound = {point.binds for point in seen.known}
    if False in bound and True not in bound and varied(seen.known) == [POWER_LIMIT]:
        return f"The limit never binds: what differs from {reference} is noise"
    if not seen.choices:
        return f"Nothing that was tried beats {reference}"
    choice = next((it for it in seen.choices if it.metric != "energy"), seen.choices[0])
    return least(choice, reference)


def least(choice: Choice, reference: str) -> str:
    """Where its metric is least, what that costs, and whether it is more than noise."""
    label = parse(choice.metric).label
    said = f"{label[0].upper()}{label[1:]} is least at {setting_words(choice.setting)}"
    if choice.verdict is Verdict.NOISE:
        return f"{said}, but no further below {reference} than noise may take it"
    unsure = " (too few runs to be sure)" if choice.verdict is Verdict.UNKNOWN else ""
    costs = " and ".join(filter(None, (_more(choice.energy, "energy"), _more(choice.time, "time"))))
    return f"{said}: {costs} than {reference}{unsure}" if costs else f"{said}{unsure}"


def place(where: Setting) -> str:
    """Of what is held at one value; nothing where nothing is."""
    return setting_words(where) if where.values else ""


def at(where: Setting) -> str:
    """The same for the end of a title."""
    return f" ({place(where)})" if where.values else ""


def _more(ratio: Interval | None, what: str) -> str:
    if ratio is None:
        return ""
    return f"{100 * abs(ratio.mean - 1):.1f} % {'less' if ratio.mean < 1 else 'more'} {what}"

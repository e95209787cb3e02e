"""Files of a run that are damaged: what they held is in no figure."""

from __future__ import annotations

from joulewise.analyse.damage import HINT, SoundLanes
from joulewise.report.figures import plain
from joulewise.report.meant import MeantRuns
from joulewise.report.page.page import Notice


def cut_off(found: MeantRuns) -> tuple[Notice, ...]:
    """Damaged files that the result does not tell of, which may be older than the damage.

    Not of a run in progress, whose last batch may be half written.
    """
    told = {each.message for member in found.members for each in member.result.warnings}
    ended = (
        (run, member.manifest)
        for run, member in zip(found.runs, found.members, strict=True)
        if member.manifest.state != "recording"
    )
    return tuple(
        Notice(plain(f"{run.name}: {damage.message}; figures lack what is lost"), HINT)
        for run, manifest in ended
        for damage in SoundLanes(run, manifest).find_damage()
        if damage.warning.message not in told
    )

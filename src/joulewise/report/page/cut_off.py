"""Files of a run that are damaged, or have values that cannot be: these are in no figure."""

from __future__ import annotations

from joulewise.analyse.damage import HINT, SoundLanes
from joulewise.report.figures import plain
from joulewise.report.meant import MeantRuns
from joulewise.report.page.page import Notice


def cut_off(found: MeantRuns) -> tuple[Notice, ...]:
    """Damaged files and implausible readings that the result, which may be older, does not tell of.

    Not of a run in progress, whose last batch may be half written.
    """
    told = {each.message for member in found.members for each in member.result.warnings}
    ended = (
        (run, member.manifest)
        for run, member in zip(found.runs, found.members, strict=True)
        if member.manifest.state != "recording"
    )
    notices = []
    for run, manifest in ended:
        sound = SoundLanes(run, manifest)
        notices += [
            Notice(plain(f"{run.name}: {each.message}; figures lack what is lost"), HINT)
            for each in sound.find_damage()
            if each.warning.message not in told
        ]
        notices += [
            Notice(plain(f"{run.name}: {each.message}"), each.hint)
            for each in (one.warning for one in sound.find_implausible())
            if each.message not in told
        ]
    return tuple(notices)

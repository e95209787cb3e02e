"""Files of a run that are damaged: what they held is in no figure."""

from __future__ import annotations

from pathlib import Path

from joulewise.analyse.damage import SoundLanes
from joulewise.data import RunWarning
from joulewise.record.manifest import Manifest
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
        Notice(plain(f"{run.name}: {warning.message}"), plain(warning.hint))
        for run, manifest in ended
        for warning in _warnings(run, manifest)
        if warning.message not in told
    )


def _warnings(run: Path, manifest: Manifest) -> list[RunWarning]:
    return [damage.warning for damage in SoundLanes(run, manifest).find_damage()]

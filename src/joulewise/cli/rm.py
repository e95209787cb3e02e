"""``joulewise rm``: deletes runs."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from joulewise.cli.output import pass_store
from joulewise.errors import JoulewiseError, UsageError
from joulewise.store.layout import (
    CHECKSUM_LOG,
    CHECKSUMS,
    LIVE,
    MANIFEST,
    MARKS,
    MISSES,
    PROCESSES,
    RESERVE,
    RESULT,
    TRACE,
    TUNING,
    TUNING_RESERVE,
)

# The names of all that a run directory may contain.
_FILES = {
    *(MANIFEST, RESULT, TRACE, MARKS, PROCESSES, MISSES, LIVE, TUNING, RESERVE),
    *(TUNING_RESERVE, CHECKSUMS, CHECKSUM_LOG),
}


@click.command()
@click.option("--yes", is_flag=True, help="Delete without asking.")
@click.argument("which", nargs=-1, required=True, metavar="RUN...")
@pass_store
def command(store: Path, which: tuple[str, ...], *, yes: bool) -> None:
    """Delete runs permanently.

    RUN is an id, the beginning of one, a name, or `last`. A run that is being recorded is not
    deleted, nor is a folder that is not a run.
    """
    from joulewise.store.runs import find, remove

    runs = list(dict.fromkeys(find(store, one) for one in which))
    for run in runs:  # all or none: every run is checked before the first is deleted
        _check_deletable(run)
    names = ", ".join(run.name for run in runs)
    if not yes:
        if not sys.stdin.isatty():
            raise UsageError(f"deleting {names} needs a confirmation", "add --yes")
        click.confirm(f"Delete {names} permanently?", abort=True, err=True)
    for run in runs:
        remove(run)
    click.echo(f"deleted {names}", err=True)


def _check_deletable(run: Path) -> None:
    """Raise where a folder is being recorded, is a link, or is not a run."""
    from joulewise.store.manifest import read_manifest
    from joulewise.store.runs import RECORDING, check_is_no_link, status

    check_is_no_link(run)
    try:
        manifest = read_manifest(run)
    except JoulewiseError as error:
        foreign = sorted(path.name for path in run.iterdir() if path.name not in _FILES)
        if foreign:
            raise UsageError(
                f"{run} is not a run, or damaged: {error.message}, and it contains {foreign[0]}",
                "if it can be deleted, use rm -r",
            ) from None
        return
    if status(manifest) == RECORDING:
        raise UsageError(f"{run.name} is being recorded", "wait until its command has ended")

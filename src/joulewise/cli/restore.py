"""``joulewise restore``: puts back what an earlier joulewise left set."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.output import STDOUT, console, json_option, write_json
from joulewise.errors import DeviceError, JoulewiseError, PermissionDeniedError

if TYPE_CHECKING:
    from joulewise.control.restore import Recovered
    from joulewise.control.status import Standing

EPILOG = """\b
Examples:
  joulewise restore
  joulewise restore --epilog   # in a scheduler's epilog, as root
"""
_PATIENCE_S = 10.0


@click.command(epilog=EPILOG)
@click.option(
    "--epilog",
    is_flag=True,
    help="For the end of a scheduler's job: quiet unless something was done. That it is installed "
    "is noted, and from then on knobs may be turned in jobs on this node.",
)
@json_option
def command(json_path: str | None, *, epilog: bool) -> None:
    """Put back power limits and clocks that a killed joulewise left set.

    What a living process holds stays: that goes back by itself when it ends. The exit status is 0
    if nothing is left, and 125 if something could not be put back.
    """
    from joulewise.control.journal import list_untrusted
    from joulewise.control.restore import Recovered
    from joulewise.control.status import Keeper, await_restored, standing
    from joulewise.process.state_dir import may_put_back, state_folder, state_folders

    state = state_folder(os.environ)
    if epilog:
        _leave_stamp(state)
    is_settled = await_restored(state, _PATIENCE_S)
    recovered = _recover(state)
    held = [each for each in standing(state) if each.keeper in {Keeper.HOLDER, Keeper.GUARDIAN}]
    not_ours = {
        each: folder
        for folder in state_folders(os.environ)
        if not may_put_back(folder)
        for each in standing(folder)
        if each.keeper is Keeper.NOBODY
    }
    distrusted = list_untrusted(state) if may_put_back(state) else []
    if json_path != STDOUT and (recovered != Recovered() or not (epilog or distrusted)):
        from joulewise.report.terminal.leases import draw_restored

        draw_restored(recovered, held, list(not_ours), console())
    if json_path:  # last: where it cannot be written, what was done is told all the same
        write_json(_as_json(recovered, held, list(not_ours)), json_path)
    if recovered.failed:
        raise _failure(recovered)
    if recovered.unread:
        raise JoulewiseError(
            f"a journal in {state} is damaged: what it told of may still be set",
            "compare the limits of `nvidia-smi -q -d POWER,CLOCK` with what they should be",
        )
    if recovered.unclaimed:
        raise JoulewiseError(
            f"another process keeps {', '.join(map(str, recovered.unclaimed))} to itself",
            "what it tells of is still set: run this again when that process has ended",
        )
    if not is_settled:
        raise DeviceError(
            f"a guardian has not put everything back within {_PATIENCE_S:g} s of its holder's end",
            "see what `joulewise doctor` says of the device, then run this again",
        )
    if not_ours:
        raise _not_ours(next(iter(not_ours.values())))
    if distrusted:
        raise _not_trusted(distrusted[0])


def _leave_stamp(state: Path) -> None:
    from joulewise.control.permissions import EPILOG as STAMP
    from joulewise.process.state_dir import made

    try:
        (made(state) / STAMP).touch()
    except OSError as error:
        raise PermissionDeniedError(
            f"cannot write in {state}: {error.strerror}", "have the epilog run as root"
        ) from None


def _recover(state: Path) -> Recovered:
    from joulewise.control.deadline_device import every_device
    from joulewise.control.messages import open_log
    from joulewise.control.restore import Recovered, recover
    from joulewise.process.state_dir import has_leftover, may_put_back

    if not (has_leftover(state) and may_put_back(state)):
        return Recovered()
    return recover(state, lambda: every_device(os.environ), open_log(state, "restore"))


def _not_ours(state: Path) -> PermissionDeniedError:
    from joulewise.report.views.leases import restore_command

    what = f"what is left set is noted in {state}, and only root may put it back"
    return PermissionDeniedError(what, f"run: {restore_command(state)}")


def _not_trusted(path: Path) -> PermissionDeniedError:
    from joulewise.control.messages import user

    what = f"{path} may be anybody's work: it is not undone, and what it tells of may still be set"
    owner = user(path.lstat().st_uid)
    return PermissionDeniedError(what, f"have user {owner} run `joulewise restore`, or remove it")


def _failure(recovered: Recovered) -> DeviceError:
    from joulewise.control.messages import said

    what = "; ".join(said(each.outcome) for each in recovered.failed)
    return DeviceError(what, "see what `joulewise doctor` says of it, then run this again")


def _as_json(
    recovered: Recovered, held: list[Standing], not_ours: list[Standing]
) -> dict[str, Any]:
    from joulewise.report.views.leases import standing_json, undone_json

    return {
        "undone": [undone_json(each) for each in recovered.undone],
        "held": [standing_json(each) for each in held],
        "left": [standing_json(each) for each in not_ours],
        "undone_by_reboot": recovered.rebooted,
        "unread": [str(path) for path in recovered.unread],
        "unclaimed": [str(path) for path in recovered.unclaimed],
        "warnings": list(recovered.unremoved),
    }

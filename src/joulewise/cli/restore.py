"""``joulewise restore``: puts back settings that a killed joulewise left changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from joulewise.cli.output import STDOUT, console, json_option, write_json
from joulewise.errors import DeviceError, JoulewiseError, PermissionDeniedError

if TYPE_CHECKING:
    from joulewise.control.restore import RecoveryReport
    from joulewise.control.status import HeldSetting

EPILOG = """\b
Examples:
  joulewise restore
  joulewise restore --epilog   # in a scheduler's epilog, as root
"""
_WAIT_S = 10.0  # chosen, for guardians that are restoring; doubled, a hung one is waited for longer


@click.command(epilog=EPILOG)
@click.option(
    "--epilog",
    is_flag=True,
    help="For a scheduler's epilog: print nothing unless something was done, and record that the "
    "epilog is installed, which allows the jobs on this node to change settings.",
)
@json_option
def command(json_path: str | None, *, epilog: bool) -> None:
    """Put back power limits and clocks that a killed joulewise left changed.

    Settings that a running process holds are kept: they go back when it ends. The exit status is 0
    if nothing is left, and 125 if something could not be put back.
    """
    from joulewise.control.journal import list_untrusted
    from joulewise.control.restore import RecoveryReport
    from joulewise.control.status import Restorer, await_restored, list_held_settings
    from joulewise.process.state_dir import may_restore, state_folder, state_folders

    state = state_folder(os.environ)
    if epilog:
        _note_epilog(state)
    is_restored = await_restored(state, _WAIT_S)
    recovered = _recover(state)
    held = [
        each
        for each in list_held_settings(state)
        if each.keeper in {Restorer.HOLDER, Restorer.GUARDIAN}
    ]
    not_ours = {
        each: folder
        for folder in state_folders(os.environ)
        if not may_restore(folder)
        for each in list_held_settings(folder)
        if each.keeper is Restorer.NOBODY
    }
    untrusted_paths = list_untrusted(state) if may_restore(state) else []
    if json_path != STDOUT and (recovered != RecoveryReport() or not (epilog or untrusted_paths)):
        from joulewise.report.terminal.leases import draw_restored

        draw_restored(recovered, held, list(not_ours), console())
    if json_path:  # last: where it cannot be written, what was done is told all the same
        write_json(_as_json(recovered, held, list(not_ours)), json_path)
    if recovered.failed:
        raise _restore_error(recovered)
    if recovered.unread:
        raise JoulewiseError(
            f"a journal in {state} is damaged: its settings may still be changed",
            "compare the output of `nvidia-smi -q -d POWER,CLOCK` with the values you expect",
        )
    if recovered.unclaimed:
        raise JoulewiseError(
            f"another process has locked {', '.join(map(str, recovered.unclaimed))}",
            "its settings are still changed: run this again when that process has ended",
        )
    if not is_restored:
        raise DeviceError(
            f"a guardian has not put everything back within {_WAIT_S:g} s of its holder's end",
            "run `joulewise doctor` to see why, then run this again",
        )
    if not_ours:
        raise _not_permitted_error(next(iter(not_ours.values())))
    if untrusted_paths:
        raise _untrusted_error(untrusted_paths[0])


def _note_epilog(state: Path) -> None:
    from joulewise.control.permissions import EPILOG as STAMP
    from joulewise.process.state_dir import make_state_folder

    try:
        (make_state_folder(state) / STAMP).touch()
    except OSError as error:
        raise PermissionDeniedError(
            f"cannot write to {state}: {error.strerror}", "run the epilog as root"
        ) from None


def _recover(state: Path) -> RecoveryReport:
    from joulewise.control.deadline_device import open_all_devices
    from joulewise.control.messages import open_log
    from joulewise.control.restore import RecoveryReport, recover
    from joulewise.process.state_dir import has_leftovers, may_restore

    if not (has_leftovers(state) and may_restore(state)):
        return RecoveryReport()
    return recover(state, lambda: open_all_devices(os.environ), open_log(state, "restore"))


def _not_permitted_error(state: Path) -> PermissionDeniedError:
    from joulewise.report.views.leases import restore_command

    message = f"only root can put back the settings in the journals of {state}"
    return PermissionDeniedError(message, f"run: {restore_command(state)}")


def _untrusted_error(path: Path) -> PermissionDeniedError:
    from joulewise.control.messages import user_name

    message = f"{path} is not used, as another user may have written it: settings may be changed"
    owner = user_name(path.lstat().st_uid)
    return PermissionDeniedError(message, f"let user {owner} run `joulewise restore`, or delete it")


def _restore_error(recovered: RecoveryReport) -> DeviceError:
    from joulewise.control.messages import describe

    message = "; ".join(describe(one.outcome) for one in recovered.failed)
    return DeviceError(message, "run `joulewise doctor` to see why, then run this again")


def _as_json(
    recovered: RecoveryReport, held: list[HeldSetting], not_ours: list[HeldSetting]
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

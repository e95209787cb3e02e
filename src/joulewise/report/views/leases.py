"""The leases on settings, and how settings went back, as sentences and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from joulewise import formatting
from joulewise.control.client import Client, socket_path
from joulewise.control.holds import LeaseHolder, RestoreOutcome, RestoreResult
from joulewise.control.messages import describe, format_value, setting_name, user_name
from joulewise.control.permissions import is_epilog_installed, scheduler
from joulewise.control.restore import RestoredSetting
from joulewise.control.status import HeldSetting, Restorer, list_held_settings
from joulewise.data import ControlKind, Unavailable
from joulewise.errors import JoulewiseError, installed_command
from joulewise.process.state_dir import ROOT_STATE_FOLDER, may_restore, state_folders

_VERB: Final = "joulewise restore"


def restore_command(state: Path) -> str:
    """The command that restores what a journal lists; with sudo where root's right is needed."""
    if may_restore(state):
        return _VERB
    where = "" if state == ROOT_STATE_FOLDER else f"env JOULEWISE_STATE={shlex.quote(str(state))} "
    return f"sudo {where}{installed_command()} restore"


def sentence(undone: RestoredSetting, state: Path) -> str:
    """One line on a setting that was left changed; empty where there was nothing to restore."""
    outcome, pid = undone.outcome, undone.holder.pid
    if outcome.end is RestoreResult.ALREADY:
        return ""
    if outcome.end is RestoreResult.FOREIGN:
        return describe(outcome)
    if outcome.end is RestoreResult.FAILED:
        return f"{describe(outcome)}; run: {restore_command(state)}"
    if undone.lives:
        return f"{describe(outcome)}: pid {pid} is still running, but its guardian was killed"
    left_at = format_value(outcome.knob, value_left(undone))
    return f"{describe(outcome)}: pid {pid} had left it at {left_at}"


def value_left(undone: RestoredSetting) -> float:
    """The value that was found, or the journal's where the device does not report it."""
    found = undone.outcome.found
    return undone.changed_to if found is None else found


def left(standing: HeldSetting) -> str:
    """One line on a setting that somebody else left changed."""
    change = standing.change
    return (
        f"{setting_name(change.key, change.knob)} was left at "
        f"{format_value(change.knob, change.value)} by pid {standing.holder.pid} "
        f"of {user_name(standing.holder.uid)}"
    )


def at(control: ControlKind, value: float | None) -> str:
    """A value with its unit; a clock that is not locked has its default."""
    return "default" if value is None else formatting.setting(control, value)


def undone_json(undone: RestoredSetting) -> dict[str, Any]:
    """A restored setting in JSON."""
    outcome: RestoreOutcome = undone.outcome
    return {
        "device": outcome.key,
        "setting": outcome.knob.value,
        "from": value_left(undone),
        "to": outcome.value,
        "outcome": outcome.end.value,
        "reason": outcome.reason,
        "left_by": _holder_json(undone.holder),
    }


def standing_json(standing: HeldSetting) -> dict[str, Any]:
    """A setting that is held or left changed, in JSON."""
    change = standing.change
    return {
        "device": change.key,
        "setting": change.knob.value,
        "value": change.value,
        "before": change.before,
        "state": standing.keeper.value,
        "by": _holder_json(standing.holder),
    }


def _holder_json(holder: LeaseHolder) -> dict[str, Any]:
    return {
        "pid": holder.pid,
        "program": holder.program,
        "user": user_name(holder.uid),
        "since_s": holder.since_s,
    }


_PATIENCE_S = 1.0  # for an answer of the guard service (chosen: it answers in milliseconds)


@dataclass(frozen=True)
class Leases:
    """Settings that are changed now, each with the folder of its journal; and who may set them.

    ``service`` is the guard service's socket, None without one, or why it cannot be used.
    ``scheduler`` is the batch system that would end a guardian together with its job; ``epilog``
    whether its epilog restores what a job leaves.
    """

    controls: tuple[tuple[HeldSetting, Path], ...] = ()
    service: str | Unavailable | None = None
    scheduler: str | None = None
    epilog: bool = False

    @property
    def held(self) -> list[HeldSetting]:
        """Settings that go back by themselves."""
        return [lease for lease, _ in self.controls if lease.keeper is not Restorer.NOBODY]

    @property
    def left(self) -> list[tuple[HeldSetting, Path]]:
        """Settings that nobody will restore, with the folder of their journal."""
        return [(lease, state) for lease, state in self.controls if lease.keeper is Restorer.NOBODY]


def leases(environ: Mapping[str, str]) -> Leases:
    """Read the journals and ask the guard service."""
    service, its_folders = _service(environ)
    folders = dict.fromkeys((*state_folders(environ), *its_folders))
    return Leases(
        tuple((lease, state) for state in folders for lease in list_held_settings(state)),
        service,
        scheduler(environ),
        is_epilog_installed(environ),
    )


def as_json(leased: Leases) -> dict[str, Any]:
    """The ``leases`` of ``doctor --json``."""
    return {
        "knobs": [standing_json(lease) for lease, _ in leased.controls],
        "fix": restore_command(leased.left[0][1]) if leased.left else "",
        "service": _service_json(leased.service),
        "scheduler": leased.scheduler,
        "epilog": leased.epilog,
    }


def _service(environ: Mapping[str, str]) -> tuple[str | Unavailable | None, list[Path]]:
    """The guard service and the folder of its journal, which may be one of its own."""
    try:
        client = Client.of_the_service(environ, _PATIENCE_S)
    except JoulewiseError as error:
        return Unavailable(error.message, error.hint), []
    if client is None:
        return None, []
    client.close()
    state = client.greeting.get("state")  # None of a service of an earlier version
    return socket_path(environ), [Path(state)] if state else []


def _service_json(service: str | Unavailable | None) -> dict[str, str | bool] | None:
    if isinstance(service, Unavailable):
        return {"answers": False, "reason": service.reason, "fix": service.fix}
    return None if service is None else {"answers": True, "socket": service}

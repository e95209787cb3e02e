"""Knobs that were turned and how they went back, in words and in JSON."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from joulewise import formatting
from joulewise.control.client import Client, socket_path
from joulewise.control.holds import End, LeaseHolder, RestoreOutcome
from joulewise.control.messages import named, said, user, valued
from joulewise.control.permissions import epilog_is_installed, scheduler
from joulewise.control.restore import Undone
from joulewise.control.status import Keeper, Standing, standing
from joulewise.data import Knob, Unavailable
from joulewise.errors import JoulewiseError
from joulewise.process.installation import program
from joulewise.process.state_dir import OF_ROOT, may_put_back, state_folders

_VERB: Final = "joulewise restore"


def restore_command(state: Path) -> str:
    """What to paste: with the right that it takes, and where that right knows of the journal."""
    if may_put_back(state):
        return _VERB
    where = "" if state == OF_ROOT else f"env JOULEWISE_STATE={shlex.quote(str(state))} "
    return f"sudo {where}{program()} restore"


def sentence(undone: Undone, state: Path) -> str:
    """One line on a knob that was left turned; empty where there was nothing to do."""
    outcome, pid = undone.outcome, undone.holder.pid
    if outcome.end is End.ALREADY:
        return ""
    if outcome.end is End.FOREIGN:
        return said(outcome)
    if outcome.end is End.FAILED:
        return f"{said(outcome)}; run: {restore_command(state)}"
    if undone.lives:
        return f"{said(outcome)}: pid {pid} lives on, its guardian was killed"
    return f"{said(outcome)}: pid {pid} had left it at {valued(outcome.knob, turned_to(undone))}"


def turned_to(undone: Undone) -> float:
    """What it was at; where the device does not tell, what the journal knows."""
    found = undone.outcome.found
    return undone.turned_to if found is None else found


def left(standing: Standing) -> str:
    """On a leftover that is for somebody else to undo."""
    change = standing.change
    return (
        f"{named(change.key, change.knob)} was left at "
        f"{valued(change.knob, change.value)} by pid {standing.holder.pid} "
        f"of {user(standing.holder.uid)}"
    )


def at(knob: Knob, value: float | None) -> str:
    """A clock has no value while nobody has locked it."""
    return "default" if value is None else formatting.setting(knob, value)


def undone_json(undone: Undone) -> dict[str, Any]:
    outcome: RestoreOutcome = undone.outcome
    return {
        "device": outcome.key,
        "setting": outcome.knob.value,
        "from": turned_to(undone),
        "to": outcome.value,
        "outcome": outcome.end.value,
        "reason": outcome.reason,
        "left_by": _holder_json(undone.holder),
    }


def standing_json(standing: Standing) -> dict[str, Any]:
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
        "user": user(holder.uid),
        "since_s": holder.since_s,
    }


_PATIENCE_S = 1.0  # with the service


@dataclass(frozen=True)
class Leases:
    """Knobs that are turned, each with the folder of its journal, and who turns knobs here.

    ``service`` is the guard service's socket, None where there is none, or why it is not for us;
    ``scheduler`` is who would end a guardian together with its job.
    """

    knobs: tuple[tuple[Standing, Path], ...] = ()
    service: str | Unavailable | None = None
    scheduler: str | None = None
    epilog: bool = False

    @property
    def held(self) -> list[Standing]:
        return [each for each, _ in self.knobs if each.keeper in {Keeper.HOLDER, Keeper.GUARDIAN}]

    @property
    def left(self) -> list[tuple[Standing, Path]]:
        return [(each, state) for each, state in self.knobs if each.keeper is Keeper.NOBODY]


def leases(environ: Mapping[str, str]) -> Leases:
    service, its_folders = _service(environ)
    folders = dict.fromkeys((*state_folders(environ), *its_folders))
    return Leases(
        tuple((each, state) for state in folders for each in standing(state)),
        service,
        scheduler(environ),
        epilog_is_installed(environ),
    )


def as_json(found: Leases) -> dict[str, Any]:
    return {
        "knobs": [standing_json(each) for each, _ in found.knobs],
        "fix": restore_command(found.left[0][1]) if found.left else "",
        "service": _service_json(found.service),
        "scheduler": found.scheduler,
        "epilog": found.epilog,
    }


def _service(environ: Mapping[str, str]) -> tuple[str | Unavailable | None, list[Path]]:
    """With the folder of its journal, which may be none of those that we would look into."""
    try:
        client = Client.of_the_service(environ, _PATIENCE_S)
    except JoulewiseError as error:
        return Unavailable(error.message, error.hint), []
    if client is None:
        return None, []
    client.close()
    told = client.greeting.get("state")  # one that was started by an earlier version does not
    return socket_path(environ), [Path(told)] if told else []


def _service_json(service: str | Unavailable | None) -> dict[str, str | bool] | None:
    if isinstance(service, Unavailable):
        return {"answers": False, "reason": service.reason, "fix": service.fix}
    return None if service is None else {"answers": True, "socket": service}

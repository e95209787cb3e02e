"""The sweeps of a store: making one, finding one, reading one.

::

    <store>/sweeps/<id>/
        sweep.json   what was asked and what each run came to, replaced as a whole
        logs/        what the runs said
        ended/       when a run was last ended by the sweep, by the name of its log
        lock         who runs it, and since when

A sweep as its file has it, and back.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from joulewise.data.codec import decode, encode
from joulewise.data.energy import Energy
from joulewise.data.migration import name_simulated_sweep
from joulewise.data.sweeps import WARM_UP, Sweep, Trial, TrialState
from joulewise.errors import JoulewiseError, UsageError, did_you_mean
from joulewise.store.checksums import DamagedJsonError, read_checked_json, with_checksum
from joulewise.store.files import is_file, read_regular_bytes, replace_file
from joulewise.store.layout import SWEEPS
from joulewise.store.runs import (
    ELSEWHERE,
    LAST,
    Skipped,
    id_second,
    new_directory,
    not_made,
    order_of,
)
from joulewise.sweep.lock import is_running
from joulewise.sweep.space import Space
from joulewise.sweep.spec import SweepSpec

SWEEP_FORMAT: Final = 1


def as_text(sweep: Sweep, lines: Iterable[str] | None = None) -> str:
    """The file's content, a trial a line; ``lines`` are those of its trials, where known."""
    told = {"format": SWEEP_FORMAT, **encode(replace(sweep, trials=()))}
    del told["trials"]
    head = json.dumps(told, indent=1, allow_nan=False).removesuffix("\n}")
    trials = ",\n  ".join(map(as_line, sweep.trials) if lines is None else lines)
    return with_checksum(f'{head},\n "trials": [\n  {trials}\n ]\n}}\n')


def as_line(trial: Trial) -> str:
    return json.dumps(encode(_sound(trial)), allow_nan=False)


def from_json(told: Any) -> Sweep:
    """What :func:`as_text` wrote; anything else is a ValueError.

    Keys that it has and we do not know are passed over.
    """
    if not isinstance(told, dict) or told.get("format") != SWEEP_FORMAT:
        raise ValueError("no sweep of a format that is known")
    name_simulated_sweep(told)
    try:
        return decode(Sweep, told)
    except ValueError as error:
        raise ValueError(f"no sweep: {error}") from None


def _sound(trial: Trial) -> Trial:
    """Without joules that are no numbers: JSON has no word for them, and a figure must be one."""
    works = {
        name: replace(work, energy=_known(work.energy))
        for name, work in trial.spans.items()
        if math.isfinite(work.time_s)
    }
    return replace(trial, energy=_known(trial.energy), bounds=_known(trial.bounds), spans=works)


def _known(energies: Mapping[str, Energy]) -> dict[str, Energy]:
    return {name: each for name, each in energies.items() if _is_known(each)}


def _is_known(energy: Energy) -> bool:
    figures = energy.value, energy.error_sampling, energy.error_gain
    return all(map(math.isfinite, figures))


if TYPE_CHECKING:
    from joulewise.sweep.entry import SweepEntry

FILE: Final = "sweep.json"
LOGS: Final = "logs"
RUNNING: Final = "running"
INTERRUPTED: Final = "interrupted"
FINISHED: Final = "finished"
_NAMED: Final = 3  # so many sweeps are named in an error


class UnreadableSweepError(JoulewiseError):
    """A sweep whose file is damaged, missing or of a newer joulewise; ``sweep_id`` names it."""

    def __init__(self, sweep_id: str, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.sweep_id = sweep_id


def create(store: Path, asked: SweepSpec, space: Space) -> Path:
    """Make a sweep's folder, named by the time (UTC) as no other sweep is."""
    try:
        folder = new_directory(store / SWEEPS)
        sweep = Sweep(
            id=folder.name,
            asked=json.loads(json.dumps(asked.as_json())),  # lists, as the file has them
            seed=asked.seed,
            reference=space.reference,
            settings=space.settings,
            name=asked.name,
            start_wall_ns=time.time_ns(),
            gpu_name=space.board.name if space.board else "",
            limits_w=space.limits_w,
        )
        (folder / LOGS).mkdir()
        replace_file(folder / FILE, as_text(sweep))
    except OSError as error:
        raise not_made("sweep", store, error) from None
    return folder


def load(folder: Path, *, has_trials: bool = True) -> Sweep:
    """The sweep as it stands on disk; without its trials it is there ten times as soon.

    One that nobody runs and that is not finished was interrupted, whatever its file says: who is
    killed writes nothing.
    """
    sweep = load_as_written(folder, has_trials=has_trials)
    if sweep.state == RUNNING and not is_running(folder):
        return replace(sweep, state=INTERRUPTED)
    return sweep


def load_as_written(folder: Path, *, has_trials: bool = True) -> Sweep:
    """The sweep as its file has it, which may say that it is running when nobody runs it."""
    path = folder / FILE
    try:
        told = read_checked_json(read_regular_bytes(path))
    except FileNotFoundError:
        raise _unreadable(folder, f"it has no {FILE}") from None
    except OSError as error:
        raise _unreadable(folder, f"{FILE}: {error.strerror}") from None
    except DamagedJsonError as error:
        raise _unreadable(folder, f"{FILE} is damaged: {error}") from None
    if _format(told) > SWEEP_FORMAT:
        raise UnreadableSweepError(
            folder.name,
            f"{folder.name} is of a newer joulewise (format {_format(told)}, this one reads up to "
            f"{SWEEP_FORMAT})",
            "update it: pip install -U joulewise",
        )
    try:
        if isinstance(told, dict) and not has_trials:
            told["trials"] = []
        return from_json(told)
    except ValueError as error:
        raise _unreadable(folder, f"{FILE} is damaged ({error})") from None


def sweeps(store: Path) -> Iterator[tuple[Path, Sweep] | Skipped]:
    """What cannot be read with the reason, then every sweep, oldest first. Never raises.

    All of them are read: for a list, and to find one, see ``sweep.entry``.
    """
    found = []
    for folder in _folders(store):
        told = _told(folder)
        if isinstance(told, Skipped):
            yield told
        else:
            found.append((folder, told))
    yield from sorted(found, key=lambda each: each[1].start_wall_ns)


def is_over(sweep: Sweep) -> bool:
    """Whether nothing is left to do: it is finished, and no run of it has failed."""
    failed = (it for it in sweep.trials if it.state is TrialState.FAILED and it.block != WARM_UP)
    return sweep.state == FINISHED and not any(failed)


def cut_off(store: Path, every: Sequence[SweepSpec]) -> list[Path | None]:
    """Of sweeps that are made one after the other, those that there are when more is left to do.

    Some may be over, but not all of them: then it is asked for afresh, and there is none to go on
    with. What is older than the one before it is of another time.
    """
    from joulewise.sweep.entry import find_newest_of, has_digest

    newest = find_newest_of(store, [has_digest(asked.digest) for asked in every])
    going_on: list[Path | None] = []
    since_ns, are_over = 0, True
    for found in newest:
        if found is None or found.start_wall_ns < since_ns:
            going_on.append(None)
            are_over = False
        else:
            going_on.append(found.path)
            since_ns = found.start_wall_ns
            are_over = are_over and found.state == FINISHED and is_over(load(found.path))
    return [None] * len(every) if are_over else going_on


def find(store: Path, which: str) -> Path:
    """The sweep that is meant: a path, an id, the beginning of one, a name, or ``last``."""
    from joulewise.sweep.entry import find_newest, is_named

    path = Path(which)
    if is_file(path / FILE):
        return path
    folders = _folders(store)
    if not folders:
        raise _no_sweeps(store)
    if which == LAST:
        return _last(store)
    by_id = [folder for folder in folders if which and folder.name.startswith(which)]
    if len(by_id) > 1:
        names = ", ".join(folder.name for folder in by_id[:3])
        raise UsageError(f"{which!r} begins {len(by_id)} sweeps: {names}", "give more of the id")
    if by_id:
        return by_id[0]
    # A name may be used again: the newest is meant.
    named = find_newest(store, is_named(which)) if which else None
    if named is None:
        names = ", ".join(folder.name for folder in folders[-_NAMED:])
        raise UsageError(
            f"{store} has no sweep {which!r}{_but_unreadable(store)}",
            f"{did_you_mean(which, sweep_names(store))}its newest are {names}; or {ELSEWHERE}",
        )
    return named.path


def _last(store: Path) -> Path:
    """The newest sweep; an error where it cannot be read, which names the newest that can."""
    from joulewise.sweep.entry import find_newest, list_unreadable

    newest = find_newest(store)
    unreadable = max((one.path for one in list_unreadable(store)), key=_id_order, default=None)
    if newest and (unreadable is None or _id_order(unreadable)[0] < _second(newest)):
        return newest.path
    if unreadable is None:
        raise _no_sweeps(store)
    try:
        load(unreadable, has_trials=False)
    except UnreadableSweepError as error:
        other = f"the newest that can be read is {newest.path.name}" if newest else "no other can"
        raise UnreadableSweepError(
            unreadable.name,
            f"the newest sweep cannot be read: {error.message}",
            f"{error.hint}; {other}",
        ) from None
    return unreadable  # it was being replaced when it was looked at first


def _no_sweeps(store: Path) -> UsageError:
    return UsageError(
        f"there are no sweeps in {store}", f"joulewise sweep makes one; or {ELSEWHERE}"
    )


def _second(entry: SweepEntry) -> int:
    return order_of(entry.path, entry.start_wall_ns)[0]


def _id_order(folder: Path) -> tuple[int, str]:
    """By the second in its id, which is all that tells when an unreadable sweep was made."""
    return id_second(folder.name) or 0, folder.name


def _but_unreadable(store: Path) -> str:
    """Words on the sweeps that may be the one that is looked for, but cannot be read."""
    from joulewise.sweep.entry import list_unreadable

    names = sorted(one.path.name for one in list_unreadable(store))
    if not names:
        return ""
    more = ", …" if len(names) > _NAMED else ""
    return f" that can be read; not readable: {', '.join(names[-_NAMED:])}{more}"


def sweep_names(store: Path) -> list[str]:
    """The names of the sweeps, for "did you mean"."""
    from joulewise.sweep.entry import list_sweeps

    return list(dict.fromkeys(sweep.name for sweep in list_sweeps(store).sweeps if sweep.name))


def _folders(store: Path) -> list[Path]:
    """Not what somebody was killed in making: there is nothing in it."""
    try:
        return sorted(path for path in (store / SWEEPS).iterdir() if is_file(path / FILE))
    except OSError:
        return []


def _told(folder: Path) -> Sweep | Skipped:
    try:
        return load(folder)
    except JoulewiseError as error:
        return Skipped(folder, error.message)


def _format(told: Any) -> int:
    found = told.get("format") if isinstance(told, dict) else None
    return found if isinstance(found, int) else 0


def _unreadable(folder: Path, why: str) -> UnreadableSweepError:
    return UnreadableSweepError(
        folder.name,
        f"{folder.name}: {why}",
        f"put {FILE} back from a copy, or delete the sweep: rm -r {quote(str(folder))}",
    )

"""The sweeps of a store: creating, finding, reading and writing one.

::

    <store>/sweeps/<id>/
        sweep.json   the spec and the trials, replaced as a whole
        logs/        the output of the runs
        ended/       when the sweep last ended a run, by the name of its log
        lock         which process runs it, and since when
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from joulewise.data.codec import decode, encode, name_simulated_sweep
from joulewise.data.energy import Energy
from joulewise.data.sweeps import WARM_UP, Sweep, Trial, TrialState
from joulewise.errors import JoulewiseError, UsageError, did_you_mean
from joulewise.store.checksums import read_json_of, with_checksum
from joulewise.store.files import is_file, replace_file
from joulewise.store.layout import SWEEPS
from joulewise.store.runs import (
    ELSEWHERE,
    LAST,
    Skipped,
    creation_error,
    id_second,
    new_directory,
    order_of,
)
from joulewise.sweep.lock import is_running
from joulewise.sweep.spec import SweepSpec

if TYPE_CHECKING:
    from joulewise.sweep.entry import SweepEntry
    from joulewise.sweep.space import Space

SWEEP_FORMAT: Final = 1  # of sweep.json; counted up where an older joulewise could not read it
SWEEP_FILE: Final = "sweep.json"
LOGS: Final = "logs"
RUNNING: Final = "running"
INTERRUPTED: Final = "interrupted"
FINISHED: Final = "finished"
_MOST_NAMED: Final = 3  # sweeps in one error message


def as_text(sweep: Sweep, lines: Iterable[str] | None = None) -> str:
    """The content of ``sweep.json``, one line for each trial: ``lines``, where already encoded."""
    fields = {"format": SWEEP_FORMAT, **encode(replace(sweep, trials=()))}
    del fields["trials"]
    head = json.dumps(fields, indent=1, allow_nan=False).removesuffix("\n}")
    trials = ",\n  ".join(map(as_line, sweep.trials) if lines is None else lines)
    return with_checksum(f'{head},\n "trials": [\n  {trials}\n ]\n}}\n')


def as_line(trial: Trial) -> str:
    """A trial as a line of ``sweep.json``, without energies and times that are not finite."""
    works = {
        name: replace(work, energy=_finite(work.energy))
        for name, work in trial.spans.items()
        if math.isfinite(work.time_s)
    }
    energy, bounds = _finite(trial.energy), _finite(trial.bounds)
    return json.dumps(
        encode(replace(trial, energy=energy, bounds=bounds, spans=works)), allow_nan=False
    )


def from_json(payload: Any) -> Sweep:
    """Decode the JSON that :func:`as_text` wrote; unknown keys are ignored.

    Raises:
        ValueError: it is not a sweep, or of another format.
    """
    if not isinstance(payload, dict) or payload.get("format") != SWEEP_FORMAT:
        raise ValueError("not a sweep of a known format")
    name_simulated_sweep(payload)
    try:
        return decode(Sweep, payload)
    except ValueError as error:
        raise ValueError(f"not a sweep: {error}") from None


def _finite(energies: Mapping[str, Energy]) -> dict[str, Energy]:
    """The energies whose value and errors are finite: JSON has no other numbers."""
    return {
        name: energy
        for name, energy in energies.items()
        if all(map(math.isfinite, (energy.value, energy.error_sampling, energy.error_gain)))
    }


class UnreadableSweepError(JoulewiseError):
    """A sweep whose file is damaged, missing or of a newer joulewise."""

    def __init__(self, sweep_id: str, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.sweep_id = sweep_id


def create_sweep(store: Path, spec: SweepSpec, space: Space) -> Path:
    """Make the folder of a new sweep, with an id of its own."""
    try:
        folder = new_directory(store / SWEEPS)
        sweep = Sweep(
            id=folder.name,
            asked=json.loads(json.dumps(spec.as_json())),  # lists, as the file has them
            seed=spec.seed,
            reference=space.reference,
            settings=space.settings,
            name=spec.name,
            start_wall_ns=time.time_ns(),
            gpu_name=space.board.name if space.board else "",
            limits_w=space.limits_w,
        )
        (folder / LOGS).mkdir()
        replace_file(folder / SWEEP_FILE, as_text(sweep))
    except OSError as error:
        raise creation_error("sweep", store, error) from None
    return folder


def load_sweep(folder: Path, *, has_trials: bool = True) -> Sweep:
    """Read a sweep; ``has_trials=False`` leaves out its trials, and takes a tenth of the time.

    A sweep that no process runs and that is not finished was interrupted, whatever its file says:
    a killed process writes nothing.

    Raises:
        UnreadableSweepError: its file is damaged, missing or of a newer joulewise.
    """
    sweep = load_as_written(folder, has_trials=has_trials)
    if sweep.state == RUNNING and not is_running(folder):
        return replace(sweep, state=INTERRUPTED)
    return sweep


def load_as_written(folder: Path, *, has_trials: bool = True) -> Sweep:
    """The same, but "running" where the file says so, although no process may run it."""
    payload = read_json_of(folder / SWEEP_FILE, partial(_unreadable, folder))
    version = payload.get("format") if isinstance(payload, dict) else None
    if isinstance(version, int) and version > SWEEP_FORMAT:
        raise UnreadableSweepError(
            folder.name,
            f"{folder.name} is of a newer joulewise (format {version}, this one reads up to "
            f"{SWEEP_FORMAT})",
            "update it: pip install -U joulewise",
        )
    try:
        if isinstance(payload, dict) and not has_trials:
            payload["trials"] = []
        return from_json(payload)
    except ValueError as error:
        raise _unreadable(folder, f"{SWEEP_FILE} is damaged ({error})") from None


def sweeps(store: Path) -> Iterator[tuple[Path, Sweep] | Skipped]:
    """Unreadable sweeps with the reason, then all others, oldest first. Never raises.

    All of them are read; ``sweep.entry`` lists and finds sweeps by an index.
    """
    readable = []
    for folder in _folders(store):
        try:
            readable.append((folder, load_sweep(folder)))
        except JoulewiseError as error:  # noqa: PERF203  # one of them says nothing of the others
            yield Skipped(folder, error.message)
    yield from sorted(readable, key=lambda pair: pair[1].start_wall_ns)


def is_over(sweep: Sweep) -> bool:
    """Whether nothing is left to do: the sweep is finished, and none of its runs has failed."""
    return sweep.state == FINISHED and not any(
        trial.state is TrialState.FAILED and trial.block != WARM_UP for trial in sweep.trials
    )


def find_sweeps_to_continue(store: Path, every: Sequence[SweepSpec]) -> list[Path | None]:
    """The stored sweep that each spec is to continue; None where it is to start.

    The sweeps of one command are run one after the other. So one that is older than the sweep
    before it belongs to an earlier command. Where all of them are over, all start afresh.
    """
    from joulewise.sweep.entry import find_newest_of, has_digest

    newest = find_newest_of(store, [has_digest(spec.digest) for spec in every])
    continued: list[Path | None] = []
    since_ns, are_over = 0, True
    for entry in newest:
        if entry is None or entry.start_wall_ns < since_ns:
            continued.append(None)
            are_over = False
        else:
            continued.append(entry.path)
            since_ns = entry.start_wall_ns
            are_over = are_over and entry.state == FINISHED and is_over(load_sweep(entry.path))
    return [None] * len(every) if are_over else continued


def find_sweep(store: Path, which: str) -> Path:
    """Resolve a path, an id, the beginning of one, a name, or ``last`` to the folder of a sweep."""
    from joulewise.sweep.entry import find_newest, is_named

    path = Path(which)
    if is_file(path / SWEEP_FILE):
        return path
    folders = _folders(store)
    if not folders:
        raise _no_sweeps(store)
    if which == LAST:
        return _last(store)
    by_id = [folder for folder in folders if which and folder.name.startswith(which)]
    if len(by_id) > 1:
        names = ", ".join(folder.name for folder in by_id[:_MOST_NAMED])
        raise UsageError(f"{which!r} begins {len(by_id)} sweeps: {names}", "give more of the id")
    if by_id:
        return by_id[0]
    # A name may be used again; it then refers to the newest.
    named = find_newest(store, is_named(which)) if which else None
    if named is None:
        names = ", ".join(folder.name for folder in folders[-_MOST_NAMED:])
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
        load_sweep(unreadable, has_trials=False)
    except UnreadableSweepError as error:
        other = f"the newest that can be read is {newest.path.name}" if newest else "no other can"
        raise UnreadableSweepError(
            unreadable.name,
            f"the newest sweep cannot be read: {error.message}",
            f"{error.hint}; {other}",
        ) from None
    return unreadable  # its file was being replaced when it was listed


def _no_sweeps(store: Path) -> UsageError:
    return UsageError(
        f"there are no sweeps in {store}", f"joulewise sweep makes one; or {ELSEWHERE}"
    )


def _second(entry: SweepEntry) -> int:
    return order_of(entry.path, entry.start_wall_ns)[0]


def _id_order(folder: Path) -> tuple[int, str]:
    """A key by which unreadable sweeps are ordered: the second in the id, and the id."""
    return id_second(folder.name) or 0, folder.name


def _but_unreadable(store: Path) -> str:
    """The unreadable sweeps, in words: one of them may be the one that the user wants."""
    from joulewise.sweep.entry import list_unreadable

    names = sorted(one.path.name for one in list_unreadable(store))
    if not names:
        return ""
    more = ", …" if len(names) > _MOST_NAMED else ""
    return f" that can be read; not readable: {', '.join(names[-_MOST_NAMED:])}{more}"


def sweep_names(store: Path) -> list[str]:
    """The names of the sweeps, for "did you mean"."""
    from joulewise.sweep.entry import list_sweeps

    return list(dict.fromkeys(sweep.name for sweep in list_sweeps(store).sweeps if sweep.name))


def _folders(store: Path) -> list[Path]:
    """The folders of sweeps, without empty ones that a killed process left."""
    try:
        return sorted(path for path in (store / SWEEPS).iterdir() if is_file(path / SWEEP_FILE))
    except OSError:
        return []


def _unreadable(folder: Path, why: str) -> UnreadableSweepError:
    return UnreadableSweepError(
        folder.name,
        f"{folder.name}: {why}",
        f"put {SWEEP_FILE} back from a copy, or delete the sweep: rm -r {quote(str(folder))}",
    )

"""The trials of a sweep that is being run: in memory, and on disk after each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from joulewise.data.sweeps import WARM_UP, Planned, Setting, Sweep, Trial
from joulewise.errors import JoulewiseError
from joulewise.record.files import replace_file
from joulewise.sweep.contract import as_line, as_text
from joulewise.sweep.store import FILE, FINISHED, INTERRUPTED, RUNNING, load

_SPARED: Final = 24  # times that it took to save: as long, what can be made again is not saved

Identity = tuple[Setting, int, float | None]


def identity(one: Planned | Trial) -> Identity:
    """What tells a run from every other of its sweep."""
    return one.setting, one.block, one.look_s


class Ledger:
    """What cannot be written is kept, and written with the next."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._sweep = replace(load(folder), state=RUNNING)
        self._lines = [(trial, as_line(trial)) for trial in self._sweep.trials]
        self._fault: OSError | None = None
        self._saved_s = self._took_s = 0.0
        for left in folder.glob(f".{FILE}.*.part"):  # of one who was killed as it wrote
            left.unlink(missing_ok=True)

    @property
    def sweep(self) -> Sweep:
        return self._sweep

    def keep(self, trial: Trial) -> None:
        """In place of an earlier one of the same run, which had failed."""
        if trial.block != WARM_UP:
            same = identity(trial)
            self._lines = [each for each in self._lines if identity(each[0]) != same]
        self._lines.append((trial, as_line(trial)))
        self._sweep = replace(self._sweep, trials=tuple(trial for trial, _ in self._lines))
        if not self._can_wait:
            self.save()

    def save(self, *, durable: bool | None = None) -> None:
        began_s = time.monotonic()
        text = as_text(self._sweep, (line for _, line in self._lines))
        try:
            replace_file(
                self._folder / FILE, text, durable=self._is_dear if durable is None else durable
            )
        except OSError as error:
            if self._fault is None:
                self._say(
                    f"{self._folder / FILE} cannot be written: {error.strerror}; "
                    "the sweep goes on, and tries again after each run"
                )
            self._fault = error
        else:
            self._fault = None
        self._saved_s = time.monotonic()
        self._took_s = self._saved_s - began_s

    def finish(self, sure: Mapping[str, Any]) -> None:
        self._sweep = replace(self._sweep, state=FINISHED, sure=dict(sure))
        self.close()

    def interrupt(self) -> None:
        """Write that it ended before its last run."""
        self._sweep = replace(self._sweep, state=INTERRUPTED)
        self.save(durable=True)

    def close(self) -> None:
        """Write what was not, and fail if that cannot be done."""
        self.save(durable=True)
        if self._fault is not None:
            raise JoulewiseError(
                f"{self._folder / FILE} cannot be written: {self._fault.strerror}",
                "make room there and repeat the command: no run that is stored is made again",
            )

    @property
    def _is_dear(self) -> bool:
        """Whether what is lost takes hours to make again: in virtual time it does not."""
        return not self._sweep.asked.get("simulated")

    @property
    def _can_wait(self) -> bool:
        passed_s = time.monotonic() - self._saved_s
        return not self._is_dear and passed_s < _SPARED * self._took_s

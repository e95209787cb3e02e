"""The exact energy of every simulated GPU, as a file that any meter can be judged by."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from errno import EINVAL
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from joulewise.errors import UsageError
from joulewise.simulate.realtime.host import HostChip
from joulewise.simulate.timeline import Timeline
from joulewise.units import NS_PER_MS

if TYPE_CHECKING:
    from numpy.typing import NDArray

HEADER = "monotonic_ns,gpu,energy_j,sensed_j\n"
MODULE_HEADER = "monotonic_ns,gpu,energy_j,sensed_j,gpu_only_j\n"
"""Where one of them is a superchip: ``energy_j`` is then its module's, CPU and memory included."""

STEP_NS = 10 * NS_PER_MS


class Truth:
    """Writes CSV rows in order of time, at every change of power and at least every 10 ms.

    Between two rows of a GPU power is constant, so that energy is linear. Where the disk is
    full the file ends with a whole row, and whoever is being measured goes on undisturbed.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = _open(path)
        except OSError as error:
            raise UsageError(
                f"cannot write {path}: {error.strerror}", "name a file in a folder of yours"
            ) from error
        self._whole_b = 0
        self._since_ns = 0
        self._gains: Sequence[float] = ()
        self._hosts: Sequence[HostChip | None] = ()

    def start(
        self, gains: Sequence[float], start_ns: int, hosts: Sequence[HostChip | None] = ()
    ) -> None:
        """Begin at ``start_ns`` with no energy drawn; one GPU for each gain of a sensor.

        ``hosts`` are what draws beside each GPU on its module, if any.
        """
        self._gains = gains
        self._hosts = [*hosts] or [None] * len(gains)
        self._since_ns = start_ns
        columns = 3 if any(self._hosts) else 2
        none = ",0.000000" * columns
        self._append(MODULE_HEADER if any(self._hosts) else HEADER)
        self._append("".join(f"{start_ns},{gpu}{none}\n" for gpu in range(len(gains))))

    def write(self, timelines: Sequence[Timeline], until_ns: int, *, last: bool = False) -> None:
        """Add what each GPU drew since the call before; ``last`` closes with a row at the end."""
        parts = [
            rows(
                timeline,
                self._since_ns,
                until_ns,
                last=last,
                changes_ns=host.changes_ns() if host else (),
            )
            for timeline, host in zip(timelines, self._hosts, strict=True)
        ]
        gpu = np.repeat(np.arange(len(parts)), [len(t_ns) for t_ns, _ in parts])
        t_ns = np.concatenate([t_ns for t_ns, _ in parts])
        gpu_only_j = np.concatenate([energy_j for _, energy_j in parts])
        beside_j = np.concatenate(
            [
                host.energy_at(t_ns) if host else np.zeros(len(t_ns))
                for host, (t_ns, _) in zip(self._hosts, parts, strict=True)
            ]
        )
        energy_j = gpu_only_j + beside_j
        joules = [energy_j, energy_j * np.asarray(self._gains)[gpu]]
        joules += [gpu_only_j] if any(self._hosts) else []
        order = np.argsort(t_ns, kind="stable")
        columns = [column[order].tolist() for column in (t_ns, gpu, *joules)]
        form = "{},{}" + ",{:.6f}" * len(joules) + "\n"
        self._append("".join([form.format(*row) for row in zip(*columns, strict=True)]))
        self._since_ns = until_ns

    def close(self) -> None:
        self._file.close()

    def _append(self, text: str) -> None:
        if self._file.closed:
            return
        rest = text.encode()
        size_b = self._whole_b + len(rest)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), self._whole_b)
            self._file.close()
            if sys.stderr is not None:
                sys.stderr.write(
                    f"joulewise: {self._file.name} ends early: {error.strerror}\n"
                    "  make room and run it again; the command goes on, and keeps its exit status\n"
                )
        self._whole_b = size_b


def _open(path: Path) -> FileIO:
    """Nothing that is read from elsewhere: who reads slowly, or not at all, would stop the GPUs."""
    if path.exists() and not (path.is_file() or path.is_char_device()):
        raise OSError(EINVAL, "it is not a file")
    file = path.open("wb", buffering=0)
    if file.isatty():
        file.close()
        raise OSError(EINVAL, "it is a terminal")
    return file


def rows(
    timeline: Timeline,
    since_ns: int,
    until_ns: int,
    *,
    last: bool = False,
    changes_ns: Sequence[int] | NDArray[np.int64] = (),
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """When to tell the energy in ``(since_ns, until_ns]``, and what it is.

    ``changes_ns`` are moments that have a row besides those at which the timeline changes.
    """
    changes = np.concatenate([timeline.pieces["t_ns"], np.asarray(changes_ns, np.int64)])
    changes = changes[(changes > since_ns) & (changes <= until_ns)]
    steps = np.arange(since_ns // STEP_NS + 1, until_ns // STEP_NS + 1) * STEP_NS
    end = [until_ns] if last else []
    t_ns = np.unique(np.concatenate([changes, steps, np.array(end, np.int64)]))
    return t_ns, timeline.energy_at(t_ns)

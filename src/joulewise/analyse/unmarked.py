"""A framework that was at work without a single mark: its epochs cannot be told apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from joulewise.data import Caution, RunWarning
from joulewise.record.frameworks import FrameworkUse
from joulewise.record.manifest import Manifest

if TYPE_CHECKING:
    from joulewise.analyse.stretch import Stretch
    from joulewise.record.marks import SpanTable

LEAST_S: Final = 10.0
"""So long a framework must have been loaded: chosen, as longer than it takes to try something out
and shorter than a training that one measures. With 20 s short experiments are no longer told."""

LEAST_CPU_SHARE: Final = 0.1
"""Of one core since the import: chosen, as a training keeps about one busy to start kernels, and a
server that waits for requests none."""


def unmarked(
    uses: Sequence[FrameworkUse], spans: SpanTable, manifest: Manifest, run: Stretch
) -> Iterator[RunWarning]:
    """One warning for the process that used a framework the longest.

    Nothing is told where there is any span, or where marks were lost.
    """
    if len(spans) or spans.warnings:
        return
    timed = [(time_s, use) for use in uses if (time_s := _time_s(use, manifest, run)) is not None]
    time_s, use = max(timed, key=lambda pair: pair[0], default=(0.0, None))
    if use is None or time_s < LEAST_S:
        return
    names = ", ".join(f"{name} {parts['version']}" for name, parts in use.frameworks.items())
    yield RunWarning(
        Caution.NO_MARKS,
        f"{names} ran for {time_s:.0f} s, and no training, epoch or step was marked",
        'mark them: with joulewise.span("epoch", i, total=n): … around each epoch',
    )


def _time_s(use: FrameworkUse, manifest: Manifest, run: Stretch) -> float | None:
    """How long it was at work; None where it idled, or where that is not known."""
    time_s, cpu_s = use.time_s, use.cpu_s
    if time_s is None:  # the process was killed: of the command itself the CPU time is known
        for command in manifest.commands:
            is_killed = command.exit_code is not None and (
                command.exit_code < 0 or command.exit_code > _SIGNALLED
            )
            if command.pid == use.pid and is_killed:
                time_s, cpu_s = (
                    run.after_s(run.end_ns) - run.after_s(use.imported_ns),
                    command.cpu_s,
                )
    if time_s is None or cpu_s is None or cpu_s < LEAST_CPU_SHARE * time_s:
        return None
    return time_s


_SIGNALLED: Final = 128  # a shell's exit status of a command that a signal ended is above this

"""What is known of a measured block, while it runs and afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from joulewise.errors import UsageError
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from joulewise.data import RunResult, RunWarning
    from joulewise.session.energies import Energies, MeasuredSpan


class Measured:
    """``id`` and ``path`` (of the run's directory) are known while the block runs.

    Whatever it took is known once it has ended, and asking before is a ``UsageError``.
    """

    def __init__(self) -> None:
        self._start_ns = 0
        self._end_ns = 0
        self._result: RunResult | None = None
        self._trouble: RunWarning | None = None
        self.path: Path | None = None

    @property
    def id(self) -> str | None:
        """The run's id; None where nothing is recorded."""
        return self.path.name if self.path else None

    @property
    def result(self) -> RunResult | None:
        """Everything that was found; None where the recorder could not be had or died."""
        self._must_be_over()
        return self._result

    @property
    def time_s(self) -> float:
        self._must_be_over()
        return self._result.time_s if self._result else (self._end_ns - self._start_ns) / NS_PER_S

    @property
    def energy_j(self) -> Energies | None:
        """Joules by device, with their ``total``; None where nothing was recorded."""
        if self.result is None:
            return None
        from joulewise.session.energies import Energies

        return Energies.of(self.result.run, self.result.counted)

    @property
    def spans(self) -> tuple[MeasuredSpan, ...]:
        if self.result is None:
            return ()
        from joulewise.session.energies import measured_spans

        return measured_spans(self.result)

    @property
    def warnings(self) -> tuple[RunWarning, ...]:
        """What a reader of the figures must know."""
        found = self.result.warnings if self.result else ()
        return (*found, self._trouble) if self._trouble else found

    def __repr__(self) -> str:
        if not self._start_ns:
            return "<joulewise measurement, not started>"
        if not self._end_ns:
            return f"<joulewise measurement {self.id}, recording>"
        taken = self.energy_j or "nothing was recorded"
        return f"<joulewise measurement {self.id}: {self.time_s:.4g} s, {taken}>"

    def _repr_html_(self) -> str | None:
        if not self._end_ns or self.energy_j is None:
            return None
        from joulewise.session.energies import html

        head = f"{self.id}: {self.time_s:.4g} s"
        return html(head, self.energy_j, [warning.message for warning in self.warnings])

    def _must_be_over(self) -> None:
        if self._end_ns:
            return
        if not self._start_ns:
            raise UsageError("this measurement was not started", "use `with`, or call start()")
        raise UsageError(
            "what was measured is known when the measurement has ended",
            "ask after the `with` block, or after stop()",
        )

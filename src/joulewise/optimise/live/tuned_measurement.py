"""``joulewise.tune()``: a block of the user's own program, measured and tuned while it runs.

A tuner process reads the spans named ``step`` that the block marks, as it does beside
``joulewise tune``. The program never waits for it while the block runs, and never gets an error of
it: where nothing can be tuned, a Python warning says why, and the block is measured only.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, final

from joulewise.errors import UsageError
from joulewise.optimise.live.tuner_client import DEFAULT_METRIC, TunerClient, TuningRequest
from joulewise.session.measure import Measurement, check_options, user_stack_level
from joulewise.session.spans import MEASURE_MARKS, RUN_MARKS

if TYPE_CHECKING:
    from joulewise.data.tuning import Tuning
    from joulewise.session.recorder_client import RecorderProcess

_MOST_CHECKED: Final = 0.5  # share of the steps at the reference; with more, less is saved than not


def tune(
    by: str = DEFAULT_METRIC,
    axes: Sequence[str] | None = None,
    max_slowdown: float | None = None,
    boundary: str = "gpu",
    overhead_w: float | None = None,
    *,
    prove: bool = False,
    keep_checking: float = 0.0,
    name: str | None = None,
    tags: Sequence[str] = (),
    store: str | os.PathLike[str] | None = None,
) -> TunedMeasurement:
    """Measure a block and tune the GPUs while it runs: ``with joulewise.tune() as t: …``.

    The block marks its steps: ``with joulewise.span("step", i): …``. It also decorates a function,
    as ``@tune()``. Settings are as before when the block has ended, however it ends.

    Args:
        by: the metric: energy, time, edp, ed2p, eds:2.0, cost:0.5 or slowdown:1.1.
        axes: what is tuned: power-limit, sm-clock, mem-clock. None: the power limit and the SM
            clock, as far as the GPUs have them and they may be set.
        max_slowdown: no setting is held at which a step takes over so many times the time before.
        boundary: what is counted: gpu, node or wall.
        overhead_w: power of the rest of the node in watts, for node and wall. None: 112 W.
        prove: alternate the choice with the setting before until the saving is known to 1 %.
        keep_checking: this share of the steps stays at the setting before, 0 to 0.5.
        name: a name for the run, beside its id.
        tags: words to find it by.
        store: the folder of the runs; None is ``$JOULEWISE_STORE`` or ``./joulewise-runs``.
    """
    from joulewise.metrics.boundary import View

    if not isinstance(by, str):
        raise UsageError(f"the metric must be a str, not {by!r}", "to decorate, write @tune()")
    if isinstance(axes, str):
        raise UsageError(f"axes must be a list of names, not {axes!r}", f"write axes=[{axes!r}]")
    if max_slowdown is not None and not 1 <= max_slowdown < math.inf:
        raise UsageError("max_slowdown must be at least 1", "for example: max_slowdown=1.05")
    if not 0 <= keep_checking <= _MOST_CHECKED:
        raise UsageError(
            f"keep_checking must be between 0 and {_MOST_CHECKED:g}", "for example: 0.02"
        )
    request = TuningRequest.checked(
        by,
        axes or (),
        View(boundary, overhead_w=overhead_w),
        max_slowdown=max_slowdown,
        prove=prove,
        keep_checking=keep_checking,
    )
    return TunedMeasurement(request, *check_options(name, tags, None, store))


@final
class TunedMeasurement(Measurement):
    """A measured block, from ``start()`` to ``stop()``, whose GPUs are tuned while it runs.

    Everything that a :class:`Measurement` has, and ``tuning``.
    """

    def __init__(self, request: TuningRequest, *options: Any) -> None:
        super().__init__(*options)
        self._request = request
        self._tuner: TunerClient | None = None
        self._tuning: Tuning | None = None
        self._lines: list[str] = []

    @property
    def tuning(self) -> Tuning | None:
        """The state of the tuning so far, or its outcome; None where there is none (yet)."""
        if self._tuning is None and self.path is not None:
            return self._read_tuning()
        return self._tuning

    def start(self) -> TunedMeasurement:
        super().start()
        try:
            self._warn()
        except BaseException:  # the program has warnings raised: then no block follows
            super().stop()
            raise
        return self

    def stop(self) -> TunedMeasurement:
        super().stop()
        return self

    def __enter__(self) -> TunedMeasurement:
        return self.start()

    def renewed(self) -> TunedMeasurement:
        return TunedMeasurement(self._request, *self._options)

    def _begin(self) -> None:
        # As the recorder: it marks nothing.
        environ = {k: v for k, v in os.environ.items() if k not in {RUN_MARKS, MEASURE_MARKS}}
        try:
            self._tuner = TunerClient.start(self._request, environ, self._note, apart=True)
        except Exception as error:  # noqa: BLE001  # the block is measured all the same
            self._note(f"tuning ended: {type(error).__name__}: {error}")
        super()._begin()
        if self._tuner and self.path:
            self._tuner.begin(self.path)

    def _roll_back(self) -> None:
        tuner, self._tuner = self._tuner, None
        if tuner:
            tuner.cancel()
        super()._roll_back()

    def _finish(self, recorder: RecorderProcess, exit_code: int) -> None:
        try:
            self._end_tuning()
        finally:
            super()._finish(recorder, exit_code)
        self._warn()

    def _end_tuning(self) -> None:
        """Have all settings put back, and keep the outcome."""
        tuner, self._tuner = self._tuner, None
        if tuner is None:
            return
        was_refused = bool(tuner.reason)
        try:
            tuner.close()
        except Exception as error:  # noqa: BLE001  # what the tuner held goes back with its end
            self._note(f"tuning ended: {type(error).__name__}: {error}")
        finally:
            tuner.cancel()
        self._tuning = self._read_tuning()
        self._lines = list(tuner.unrestored)  # what it told before is in the outcome
        if was_refused:
            return
        if tuner.reason:
            self._note(f"tuning ended: {tuner.reason}")
        elif self._tuning is None or not self._tuning.settled:
            why = self._tuning.reason if self._tuning else "the block ended before it could begin"
            if self._tuning is None and tuner.unwritten:
                why = f"its outcome could not be written: {tuner.unwritten}"
            self._note(f"nothing was tuned: {why}")

    def _note(self, line: str) -> None:
        self._lines.append(line)

    def _read_tuning(self) -> Tuning | None:
        from joulewise.store.tuning_file import read_tuning

        with suppress(OSError):
            return read_tuning(self.path) if self.path else None
        return None

    def _warn(self) -> None:
        """Pass on what was said as Python warnings, each once."""
        lines, self._lines = self._lines, []
        for line in lines:
            warnings.warn(f"joulewise: {line}", RuntimeWarning, stacklevel=user_stack_level())

    def _forget(self) -> None:
        tuner, self._tuner = self._tuner, None
        if tuner:
            tuner.leave()
        super()._forget()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state["_tuner"] = None
        return state

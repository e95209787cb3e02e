"""Renews the lease of a try while its command runs, so that the store knows that it is alive."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType


class Heartbeat:
    """Calls ``renew`` every ``period_s`` in a thread of its own, from ``start`` to the end.

    A database may take long to answer, and the signals for the command must not wait for it. The
    first failure is reported once; the training goes on, and its outcome is told in the end.
    ``renew`` is given whether it is still wanted: the thread must end before another command is
    started.
    """

    def __init__(
        self,
        renew: Callable[[Callable[[], bool]], object],
        period_s: float,
        report: Callable[[str], None],
    ) -> None:
        self._renew = renew
        self._period_s = period_s
        self._report = report
        self._ended = threading.Event()
        self._has_failed = False
        self._thread = threading.Thread(target=self._run, name="job-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin, once: after the command was started, since starting it allows no other thread."""
        if self._thread.ident is None and not self._ended.is_set():
            self._thread.start()

    def __enter__(self) -> Heartbeat:  # noqa: PYI034  # Self came with Python 3.11
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            # A call that hangs is left behind: it holds nothing that the rest needs.
            self._thread.join(self._period_s)

    def _run(self) -> None:
        while not self._ended.wait(self._period_s):
            problem = self._renew_once()
            if problem and not self._has_failed:
                self._report(problem)
            self._has_failed = bool(problem)

    def _renew_once(self) -> str:
        """Why it failed; empty where it did not."""
        try:
            self._renew(lambda: not self._ended.is_set())
        except Exception as error:  # noqa: BLE001  # whatever a database raises
            return str(error) or type(error).__name__
        return ""

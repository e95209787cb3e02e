"""The tuner as the process sees it that starts the command: its start, messages and end.

The messages, each a JSON line:

- to the tuner: ``prepare`` with a :class:`TuningRequest`; ``begin`` with the run directory, once
  the recorder records; ``end`` when the command has ended;
- from the tuner: ``ready``, or ``refused`` with the reason; ``say`` for lines to the user;
  ``alive`` about once a second while it tunes, and ``idle`` once it holds nothing any more;
  ``failed`` at any time: it has ended by a fault; ``ended`` with what could not be put back.

A fault in the tuner never reaches the command: it goes on untuned, and one line says why.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from joulewise.errors import JoulewiseError, UsageError
from joulewise.process.child import start_process
from joulewise.process.json_lines import JsonSocket, Message
from joulewise.store.tuning_file import KILLED_TUNER
from joulewise.units import NS_PER_S

if TYPE_CHECKING:
    from joulewise.metrics.boundary import View

_MAIN: Final = "joulewise.optimise.live.tuner_process"
# For the tuner alone, not for the command: libraries of linear algebra would start a thread for
# every core. The matrices of a decision are small: with two threads it takes twice the processor
# time (34 instead of 16 ms, measured over two axes).
_ONE_THREAD: Final = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)
# Chosen. The start takes a discovery (20 s at most) and a guardian's start (20 s at most); the end,
# the release of a few leases, each of which answers within 15 s. Doubled, a command waits twice as
# long for a tuner that hangs in a driver.
_START_DEADLINE_S: Final = 40.0
_END_DEADLINE_S: Final = 20.0
_POLL_S: Final = 0.1
# A tuner that says nothing for so long was stopped or hangs, and holds the setting of a trial. It
# says every second that it is alive (chosen): doubled, that setting stays for twice as long;
# halved, a machine that is busy for a moment ends the tuning.
_SILENT_S: Final = 30.0
_LOOK_S: Final = 5.0  # how often that is looked at
_NOT_MEASURED: Final = "the command is not measured"


@dataclass(frozen=True)
class TuningRequest:
    """What is to be tuned, and how.

    - ``axes``: keys of settings; empty for those that the GPUs allow
    - ``gpus``: NVML indices; empty for those that the command can see
    - ``overhead_w``: watts of what is inside the boundary besides the GPUs
    - ``keep_checking``: share of the steps that stay at the reference
    - ``progress``: the expression in lines of the output that tells of a step; empty for marks
    - ``output``: the named pipe with the copied output
    """

    metric: str
    axes: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()
    force: bool = False
    max_slowdown: float | None = None
    boundary: str = "gpu"
    overhead_w: float = 0.0
    prove: bool = False
    keep_checking: float = 0.0
    seed: int = 0
    progress: str = ""
    output: str = ""

    @classmethod
    def checked(cls, metric: str, axes: Sequence[str], view: View, **others: Any) -> TuningRequest:
        """From what a user asked for; raises UsageError where there is no such thing.

        ``axes`` are names, as on the command line. The PUE of the view is a factor of all energies,
        and changes no choice.
        """
        from joulewise.metrics.boundary import ASSUMED_REST_W, GPU
        from joulewise.metrics.metric import parse
        from joulewise.optimise.live.candidates import parse_axes

        rest_w = ASSUMED_REST_W if view.overhead_w is None else view.overhead_w
        return cls(
            metric=parse(metric).name,
            axes=parse_axes(axes),
            boundary=view.boundary,
            overhead_w=0.0 if view.boundary == GPU else rest_w,
            **others,
        )

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> TuningRequest:
        lists = {name: tuple(message[name]) for name in ("axes", "gpus")}
        return cls(**{**message, **lists})


DEFAULT_METRIC: Final = "eds:2.0"
"""Energy and time weigh the same: a setting that saves energy must not cost as much time."""


def compile_progress(expression: str) -> re.Pattern[str]:
    """The regular expression; raises UsageError where it is none, or matches nothing at all."""
    try:
        pattern = re.compile(expression)
    except re.error as error:
        raise UsageError(
            f"--progress is no regular expression: {error}",
            r"for example: --progress 'step (?P<step>[0-9]+)'",
        ) from None
    if pattern.match(""):
        raise UsageError(
            "--progress matches an empty line",
            r"name what a line about a finished step has, such as 'step [0-9]+'",
        )
    return pattern


class TunerClient:
    """A tuner beside the command; where it dies, all methods still work and do nothing.

    It is what :class:`joulewise.session.run.HeldSettings` describes. ``reason`` says why there is
    no tuning, or no more; empty while it goes on.
    """

    def __init__(
        self,
        connection: JsonSocket | None,
        process: subprocess.Popen[bytes] | None,
        say: Callable[[str], None],
        *,
        reason: str = "",
        apart: bool = False,
    ) -> None:
        self._connection = connection
        self._apart = apart
        self._process = process
        self._pid = process.pid if process else 0
        self._run: Path | None = None
        self._begun_ns = 0
        self._heard_s: float | None = None  # when it spoke last; None: it has nothing to say
        self._lost_at_s: float | None = None  # when it ended by itself or was killed
        self._say = say
        self.reason = reason
        self.unrestored: tuple[str, ...] = ()
        self.unwritten = ""  # why tuning.json could not be written
        self.unguarded = ""  # the tuner itself watches the guardian

    @classmethod
    def start(
        cls,
        request: TuningRequest,
        environ: Mapping[str, str],
        say: Callable[[str], None],
        *,
        apart: bool = False,
    ) -> TunerClient:
        """Start a tuner; where it cannot tune, say why, and return one that does nothing.

        ``apart``: it is not a child of this process, for programs that wait for all of theirs.
        """
        try:
            own_environ = {**environ, **_ONE_THREAD}
            ours, process = start_process(_MAIN, own_environ, is_child=not apart)
        except OSError as error:
            client = cls(None, None, say)
            client._give_up(f"no tuner can be started ({error.strerror})")
            return client
        client = cls(JsonSocket(ours), process, say, apart=apart)
        try:
            client._prepare(request)
        except BaseException:
            client._end_process(patience_s=0.0)
            raise
        return client

    def begin(self, run: Path) -> None:
        """Tune the command that is recorded in this run directory."""
        if self._connection:
            self._run, self._begun_ns = run, time.monotonic_ns()
            self._heard_s = time.monotonic()
            self._connection.send("begin", run=str(run))

    @property
    def descriptors(self) -> list[int]:
        """Readable when ``lost`` should be called."""
        return [self._connection.fileno()] if self._connection else []

    @property
    def poll_s(self) -> float | None:
        """How often ``lost`` has to be called to notice that the tuner says nothing."""
        return _LOOK_S if self._connection and self._heard_s is not None else None

    def on_unmeasured(self) -> None:
        """Nothing can be tuned: let the GPUs go."""
        if self._connection:
            self.close()
            self.reason = _NOT_MEASURED
            self._say(f"nothing is tuned: {_NOT_MEASURED}")

    def lost(self) -> str:
        """Show what the tuner says; always empty, as the tuner itself watches the guardian."""
        if self._connection:
            for message in self._connection.receive():
                self._handle(message)
            if self._connection and self._connection.closed:
                self._give_up(KILLED_TUNER, "its settings go back")
            elif self._connection and self._silent_s() > _SILENT_S:
                silent = f"the tuner has not answered for {_SILENT_S:g} s"
                self._give_up(silent, "its settings go back")
        return ""

    def _silent_s(self) -> float:
        return 0.0 if self._heard_s is None else time.monotonic() - self._heard_s

    def as_json(self) -> dict[str, dict[str, float]]:
        """No setting holds for the whole run."""
        return {}

    def close(self) -> None:
        """End the tuning and wait until all settings are back."""
        if self._connection is None:
            self._note_end(is_over=True)
            return
        self._connection.send("end")
        deadline_s = time.monotonic() + _END_DEADLINE_S
        while self._connection and not self._connection.closed and time.monotonic() < deadline_s:
            for message in self._connection.receive(timeout_s=_POLL_S):
                self._handle(message)
                if message["kind"] == "ended":
                    self._end_process(_POLL_S)
        if self._connection and not self._connection.closed:
            self._give_up(f"the tuner did not answer for {_END_DEADLINE_S:g} s")
        elif self._connection:
            self._give_up(KILLED_TUNER, "its settings go back")

    def leave(self) -> None:
        """In a forked child: close our copy, so that the tuner notices the parent's end."""
        connection, self._connection, self._process = self._connection, None, None
        if connection:
            connection.close()

    def cancel(self) -> None:
        """End it at once; the guardian puts back what it holds."""
        self._end_process(patience_s=0.0)

    def _prepare(self, request: TuningRequest) -> None:
        assert self._connection is not None  # noqa: S101  # it was started a moment ago
        self._connection.send("prepare", request=asdict(request))
        deadline_s = time.monotonic() + _START_DEADLINE_S
        while self._connection and time.monotonic() < deadline_s:
            for message in self._connection.receive(timeout_s=_POLL_S):
                self._handle(message)
                if message["kind"] == "ready":
                    return
            if self._connection and self._connection.closed:
                self._give_up("the tuner ended at once")
        if self._connection:
            self._give_up(f"the tuner is not ready after {_START_DEADLINE_S:g} s")

    def _handle(self, message: Message) -> None:
        if self._heard_s is not None:
            self._heard_s = None if message["kind"] == "idle" else time.monotonic()
        if message["kind"] == "say":
            self._say(message["line"])
        elif message["kind"] in {"refused", "failed"}:
            self._give_up(message["message"], message["hint"])
        elif message["kind"] == "ended":
            self.unrestored = tuple(message["unrestored"])
            self.unwritten = message["unwritten"]
            for line in self.unrestored:
                self._say(line)

    def _give_up(self, reason: str, hint: str = "") -> None:
        self.reason = reason
        self._end_process(patience_s=0.0)
        self._lost_at_s = (time.monotonic_ns() - self._begun_ns) / NS_PER_S
        self._note_end()
        rest = f"; {hint}" if hint else ""
        self._say(f"tuning ended: {reason}; the command goes on without tuning{rest}")

    def _note_end(self, *, is_over: bool = False) -> None:
        """Write in the run that the tuner has ended, which it could not do itself.

        ``is_over``: the command has ended, long after: its settings must be back.
        """
        if self._run is None or self._lost_at_s is None:
            return
        from joulewise.data.tuning import TuningEnd
        from joulewise.store.tuning_file import write_early_end

        is_restored = _are_settings_back(self._pid)
        known = is_restored or (None if not is_over else False)
        with suppress(OSError, JoulewiseError):  # a full disk: readers of the run find it out
            write_early_end(self._run, TuningEnd(self._lost_at_s, self.reason, known))

    def _end_process(self, patience_s: float) -> None:
        """Hang up; what it holds is put back by the guardian, whatever the tuner does."""
        connection, self._connection = self._connection, None
        is_over = connection is None or connection.closed
        if connection and self._apart and patience_s:
            connection.receive(patience_s)
            is_over = connection.closed
        if connection:
            connection.close()
        if self._process is None:
            return
        if self._apart:  # known by its process group only, and reaped by init
            if not is_over:
                with suppress(OSError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._process = None
            return
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        if self._process.poll() is None:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_POLL_S)  # in a driver's call, not even SIGKILL ends it
        self._process = None


def _are_settings_back(pid: int) -> bool:
    """Whether no journal lists a setting that this process held."""
    from joulewise.control.status import list_held_settings
    from joulewise.process.state_dir import state_folders

    with suppress(OSError, JoulewiseError):
        folders = state_folders(os.environ)
        return all(each.holder.pid != pid for one in folders for each in list_held_settings(one))
    return False


def describe_error(error: JoulewiseError) -> dict[str, str]:
    """An error as the content of a message."""
    return {"message": error.message, "hint": error.hint}

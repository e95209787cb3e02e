"""One ``joulewise run`` of a sweep, in a process of its own that ends when the sweep does.

Waiting between runs, so that one does not warm up the next.

How warm GPUs are between runs.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final
from uuid import uuid4

from joulewise.data import RunResult
from joulewise.data.contract import from_json
from joulewise.data.sweeps import Setting, knob_option
from joulewise.errors import JoulewiseError
from joulewise.session.terminate import COMMAND_ID, Ending

GRACE_S: Final = 30.0
"""So long may a command that was told to end take, with its knobs put back and its result told."""

_REFUSED: Final = {2, 125, 126, 127}
_SAYS: Final = "joulewise: "
_TAIL_LINES: Final = 20
_TAIL_B: Final = 16384
# Not ``-m``: that would look for every module in the user's working directory first.
_MAIN: Final = (
    "import sys; parent, home = sys.argv[1:3]; del sys.argv[1:3]; "
    "sys.path[:] = [p for p in sys.path if p] + [home]; "
    "from joulewise.process.linux import die_with_parent; die_with_parent(int(parent)); "
    "from joulewise.cli import main; main()"
)


def knob_options(setting: Setting, gpus: Sequence[int], *, force: bool) -> list[str]:
    """As ``joulewise run`` takes them; a knob that is to be left alone is not among them."""
    turned = {name: value for name, value in setting.knobs.items() if value is not None}
    options = [f"{knob_option(name)}={value:g}" for name, value in turned.items()]
    if gpus and turned:
        options.append(f"--gpu={','.join(map(str, gpus))}")
    return [*options, *(["--force"] if force and turned else [])]


class MeasuredRun:
    """A run that goes on; what it says is in the log. Its knobs go back however it ends."""

    def __init__(
        self,
        store: Path,
        options: Sequence[str],
        command: Sequence[str],
        *,
        log: Path,
        environ: Mapping[str, str],
        cwd: str | None = None,
    ) -> None:
        self._log = log
        self._token = f"{os.getpid()}-{uuid4().hex}"
        log.parent.mkdir(parents=True, exist_ok=True)
        home = Path(__file__).parents[3]
        with log.open("ab") as output:
            output.write(os.fsencode(f"$ {shlex.join(command)}\n"))
            output.flush()
            self._scratch = tempfile.TemporaryDirectory(prefix="joulewise-")
            self._result = Path(self._scratch.name) / "result.json"
            arguments = ["--store", str(store.absolute()), "run", "--json", str(self._result)]
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-W", "ignore", "-c", _MAIN, str(os.getpid()), str(home)),
                    *(*arguments, *options, "--", *command),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environ, COMMAND_ID: self._token},
                cwd=cwd,
                # What a terminal sends goes to the sweep, which ends this in its own time.
                start_new_session=True,
            )

    def __enter__(self) -> MeasuredRun:  # noqa: PYI034  # Self came with Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
        self._scratch.cleanup()

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Its exit status, or None where it goes on after all that time."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    def end(self, grace_s: float = GRACE_S) -> None:
        """Ask the command to end, and all that it started; after the grace, kill them.

        What is left of a command that was ended would go on beside the next run, and be in its
        figures.
        """
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            if self.wait(grace_s) is None:
                self._process.kill()
                self._process.wait()
            Ending(self._token).end(grace_s)

    def result(self) -> RunResult:
        """What it came to, once it has ended."""
        try:
            return from_json(json.loads(self._result.read_text("utf-8")))
        except (OSError, ValueError):
            status = self._process.returncode
            raise JoulewiseError(
                self._refusal() or f"the run ended with status {status} and has no result",
                f"see {self._log}",
            ) from None

    def tail(self, run: str = "") -> str:
        return tail(self._log, run)

    def _refusal(self) -> str:
        """Why joulewise itself did not run it, such as a knob that somebody holds."""
        lines = self.tail().splitlines() if self._process.returncode in _REFUSED else []
        told = [line for line in lines if line.startswith(_SAYS)]
        return told[-1].removeprefix(_SAYS) if told else ""


def tail(log: Path, run: str = "") -> str:
    """The last lines that the command said, as text whatever they are.

    What ``run``, by its id, came to is told below them, and is elsewhere too.
    """
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _TAIL_B))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
    said, reported, _ = text.rpartition(f"run {run}\n") if run else (text, "", "")
    return "\n".join((said if reported else text).splitlines()[-_TAIL_LINES:])

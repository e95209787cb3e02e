"""One ``joulewise run`` of a sweep, in a process of its own that ends when the sweep does."""

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
from joulewise.data.run_result_json import from_json
from joulewise.data.sweeps import Setting, control_option
from joulewise.errors import JoulewiseError
from joulewise.session.termination import COMMAND_ID, RUN_ID, CommandTermination
from joulewise.store.runs import new_id

# How long a command that was asked to end may take, its controls restored and its result written.
# Chosen: with twice as long, a sweep that is interrupted waits up to a minute for each command.
GRACE_S: Final = 30.0

# Exit statuses with which joulewise itself refuses: wrong usage, and those of env(1) for a command
# that could not be measured, executed or found.
_REFUSED: Final = {2, 125, 126, 127}
_ERROR_PREFIX: Final = "joulewise: "
_TAIL_LINES: Final = 20
_TAIL_B: Final = 16384
# Not ``-m``: that would look for every module in the user's working directory first.
_MAIN: Final = (
    "import sys; parent, home = sys.argv[1:3]; del sys.argv[1:3]; "
    "sys.path[:] = [p for p in sys.path if p] + [home]; "
    "from joulewise.process.linux import die_with_parent; die_with_parent(int(parent)); "
    "from joulewise.cli import main; main()"
)


def control_options(setting: Setting, gpus: Sequence[int], *, force: bool) -> list[str]:
    """Write the controls of a setting as options of ``joulewise run``.

    Controls that the setting leaves alone (None) are left out.
    """
    controls = {name: value for name, value in setting.controls.items() if value is not None}
    options = [f"{control_option(name)}={value:g}" for name, value in controls.items()]
    if gpus and controls:
        options.append(f"--gpu={','.join(map(str, gpus))}")
    return [*options, *(["--force"] if force and controls else [])]


class MeasuredRun:
    """A ``joulewise run`` in progress; its output is appended to ``log``.

    ``run`` is the directory that it will make in the store: its id is handed to the child, so that
    the run can be followed while it is recorded. Controls are restored however the child ends.
    """

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
        self.run = store.absolute() / new_id()
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
                env={**environ, COMMAND_ID: self._token, RUN_ID: self.run.name},
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
        """Wait for the exit status; None where the child still runs after ``timeout_s``."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout_s)
        return None

    def end(self, grace_s: float = GRACE_S) -> None:
        """Ask the command and all processes that it started to end; kill them after ``grace_s``.

        Processes that are left would run beside the next run, and be measured with it.
        """
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            if self.wait(grace_s) is None:
                self._process.kill()
                self._process.wait()
            CommandTermination(self._token).end(grace_s)

    def result(self) -> RunResult:
        """Return the result of the ended run.

        Raises:
            JoulewiseError: there is none, with the reason that joulewise gave, if it gave one.
        """
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
        """Why joulewise itself did not run the command, such as a control that is leased."""
        lines = self.tail().splitlines() if self._process.returncode in _REFUSED else []
        errors = [line for line in lines if line.startswith(_ERROR_PREFIX)]
        return errors[-1].removeprefix(_ERROR_PREFIX) if errors else ""


def tail(log: Path, run: str = "") -> str:
    """Return the last lines of a log, undecodable bytes replaced; empty where it cannot be read.

    The report of the run with the id ``run``, which follows the command's output, is left out.
    """
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, log.stat().st_size - _TAIL_B))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
    output, report, _ = text.rpartition(f"run {run}\n") if run else (text, "", "")
    return "\n".join((output if report else text).splitlines()[-_TAIL_LINES:])

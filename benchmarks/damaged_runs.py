"""Damages run directories at random and has ls, show, export, report and choose answer them.

Every case copies one source run, damages one of its files (bit flips, a cut, zeros, bytes put in
or taken out, the file deleted, or two files swapped), and half of the cases also delete
result.json, so that the figures are computed again from what is left. Then:

- no command ends in a traceback, an unexpected error or a Python warning, and none hangs;
- JSON has no NaN and no Infinity;
- an energy, a time or a count that differs from that of the undamaged run comes with a warning
  that the undamaged run does not have, or the command ends with an error. ``ls`` may leave out an
  energy. What a run that was killed wrote after its last line of checksums (microseconds in the
  streams, up to 1 s in the marks) has none: such figures may differ, with the warning that the
  recorder ended.

What is damaged: runs with one and two GPUs, packed and not, of the CPU alone, that were killed, in
a group, stopped by a budget, tuned, of a recurring job, and of a sweep.

Each case runs in a process of its own, forked from one that has imported all that is needed. A case
that ends its process, uses over a minute of CPU time or waits for something that never comes, is
wrong, and the next ones are tried. The commands run within that process, but for every
``--processes``-th case, in which each is started by the real command line.

Each case is named by its seed, which makes it again from the same sources (``--sources``):

    python benchmarks/damaged_runs.py --cases 2000 --seed 0
    python benchmarks/damaged_runs.py --cases 1 --seed 1234 --verbose
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import pickle
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import click

from joulewise.cli import joulewise
from joulewise.errors import JoulewiseError
from joulewise.store.checksums import read_checksums

# CPU time for one command, and for all of a case; the slowest command, a report, takes about 1 s.
COMMAND_CPU_S, CASE_CPU_S = 20, 60
# A process that uses no CPU time for so long waits without end; chosen for a machine that is busy.
IDLE_S = 120
MEMORY_B = 8 << 30  # of address space for a case, so that a wrong length cannot fill the machine
SAME = 1e-6  # relative; the same numbers written and read, or summed in another order
TRAINING = """
import os, sys, time
import joulewise
boards = []
if "--gpus" in sys.argv:
    from joulewise.simulate.client import gpu
    boards = [gpu(index) for index in range(int(sys.argv[sys.argv.index("--gpus") + 1]))]
def work():
    for board in boards:
        board.step("resnet50", batch_size=4)
    if not boards:
        time.sleep(0.02)
with joulewise.span("training"):
    for epoch in range(3):
        with joulewise.span("epoch", epoch, total=3):
            for step in range(20):
                with joulewise.span("step", step):
                    work()
if "--killed" in sys.argv:
    time.sleep(1.2)  # until what was read has been written
    print("ready", flush=True)
    time.sleep(600)
"""
JOB = """
import sys
import joulewise
from joulewise.simulate.client import gpu
board = gpu(0)
for epoch in range(3):
    with joulewise.span("epoch", epoch, total=3):
        for step in range(20):
            with joulewise.span("step", step):
                board.step("resnet50", batch_size=int(sys.argv[1]))
    joulewise.log(val_acc=0.3 * epoch)
"""


@dataclass(frozen=True)
class Source:
    """A store with something to damage.

    ``asked`` is what commands are asked for, ``folders`` are what may be damaged, below the store.
    """

    name: str
    store: Path
    asked: str
    folders: tuple[str, ...]
    is_sweep: bool = False


# -- sources


def make_sources(place: Path, only: Collection[str] = ()) -> list[Source]:
    """Record all that is damaged; what is there already is taken as it is."""
    place.mkdir(parents=True, exist_ok=True)
    script = place / "training.py"
    script.write_text(TRAINING, "utf-8")
    makers: dict[str, Callable[[Path, Path], None]] = {
        "gpu": lambda store, script: _record(store, script, gpus=1),
        "packed": lambda store, script: _record(store, script, gpus=1, over_rows=0),
        "cpu": _record,
        "killed": _record_killed,
        "group": _record_group,
        "tuned": _record_tuned,
        "several": _record_several,
        "budget": _record_budget,
        "job": _record_job,
        "sweep": lambda store, _: _sweep(store),
    }
    wanted = [name for name in makers if not only or name in only]
    for name in wanted:
        make = makers[name]
        if not (place / name).exists():
            make(place / f".{name}", script)
            (place / f".{name}").rename(place / name)
    return [_source(name, place / name) for name in wanted]


def _record(
    store: Path,
    script: Path,
    *options: str,
    gpus: int = 0,
    over_rows: int = -1,
    status: int = 0,
) -> None:
    nested = (*_program(), "sim", "--gpu", f"v100x{gpus}", "--") if gpus else ()
    environ = dict(os.environ)
    if over_rows >= 0:
        environ["JOULEWISE_COMPACT_OVER_ROWS"] = str(over_rows)
    command = (*nested, *_program(), "--store", str(store), "run", *options, "--")
    done = subprocess.run(
        [*command, sys.executable, str(script), *_gpus(gpus)],
        check=False,
        env=environ,
        capture_output=True,
    )
    assert done.returncode == status, (done.returncode, done.stderr)


def _gpus(number: int) -> tuple[str, ...]:
    return ("--gpus", str(number)) if number else ()


def _record_group(store: Path, script: Path) -> None:
    for _ in range(2):
        _record(store, script, "--group", "pair", gpus=1)


def _record_tuned(store: Path, script: Path) -> None:
    """A tuning that settles after about 110 steps; ``script`` has too few."""
    steps = Path(__file__).parents[1] / "examples" / "simulated_steps.py"
    tune = ("tune", "--axis", "power-limit", "--by", "energy", "--")
    subprocess.run(
        [
            *(*_program(), "sim", "--gpu", "v100", "--as-root", "--"),
            *(*_program(), "--store", str(store), *tune, sys.executable, str(steps), "150"),
        ],
        check=True,
        capture_output=True,
        cwd=script.parent,
    )


def _record_several(store: Path, script: Path) -> None:
    """Two GPUs, with the energy above idle, carbon and costs."""
    options = ("--baseline", "0.5", "--gco2-per-kwh", "400", "--price", "0.3")
    _record(store, script, *options, gpus=2)


def _record_budget(store: Path, script: Path) -> None:
    """A run that its budget of energy ended, before its last epoch."""
    _record(store, script, "--budget", "60J:stop", gpus=1, status=128 + signal.SIGTERM)


def _record_job(store: Path, script: Path) -> None:
    """A recurrence of a recurring job, tuned while it trains."""
    training = script.with_name("job.py")
    training.write_text(JOB, "utf-8")
    what = (
        *("--set", "batch_size=32,64", "--default", "batch_size=32"),
        *("--target", "val_acc>=0.5", "--max-epochs", "5"),
    )
    subprocess.run(
        [
            *(*_program(), "sim", "--gpu", "v100", "--as-root", "--"),
            *(*_program(), "--store", str(store), "job", "run", "nightly", *what, "--"),
            *(sys.executable, str(training), "{batch_size}"),
        ],
        check=True,
        capture_output=True,
    )


def _record_killed(store: Path, script: Path) -> None:
    """The command, its recorder and joulewise itself are killed at once."""
    from joulewise.store.manifest import read_manifest

    process = subprocess.Popen(
        [
            *(*_program(), "sim", "--gpu", "v100", "--"),
            *(*_program(), "--store", str(store), "run", "--"),
            *(sys.executable, str(script), "--killed", *_gpus(1)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    [run] = store.iterdir()
    manifest = read_manifest(run)
    assert manifest.recorder is not None
    parents = [_parent(manifest.commands[0].pid), process.pid]
    for pid in (manifest.recorder.pid, *parents, manifest.commands[0].pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _sweep(store: Path) -> None:
    command = ("sweep", "--sim", "v100", "--workload", "resnet50", "--power-limit", "150:300:75")
    subprocess.run(
        [*_program(), "--store", str(store), *command, "--repeat", "2"],
        check=True,
        capture_output=True,
    )


def _program() -> tuple[str, ...]:
    return sys.executable, "-m", "joulewise"


def _source(name: str, store: Path) -> Source:
    runs = sorted(path.parent.name for path in store.glob("*/run.json"))
    if name == "sweep":
        [sweep] = (store / "sweeps").iterdir()
        return Source(name, store, sweep.name, (f"sweeps/{sweep.name}", runs[0]), is_sweep=True)
    return Source(name, store, "pair" if name == "group" else runs[0], (runs[0],))


# -- damage


def damage(path: Path, other: Path, rng: random.Random) -> str:
    """Damage a file in one way; what was done. ``other`` is one that it may be swapped with."""
    content = path.read_bytes()
    size = len(content)
    way = rng.choice(["flip", "flip", "flip", "cut", "zero", "insert", "take", "delete", "swap"])
    at = rng.randrange(size) if size else 0
    length = min(rng.choice([1, 2, 4, 8, 64, 512, 4096]), max(size - at, 1))
    if way == "delete":
        path.unlink()
        return way
    if way == "swap":
        swapped = other.read_bytes()
        other.write_bytes(content)
        path.write_bytes(swapped)
        return f"swap with {other.name}"
    if way == "flip":
        changed = bytearray(content)
        for _ in range(rng.choice([1, 1, 1, 2, 8])):
            if size:
                changed[rng.randrange(size)] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        return way
    if way == "cut":
        path.write_bytes(content[:at])
    elif way == "zero":
        path.write_bytes(content[:at] + bytes(length) + content[at + length :])
    elif way == "insert":
        path.write_bytes(content[:at] + rng.randbytes(length) + content[at:])
    else:
        path.write_bytes(content[:at] + content[at + length :])
    return f"{way} {length} B at {at}"


@dataclass(frozen=True)
class Case:
    """One damaged store; ``what`` says which file, and how."""

    seed: int
    source: Source
    store: Path
    is_computed: bool
    what: str
    is_unchecked: bool = False  # there is no checksum of what was damaged


def make_case(seed: int, sources: Sequence[Source], place: Path) -> Case:
    """All that is random about a case comes of its seed."""
    rng = random.Random(seed)
    source = rng.choice(sources)
    store = place / f"{seed}"
    shutil.copytree(source.store, store)
    folder = store / rng.choice(source.folders)
    is_computed = rng.random() < 0.5
    if is_computed:
        (store / damaged_run(source) / "result.json").unlink(missing_ok=True)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    # A file of each kind as often as any other: there are a dozen streams to one run.json.
    by_kind: dict[str, list[Path]] = {}
    for path in files:
        by_kind.setdefault(_kind(path), []).append(path)
    path = rng.choice(by_kind[rng.choice(sorted(by_kind))])
    alike = [each for each in files if each != path and each.suffix == path.suffix]
    other = rng.choice(alike or [each for each in files if each != path] or [path])
    checked_b = checked_bytes(folder)
    before = {each: each.read_bytes() for each in (path, other)}
    done = damage(path, other, rng)
    # A result that is gone is computed again, and compared with one that was.
    is_computed = is_computed or not (store / damaged_run(source) / "result.json").exists()
    what = f"{source.name}: {path.relative_to(store)}: {done}"
    what += ", no result" if is_computed else ""
    is_unchecked = source.name == "killed" and _is_unchecked(before, checked_b)
    return Case(seed, source, store, is_computed, what, is_unchecked)


def checked_bytes(folder: Path) -> dict[Path, int]:
    """Of how many bytes of each file of a run there are checksums."""
    files = read_checksums(folder).files
    return {folder / name: each.prefixes[-1][0] for name, each in files.items() if each.prefixes}


def _is_unchecked(before: dict[Path, bytes], checked_b: dict[Path, int]) -> bool:
    """Whether there was no checksum of what was damaged; ``before`` is what the files held."""
    changed = {path: content for path, content in before.items() if _content(path) != content}
    return any(
        _same_b(content, _content(path)) >= checked_b.get(path, 0)
        for path, content in changed.items()
        if path.parent.name in {"trace", "marks"} or path.suffix == ".jsonl"
    )


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _same_b(first: bytes, second: bytes) -> int:
    """How many bytes from the beginning are the same."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))


def _kind(path: Path) -> str:
    if path.parent.name == "trace":
        lane = path.name.partition(".")[2]
        return "power" if lane in {"arrows", "parquet"} else "sensors"
    return path.parent.name if path.parent.name == "marks" else path.name


# -- commands


@dataclass(frozen=True)
class Answer:
    """What a command said; ``problem`` is what no command may do."""

    status: int
    stdout: str
    stderr: str
    problem: str = ""
    page: str = ""


class TooSlowError(BaseException):
    """A command that takes too much CPU time; no ``except Exception`` stops it."""


@contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def ask(store: Path, *arguments: str) -> Answer:
    """A command in this process; a Python warning is an error."""
    out, err = _Text(), _Text()
    status, problem = 0, ""
    try:
        with (
            warnings.catch_warnings(),
            redirect_stdout(out),
            redirect_stderr(err),
            time_limit(COMMAND_CPU_S),
        ):
            warnings.simplefilter("error")
            joulewise.main(["--store", str(store), *arguments], "joulewise", standalone_mode=False)
    except JoulewiseError as error:
        status = error.exit_status
        err.write(f"joulewise: {error.message}\n")
        if "\n" in error.message.strip() or not error.hint:
            problem = f"not one line of what is wrong and one of what to do: {error.message!r}"
    except click.UsageError as error:
        status = 2
        err.write(f"joulewise: {error.format_message()}\n")
    except click.exceptions.Exit as end:
        status = end.exit_code
    except TooSlowError:
        status, problem = 125, f"took over {COMMAND_CPU_S} s of CPU"
    except (Exception, SystemExit):  # noqa: BLE001  # that is what is looked for
        status, problem = 125, traceback.format_exc()
    return Answer(status, out.getvalue(), err.getvalue(), problem or _said(err.getvalue()))


def ask_process(store: Path, *arguments: str) -> Answer:
    """The same by the real command line, whose CPU time is limited in the same way."""
    command = [*_program(), "--store", str(store), *arguments]
    limit = f'ulimit -t {COMMAND_CPU_S} && exec "$@"'
    done = subprocess.run(
        ["sh", "-c", limit, "sh", *command], capture_output=True, text=True, check=False
    )
    problem = f"ended by signal {-done.returncode}" if done.returncode < 0 else ""
    return Answer(done.returncode, done.stdout, done.stderr, problem or _said(done.stderr))


def _said(stderr: str) -> str:
    bad = [word for word in ("Traceback", "unexpected", "Warning:") if word in stderr]
    return f"said {bad[0]!r}: {stderr}" if bad else ""


class _Text(io.TextIOWrapper):
    """What is written as text or, to its buffer, as bytes."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def getvalue(self) -> str:
        return self.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]


Ask = Callable[..., Answer]
PAGE = "page.html"
NOW = "now"  # what is being tried, and which command was asked last
EXPORTS = ("trace", "samples", "sensors", "spans")
WITHOUT_PAGES = (
    *("ls", "ls --json", "show", "show --json", "choose", "choose --json", "report --json"),
    *(f"export {what}" for what in EXPORTS),
)


def commands(source: Source, place: Path, run: str) -> dict[str, tuple[str, ...]]:
    """What each case is asked; ``run`` is the damaged one."""
    page = str(place / PAGE)
    asked: dict[str, tuple[str, ...]] = {"ls": ("ls",), "ls --json": ("ls", "--json", "-")}
    if source.is_sweep:
        asked["choose"] = ("choose", source.asked)
        asked["choose --json"] = ("choose", source.asked, "--json", "-")
        asked["report of the sweep"] = ("report", source.asked, "-o", page, "--force")
    which = run if source.is_sweep else source.asked
    asked["show"] = ("show", which)
    asked["show --json"] = ("show", which, "--json", "-")
    asked["report"] = ("report", which, "-o", page, "--force")
    asked["report --json"] = ("report", which, "--json", "-")
    for what in EXPORTS:
        options = ("--what", what, "--format", "json", "-o", "-")
        asked[f"export {what}"] = ("export", run, *options)
    return asked


# -- numbers

WARNED = ("warnings", "cautions", "skipped")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} in JSON")


def numbers(reported: Any, path: str = "") -> dict[str, Any]:
    """Every number and null of a JSON value by where it stands."""
    found: dict[str, Any] = {}
    if isinstance(reported, dict):
        for key, value in reported.items():
            found.update(numbers(value, f"{path}.{key}"))
    elif isinstance(reported, list):
        found[f"{path}.length"] = len(reported)
        for i, value in enumerate(reported):
            found.update(numbers(value, f"{path}.{i}"))
    elif reported is None or isinstance(reported, int | float):
        found[path] = reported
    return found


def figures(payload: Any) -> dict[str, Any]:
    """All numbers of what a command wrote as JSON; what it warns of is judged apart."""
    if isinstance(payload, dict):
        payload = {key: each for key, each in payload.items() if key not in WARNED}
    return numbers(payload)


def differing(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Where the numbers are not the same."""
    return [
        f"{key} {before.get(key)} -> {after.get(key)}"
        for key in sorted(before.keys() | after.keys())
        if key not in before or key not in after or not _same(before[key], after[key])
    ]


def _same(first: Any, second: Any) -> bool:
    if first is None or second is None:
        return first is second
    return bool(abs(first - second) <= SAME * max(abs(first), abs(second)))


def cautioned(reported: Any, stderr: str) -> set[str]:
    """What an answer warns of: its warnings, what it skipped, and what it said on stderr."""
    found = {line for line in stderr.splitlines() if line.startswith("joulewise:")}
    if isinstance(reported, dict):
        warned = (*reported.get("warnings", ()), *reported.get("cautions", ()))
        found |= {f"{one.get('code')} {one.get('device')}" for one in warned}
        found |= {f"skipped {one['path']}" for one in reported.get("skipped", ())}
    return found


# -- checking


@dataclass
class Baseline:
    """What the undamaged source says, with its result as stored and computed again."""

    answers: dict[tuple[str, bool], dict[str, Answer]] = field(default_factory=dict)

    def of(self, case: Case, place: Path) -> dict[str, Answer]:
        key = (case.source.name, case.is_computed)
        if key not in self.answers:
            answers = self.answer(case.source, place, is_computed=case.is_computed)
            self.answers[key] = answers
        return self.answers[key]

    def answer(self, source: Source, place: Path, *, is_computed: bool) -> dict[str, Answer]:
        store = place / f"baseline-{source.name}-{is_computed}"
        shutil.copytree(source.store, store)
        run = damaged_run(source)
        if is_computed:
            (store / run / "result.json").unlink(missing_ok=True)
        asked = commands(source, place, run)
        answers = {name: ask(store, *words) for name, words in asked.items()}
        shutil.rmtree(store)
        for name, answer in answers.items():
            if answer.problem or answer.status:
                raise SystemExit(f"{source.name} undamaged: {name}: {answer}")
        return answers


def damaged_run(source: Source) -> str:
    return source.folders[-1]


def check(name: str, answer: Answer, before: Answer, *, is_unchecked: bool = False) -> str:
    """What is wrong with an answer, or nothing."""
    if answer.problem:
        return answer.problem
    if answer.status:
        lines = [line for line in answer.stderr.splitlines() if line.startswith("joulewise:")]
        return "" if lines else f"exit status {answer.status} without a word"
    if "cannot be read (" in answer.page:
        return "figures failed: " + answer.page.partition("cannot be read (")[2][:200]
    if not (name.endswith("--json") or name.startswith("export")):
        return ""
    try:
        payload = json.loads(answer.stdout, parse_constant=_no_constant)
    except ValueError as error:
        return f"{error}: {answer.stdout[:200]}"
    known = json.loads(before.stdout)
    changed = differing(figures(known), figures(payload))
    if name.startswith("ls"):
        changed = [each for each in changed if not each.endswith(" -> None")]
    said = cautioned(payload, answer.stderr)
    new = said - cautioned(known, before.stderr)
    if is_unchecked:
        new |= {each for each in said if "recorder" in each}
    if changed and not new:
        return f"{len(changed)} numbers changed without a warning: {'; '.join(changed[:4])}"
    return ""


def try_case(
    seed: int,
    sources: Sequence[Source],
    place: Path,
    baseline: Baseline,
    *,
    ask: Ask = ask,
    only: Collection[str] = (),
) -> tuple[Case, dict[str, str]]:
    """The case, and by command what is wrong with its answer; ``only`` names some commands."""
    case = make_case(seed, sources, place)
    try:
        known = baseline.of(case, place)
        wrong = {}
        for name, arguments in commands(case.source, place, damaged_run(case.source)).items():
            if only and name not in only:
                continue
            (place / NOW).write_text(f"{case.what}\n{name}", "utf-8")
            answer = ask(case.store, *arguments)
            if name.startswith("report") and "--force" in arguments and not answer.status:
                answer = replace(answer, page=(place / PAGE).read_text("utf-8"))
            problem = check(name, answer, known[name], is_unchecked=case.is_unchecked)
            if problem:
                wrong[name] = problem
    finally:
        shutil.rmtree(case.store)
    return case, wrong


def try_case_apart(
    seed: int, sources: Sequence[Source], place: Path, baseline: Baseline, **options: Any
) -> tuple[str, dict[str, str]]:
    """The same in a process of its own: what was damaged, and what is wrong by command."""

    def act() -> tuple[str, dict[str, str]]:
        case, wrong = try_case(seed, sources, place, baseline, **options)
        return case.what, wrong

    (place / NOW).write_text("no case\nno command", "utf-8")
    try:
        what, wrong = in_fork(act)
    except EndedError as error:
        shutil.rmtree(place / f"{seed}", ignore_errors=True)
        what, command = (place / NOW).read_text("utf-8").split("\n")
        wrong = {command: str(error)}
    return what, wrong


# -- a process for each case


class EndedError(Exception):
    """A forked process ended without an answer."""


def in_fork(act: Callable[[], Any]) -> Any:
    """What ``act`` returns, in a process of its own; EndedError where there is no answer."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        _answer(act, writer)
    os.close(writer)
    answer, is_idle = _read_answer(pid, reader)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if is_idle:
        raise EndedError(f"it waited for {IDLE_S} s without using CPU time")
    if code:
        raise EndedError(f"its process ended by {_name_end(code)}")
    return pickle.loads(answer)  # our own fork wrote it


def _answer(act: Callable[[], Any], writer: int) -> NoReturn:
    """In the fork: write the answer and end, whatever happens."""
    status = 1
    try:
        os.setpgid(0, 0)  # so that what it starts ends with it
        resource.setrlimit(resource.RLIMIT_CPU, (CASE_CPU_S, CASE_CPU_S))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_B, MEMORY_B))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with os.fdopen(writer, "wb") as file:
            file.write(pickle.dumps(act()))
        status = 0
    except BaseException:  # noqa: BLE001  # there is nobody above in a fork
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _read_answer(pid: int, reader: int) -> tuple[bytes, bool]:
    """All that a fork wrote, and whether it was ended because it waited for too long."""
    pieces: list[bytes] = []
    used_s, since_s, is_idle = 0.0, time.monotonic(), False
    with os.fdopen(reader, "rb", buffering=0) as file:
        while True:
            if select.select([file], [], [], 10)[0]:
                piece = file.read(1 << 16)
                if not piece:
                    return b"".join(pieces), is_idle
                pieces.append(piece)
                continue
            now_s = _group_cpu_s(pid)
            if now_s > used_s:
                used_s, since_s = now_s, time.monotonic()
            elif time.monotonic() - since_s > IDLE_S:
                is_idle = True
                os.killpg(pid, signal.SIGKILL)


def _group_cpu_s(group: int) -> float:
    """CPU time of the processes of a group and of those of their children that have ended."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[2]) == group:
                ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _name_end(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"


def import_what_is_used(baseline: Baseline, sources: Sequence[Source], place: Path) -> None:
    """Answer for the undamaged sources in forks, and import here what these had to import.

    No command runs in the process that forks: a fork has none of its threads.
    """
    for source in sources:
        for is_computed in (True, False):

            def answer(source: Source = source, is_computed: bool = is_computed) -> Any:
                return baseline.answer(source, place, is_computed=is_computed), set(sys.modules)

            answers, modules = in_fork(answer)
            baseline.answers[source.name, is_computed] = answers
            for name in sorted(modules - sys.modules.keys()):
                with suppress(ImportError):
                    importlib.import_module(name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case; then one more each")
    parser.add_argument(
        "--processes", type=int, default=100, help="every so many by the real command line"
    )
    parser.add_argument(
        "--pages", type=int, default=1, help="every so many also as HTML, half of a case's time"
    )
    parser.add_argument("--sources", type=Path, help="where the undamaged runs are kept")
    parser.add_argument("--verbose", action="store_true", help="say what each case is")
    options = parser.parse_args()
    failed: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="joulewise-damaged-") as folder:
        place = Path(folder)
        sources = make_sources(options.sources or place / "sources")
        baseline = Baseline()
        import_what_is_used(baseline, sources, place)
        for seed in range(options.seed, options.seed + options.cases):
            in_process = not options.processes or (seed + 1) % options.processes
            asker = ask if in_process else ask_process
            only = () if seed % options.pages == 0 else WITHOUT_PAGES
            what, wrong = try_case_apart(seed, sources, place, baseline, ask=asker, only=only)
            kinds[what.partition(":")[0]] += 1
            if options.verbose:
                print(f"seed {seed}: {what}", flush=True)
            for name, problem in wrong.items():
                failed[name] += 1
                print(f"seed {seed}: {what}\n  {name}: {problem}", flush=True)
    last = options.seed + options.cases - 1
    used = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = sum(each.ru_utime + each.ru_stime for each in used)
    print(f"{options.cases} cases, seeds {options.seed} to {last}: {sum(failed.values())} wrong")
    print(f"{kinds.total()} verdicts ({', '.join(f'{n} {kind}' for kind, n in kinds.items())})")
    print(f"{used_s:.0f} s of CPU")
    for name, count in failed.items():
        print(f"  {name}: {count}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

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

Each case is named by its seed, which alone makes it again:

    python benchmarks/damaged_runs.py --cases 2000 --seed 0
    python benchmarks/damaged_runs.py --cases 1 --seed 1234 --verbose
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from joulewise.cli import joulewise
from joulewise.errors import JoulewiseError
from joulewise.store.checksums import read_checksums

LIMIT_S = 60  # for one command; the slowest, a report, takes about 1 s
SAME = 1e-6  # relative; the same numbers written and read, or summed in another order
TRAINING = """
import os, signal, sys, time
import joulewise
with joulewise.span("training"):
    for epoch in range(3):
        with joulewise.span("epoch", epoch, total=3):
            for step in range(20):
                with joulewise.span("step", step):
                    time.sleep(0.02)
if "--killed" in sys.argv:
    time.sleep(1.2)  # until what was read has been written
    print("ready", flush=True)
    time.sleep(600)
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
        "gpu": lambda store, script: _record(store, script, gpu="v100"),
        "packed": lambda store, script: _record(store, script, gpu="v100", over_rows=0),
        "cpu": _record,
        "killed": _record_killed,
        "group": _record_group,
        "tuned": _record_tuned,
        "sweep": lambda store, _: _sweep(store),
    }
    wanted = [name for name in makers if not only or name in only]
    for name in wanted:
        make = makers[name]
        if not (place / name).exists():
            make(place / f".{name}", script)
            (place / f".{name}").rename(place / name)
    return [_source(name, place / name) for name in wanted]


def _record(store: Path, script: Path, *options: str, gpu: str = "", over_rows: int = -1) -> None:
    simulated = ("sim", "--gpu", gpu, "--workload", "resnet50", "--") if gpu else ()
    nested = (*_program(), *simulated) if gpu else ()
    environ = dict(os.environ)
    if over_rows >= 0:
        environ["JOULEWISE_COMPACT_OVER_ROWS"] = str(over_rows)
    command = (*nested, *_program(), "--store", str(store), "run", *options, "--")
    subprocess.run(
        [*command, sys.executable, str(script)], check=True, env=environ, capture_output=True
    )


def _record_group(store: Path, script: Path) -> None:
    for _ in range(2):
        _record(store, script, "--group", "pair", gpu="v100")


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


def _record_killed(store: Path, script: Path) -> None:
    """The command, its recorder and joulewise itself are killed at once."""
    from joulewise.store.manifest import read_manifest

    process = subprocess.Popen(
        [
            *(*_program(), "sim", "--gpu", "v100", "--workload", "resnet50", "--"),
            *(*_program(), "--store", str(store), "run", "--"),
            *(sys.executable, str(script), "--killed"),
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
    runs = sorted(path.name for path in store.iterdir() if path.name != "sweeps")
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
    elif way == "swap":
        swapped = other.read_bytes()
        other.write_bytes(content)
        path.write_bytes(swapped)
        return f"swap with {other.name}"
    elif way == "flip":
        changed = bytearray(content)
        for _ in range(rng.choice([1, 1, 1, 2, 8])):
            if size:
                changed[rng.randrange(size)] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        return way
    elif way == "cut":
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
    """A command that hangs; no ``except Exception`` stops it."""


@contextmanager
def time_limit(limit_s: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlowError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def ask(store: Path, *arguments: str) -> Answer:
    """A command in this process; a Python warning is an error."""
    out, err = _Text(), _Text()
    status, problem = 0, ""
    try:
        with (
            warnings.catch_warnings(),
            redirect_stdout(out),
            redirect_stderr(err),
            time_limit(LIMIT_S),
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
        status, problem = 125, f"took over {LIMIT_S} s"
    except (Exception, SystemExit):  # noqa: BLE001  # that is what is looked for
        status, problem = 125, traceback.format_exc()
    return Answer(status, out.getvalue(), err.getvalue(), problem or _said(err.getvalue()))


def ask_process(store: Path, *arguments: str) -> Answer:
    """The same in a process of its own."""
    command = [*_program(), "--store", str(store), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return Answer(125, "", "", f"took over {LIMIT_S} s")
    return Answer(done.returncode, done.stdout, done.stderr, _said(done.stderr))


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


FIGURES = (
    *("time_s", "energy_j", "spans", "counted", "net_total"),
    *("exit_code", "points", "best", "tune"),
)


def figures(payload: Any) -> dict[str, Any]:
    """The energies, times and counts of what a command wrote as JSON."""
    if not isinstance(payload, dict):
        return numbers(payload)
    if "runs" in payload:
        shown = [{key: run.get(key) for key in FIGURES} for run in payload["runs"]]
        return numbers({"runs": shown})
    return numbers({key: payload[key] for key in FIGURES if key in payload})


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
            store = place / f"baseline-{case.source.name}-{case.is_computed}"
            shutil.copytree(case.source.store, store)
            run = damaged_run(case.source)
            if case.is_computed:
                (store / run / "result.json").unlink(missing_ok=True)
            asked = commands(case.source, place, run)
            self.answers[key] = {name: ask(store, *args) for name, args in asked.items()}
            shutil.rmtree(store)
            for name, answer in self.answers[key].items():
                if answer.problem or answer.status:
                    raise SystemExit(f"{key} undamaged: {name}: {answer}")
        return self.answers[key]


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
            answer = ask(case.store, *arguments)
            if name.startswith("report") and "--force" in arguments and not answer.status:
                answer = replace(answer, page=(place / PAGE).read_text("utf-8"))
            problem = check(name, answer, known[name], is_unchecked=case.is_unchecked)
            if problem:
                wrong[name] = problem
    finally:
        shutil.rmtree(case.store)
    return case, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case; then one more each")
    parser.add_argument("--processes", type=int, default=40, help="every so many, in processes")
    parser.add_argument(
        "--pages", type=int, default=1, help="every so many also as HTML, half of a case's time"
    )
    parser.add_argument("--sources", type=Path, help="where the undamaged runs are kept")
    parser.add_argument("--verbose", action="store_true", help="say what each case is")
    options = parser.parse_args()
    failed: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="joulewise-damaged-") as folder:
        place = Path(folder)
        sources = make_sources(options.sources or place / "sources")
        baseline = Baseline()
        for seed in range(options.seed, options.seed + options.cases):
            in_process = not options.processes or seed % options.processes
            asker = ask if in_process else ask_process
            only = () if seed % options.pages == 0 else WITHOUT_PAGES
            case, wrong = try_case(seed, sources, place, baseline, ask=asker, only=only)
            if options.verbose:
                print(f"seed {seed}: {case.what}", flush=True)
            for name, problem in wrong.items():
                failed[name] += 1
                print(f"seed {seed}: {case.what}\n  {name}: {problem}", flush=True)
    last = options.seed + options.cases - 1
    print(f"{options.cases} cases, seeds {options.seed} to {last}: {sum(failed.values())} wrong")
    for name, count in failed.items():
        print(f"  {name}: {count}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

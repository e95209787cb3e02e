"""A store that has grown: what the lists and looking up a run cost with 100,000 runs in it.

    python benchmarks/store_index.py [--runs 100000] [--sweeps 2000] [--rounds 3] [--folder DIR]

One real run is recorded; the others are copies of its run.json and result.json under ids, names,
starts and energies of their own. The older half is of sweeps; each sweep is a copy of the
sweep.json of one that was simulated, with 50 runs. CPU time of each command, imports included; of
``view`` that of its process for one page. The least of several rounds counts, since other work on
the machine only adds.

The lists are compared with a plain reading of the directories: as they are, after the index was
damaged, deleted, or replaced by that of another store (runs of the same names with other energies),
after runs were copied in, removed, edited and put there by an older version, where two commands
make the index at once, and where two runs are recorded at once. The first page of ``view`` is
compared, too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from helpers.peers import JOULEWISE, cost_s, cpu_s
from helpers.verdict import Verdicts

from joulewise.data.sweeps import RunCounts
from joulewise.store.checksums import with_checksum
from joulewise.store.index.folder_index import SMALL_STORE
from joulewise.store.index.run_entry import SWEEP_TAG, RunEntry, read_entry
from joulewise.store.layout import INDEX, MANIFEST, RESULT, SWEEPS
from joulewise.store.runs import Skipped, with_head_checksum
from joulewise.sweep.stored_sweeps import SWEEP_FILE
from joulewise.sweep.stored_sweeps import sweeps as read_sweeps

FIRST_S = 1_700_000_000
APART_S = 300
BUILD_S, SHOW_S, LIST_S, FILTER_S = 60.0, 0.5, 1.0, 2.0
MEAN_J, OTHER_MEAN_J = 20_000.0, 500.0  # of the runs of the store, and of another one
OTHER_RUNS = 1000
FEWEST_RUNS = SMALL_STORE + 1  # a store of fewer has no index file
FEWEST_SWEEPS = 10  # an index file of their own, and one that is named sweep-7
VIEW_PAGE = 10  # runs: the first page of view shows more than these


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--sweeps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the store is made, and then deleted")
    options = parser.parse_args()
    if options.runs < FEWEST_RUNS or options.sweeps < FEWEST_SWEEPS:
        parser.error(f"at least {FEWEST_RUNS} runs and {FEWEST_SWEEPS} sweeps are needed")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        store, other = Path(folder) / "runs", Path(folder) / "other"
        print(f"load of the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
        sweeps = make_sweeps(store, options.sweeps)
        made_s = _timed(lambda: make_store(store, options.runs, sweeps))
        print(f"{options.runs:,} runs and {len(sweeps):,} sweeps were made in {made_s:.0f} s")
        make_store(other, options.runs, sweeps, OTHER_MEAN_J, OTHER_RUNS)
        verdicts = Verdicts()
        measure(store, options.rounds, verdicts)
        check(store, other, verdicts)
        check_sweeps(store, verdicts)
        print(f"load of the last minute: {os.getloadavg()[0]:.1f}")
    verdicts.show()
    return 0 if verdicts.all_met else 1


def make_sweeps(store: Path, number: int) -> list[str]:
    """Copies of the sweep.json of one sweep in virtual time; their ids."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [
                *(JOULEWISE, "--store", folder, "sweep", "--sim", "v100"),
                *("--workload", "resnet50", "--power-limit", "165:300:15", "--repeat", "5"),
            ],
            check=True,
            capture_output=True,
        )
        [first] = (Path(folder) / SWEEPS).iterdir()
        payload = json.loads((first / SWEEP_FILE).read_text())
    del payload["crc32"]
    trials = json.dumps(payload.pop("trials"))
    ids = []
    for count in range(number):
        start_s = FIRST_S + 50 * APART_S * count
        sweep_id = f"{_stamp(start_s)}-{count % 65536:04x}"
        own = {"id": sweep_id, "name": f"sweep-{count % 100}", "start_wall_ns": start_s * 10**9}
        head = json.dumps({**payload, **own}).removesuffix("}")
        folder_of_it = store / SWEEPS / sweep_id
        folder_of_it.mkdir(parents=True)
        text = f'{head}, "trials": {trials}}}'.replace(first.name, sweep_id)
        (folder_of_it / SWEEP_FILE).write_text(with_checksum(text))
        ids.append(sweep_id)
    return ids


def make_store(
    store: Path,
    number: int,
    sweeps: Sequence[str],
    mean_j: float = MEAN_J,
    newest: int | None = None,
) -> None:
    """A store of that many runs, or of its newest; their names are the same on each call."""
    subprocess.run(
        [JOULEWISE, "--store", store, "run", "--name", "NAME", "--", "true"],
        check=True,
        capture_output=True,
    )
    (first,) = (path for path in store.iterdir() if path.is_dir() and path.name != SWEEPS)
    payload = json.loads((first / MANIFEST).read_text())
    del payload["crc32"]
    wall_ns, manifest = str(payload["wall_start_ns"]), json.dumps(payload, indent=1)
    head, rest = (first / RESULT).read_text().split("\n", 1)
    line = json.loads(head.rstrip(",") + "}")
    del line["head_crc32"]
    body = json.loads("{" + rest)
    del body["crc32"]
    rest = json.dumps(body)[1:]
    shutil.rmtree(first)
    dice = random.Random(0)
    for count in range(number):
        start_s = FIRST_S + APART_S * count
        run_id = f"{_stamp(start_s)}-{dice.getrandbits(16):04x}"
        energy = {**line["energy_j"]["total"], "value": round(dice.expovariate(1 / mean_j), 3)}
        if newest is not None and count < number - newest:
            continue
        run = store / run_id
        run.mkdir()
        text = manifest.replace(first.name, run_id).replace(wall_ns, f"{start_s}123456789")
        text = text.replace('"NAME"', f'"job-{count % 1000}"')
        if count // 50 < len(sweeps) and count < number // 2:
            text = text.replace('"tags": []', f'"tags": ["sweep:{sweeps[count // 50]}"]')
        (run / MANIFEST).write_text(with_checksum(text))
        mine = {**line, "energy_j": {**line["energy_j"], "total": energy}}
        head, tail = (text.replace(first.name, run_id) for text in (json.dumps(mine), rest))
        (run / RESULT).write_text(with_checksum(f"{with_head_checksum(head)}\n{tail}"))


def measure(store: Path, rounds: int, verdicts: Verdicts) -> None:
    def cost(*words: str) -> float:
        return cost_s([JOULEWISE, "--store", str(store), *words], store.parent)[0]

    def least(*words: str) -> float:
        return min(cost(*words) for _ in range(rounds))

    alone_s = least("show", "last")
    assert not (store / INDEX).exists(), "show last made an index"
    verdicts.at_most("show last without an index, CPU s", alone_s, SHOW_S, percent=False)
    build_s, wall_s = cost_s([JOULEWISE, "--store", str(store), "ls"], store.parent)
    print(f"the index was made in {wall_s:.0f} s on the wall")
    verdicts.at_most("ls that makes the index, CPU s", build_s, BUILD_S, percent=False)
    print(f"the index has {(store / INDEX).stat().st_size / 1e6:.0f} MB")
    for what, limit_s, words in (
        ("show last", SHOW_S, ["show", "last"]),
        ("ls", LIST_S, ["ls"]),
        ("ls --page 1000", LIST_S, ["ls", "--page", "1000"]),
        ("ls --filter 'energy>60kJ'", FILTER_S, ["ls", "--filter", "energy>60kJ"]),
        ("ls --filter 'name=job-1*'", FILTER_S, ["ls", "--filter", "name=job-1*"]),
        ("show NAME", LIST_S, ["show", "job-7"]),
        ("choose that makes its index", BUILD_S, ["choose"]),
        ("choose", LIST_S, ["choose"]),
        ("choose NAME", LIST_S, ["choose", "sweep-7"]),
        ("choose last", LIST_S, ["choose", "last"]),
    ):
        used_s = cost(*words) if limit_s == BUILD_S else least(*words)
        verdicts.at_most(f"{what}, CPU s", used_s, limit_s, percent=False)
    for what, query in (("", ""), (" by energy", "?sort=energy"), (" page 500", "?page=500")):
        verdicts.at_most(
            f"view, list{what}, CPU s", page_s(store, query, rounds), LIST_S, percent=False
        )


def page_s(store: Path, query: str, rounds: int) -> float:
    """The least CPU time of one page; the first one pays for the imports."""
    with viewing(store) as view:
        costs = []
        for _ in range(rounds + 1):
            before_s = cpu_s(view.pid)
            urllib.request.urlopen(view.address + query).read()
            costs.append(cpu_s(view.pid) - before_s)
    return min(costs)


class View(NamedTuple):
    pid: int
    address: str


@contextmanager
def viewing(store: Path) -> Iterator[View]:
    """``view`` of a store, while it serves."""
    view = subprocess.Popen(
        [JOULEWISE, "--store", store, "view", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert view.stdout is not None
        yield View(view.pid, view.stdout.readline().strip())
    finally:
        view.send_signal(signal.SIGTERM)
        view.wait()


def check(store: Path, other: Path, verdicts: Verdicts) -> None:
    """The lists are those of a plain reading, whatever happens to the index and the runs."""
    plain = read_plainly(store)
    wrong = int(listed(store) != totals(plain)) + wrong_pages(store, plain)
    damages: list[Callable[[Path], object]] = [
        lambda index: index.write_bytes(b"no index"),
        lambda index: os.truncate(index, index.stat().st_size // 2),
        lambda index: _overwrite(index, index.stat().st_size // 3),
    ]
    for damage in damages:
        damage(store / INDEX)
        wrong += listed(store) != totals(plain)
    verdicts.at_most("wrong lists, also of a damaged index", wrong, 0, percent=False)
    listed(other)
    wrong = check_replaced(store, plain, lambda: shutil.copy2(other / INDEX, store / INDEX))
    verdicts.at_most("wrong lists with the index of another store", wrong, 0, percent=False)
    wrong = check_replaced(store, plain, (store / INDEX).unlink)
    verdicts.at_most("wrong lists without an index", wrong, 0, percent=False)
    change_runs(store)
    changed = read_plainly(store)
    wrong = int(changed == plain) + wrong_pages(store, changed)
    wrong += listed(store) != totals(changed)
    verdicts.at_most("wrong lists after changes to the runs", wrong, 0, percent=False)
    (store / INDEX).unlink()
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(listed, [store, store]))
    wrong = sum(each != totals(changed) for each in [*both, listed(store)])
    verdicts.at_most("wrong lists of two that make the index", wrong, 0, percent=False)
    check_recording(store, changed, verdicts)


def check_replaced(store: Path, plain: Sequence[RunEntry], replace: Callable[[], object]) -> int:
    """How many lists are wrong: that of ``ls`` and those of ``view``, the index replaced before."""
    replace()
    wrong = int(listed(store) != totals(plain))
    replace()
    return wrong + wrong_pages(store, plain)


def check_recording(store: Path, before: Sequence[RunEntry], verdicts: Verdicts) -> None:
    """Two runs are recorded at once, and listed meanwhile and afterwards."""
    record = [JOULEWISE, "--store", store, "run", "--", "true"]
    recording = [subprocess.Popen(record, stderr=subprocess.DEVNULL) for _ in range(2)]
    meanwhile = listed(store)
    wrong = sum(process.wait() != 0 for process in recording)
    after = read_plainly(store)
    wrong += int(len(after) != len(before) + 2) + int(listed(store) != totals(after))
    wrong += meanwhile[: len(before)] != totals(before)  # the new ones are the last
    verdicts.at_most("wrong lists of two that are recorded", wrong, 0, percent=False)


def wrong_pages(store: Path, plain: Sequence[RunEntry]) -> int:
    """How many of two pages of ``view`` are wrong: its first one, and that of the most energy."""
    shown = [run for run in plain if not any(tag.startswith(SWEEP_TAG) for tag in run.tags)]
    by_energy = sorted(shown, key=lambda run: run.energy_j or 0.0)
    with viewing(store) as view:
        pages = [linked_runs(view.address + query) for query in ("", "?sort=energy")]
    wrong = 0
    for page, rising in zip(pages, (shown, by_energy), strict=True):
        first = [run.path.name for run in rising[-len(page) :]][::-1]
        wrong += len(page) <= VIEW_PAGE or page != first
    return wrong


def linked_runs(address: str) -> list[str]:
    """The folders of the runs that a page links to, each once, in their order."""
    page = urllib.request.urlopen(address).read().decode()
    return list(dict.fromkeys(re.findall(r'href="run/([^"/?]+)"', page)))


def check_sweeps(store: Path, verdicts: Verdicts) -> None:
    """The same of the sweeps."""
    folders = sorted((store / SWEEPS).iterdir())
    shutil.copytree(folders[0], store / SWEEPS / "copied in")
    shutil.rmtree(folders[1])
    os.truncate(folders[2] / SWEEP_FILE, 1000)
    read = [each for each in read_sweeps(store) if not isinstance(each, Skipped)]
    plain = [(sweep.id, sweep.name, RunCounts.of(sweep.trials).whole) for _, sweep in read]
    wrong = int(listed_sweeps(store) != plain)
    for damage in (lambda: _overwrite(store / INDEX, 50_000), (store / INDEX).unlink):
        damage()
        wrong += listed_sweeps(store) != plain
    verdicts.at_most("wrong lists of sweeps", wrong, 0, percent=False)


def change_runs(store: Path) -> None:
    """Copy in with times of long ago, remove, edit, damage, and put there as before checksums."""
    runs = sorted(path for path in store.iterdir() if path.is_dir() and path.name != SWEEPS)
    some = runs[:: max(1, len(runs) // 500)]
    for number, run in enumerate(some):
        result = run / RESULT
        if number % 5 == 0:
            shutil.copytree(run, run.with_name(f"{run.name[:-4]}ffff"), dirs_exist_ok=True)
        elif number % 5 == 1:
            shutil.rmtree(run)
        elif number % 5 == 2:
            result.unlink()
        elif number % 5 == 3:
            os.truncate(run / MANIFEST, 100)
        else:  # of a version that wrote no checksums
            payload = json.loads((run / MANIFEST).read_text())
            del payload["crc32"]
            (run / MANIFEST).write_text(json.dumps(payload))
            head, rest = result.read_text().split("\n", 1)
            first = json.loads(head.rstrip(",") + "}")
            del first["head_crc32"]
            first["energy_j"]["total"]["value"] = 12345.0 + number
            body = json.loads("{" + rest)
            del body["crc32"]
            result.write_text(f"{json.dumps(first)[:-1]},\n{json.dumps(body)[1:]}")


def read_plainly(store: Path) -> list[RunEntry]:
    """Every run that can be read, oldest first."""
    paths = [path for path in store.iterdir() if path.is_dir() and path.name != SWEEPS]
    entries = [entry for entry in map(read_entry, paths) if not entry.problem]
    return sorted(entries, key=lambda entry: (*entry.order, entry.path.name))


def totals(runs: Sequence[RunEntry]) -> list[tuple[str, float | None]]:
    """The id and the joules of each run."""
    return [(run.id, run.energy_j) for run in runs]


def listed(store: Path) -> list[tuple[str, float | None]]:
    """The same as ``ls`` has it."""
    said = subprocess.run(
        [JOULEWISE, "--store", store, "ls", "--all", "--json", "-"],
        check=True,
        capture_output=True,
    ).stdout
    energies = ((run["id"], run["energy_j"]["total"]) for run in json.loads(said)["runs"])
    return [(run_id, energy and energy["value"]) for run_id, energy in energies]


def listed_sweeps(store: Path) -> list[tuple[str, str, int]]:
    said = subprocess.run(
        [JOULEWISE, "--store", store, "choose", "--json", "-"], check=True, capture_output=True
    ).stdout
    found = json.loads(said)["sweeps"]
    return [(sweep["id"], sweep["name"], sweep["runs"]["whole"]) for sweep in found]


def _stamp(second: int) -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(second))


def _overwrite(index: Path, offset: int) -> None:
    with index.open("r+b") as file:
        file.seek(offset)
        file.write(bytes(100_000))


def _timed(act: Callable[[], object]) -> float:
    start_s = time.monotonic()
    act()
    return time.monotonic() - start_s


if __name__ == "__main__":
    sys.exit(main())

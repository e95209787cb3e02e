"""A store that has grown: what the lists and looking up a run cost with 100,000 runs in it.

    python benchmarks/store_index.py [--runs 100000] [--rounds 3] [--folder DIR]

One real run is recorded; the others are copies of its run.json and result.json under ids, names,
starts and energies of their own. CPU time of each command, imports included; of ``view`` that of
its process for one page. The least of several rounds counts, since other work on the machine only
adds.
The lists are compared with a plain reading of the directories, also after the index was damaged.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from beside import JOULEWISE, cost_s, cpu_s
from verdict import Verdicts

from joulewise.record.checksums import with_checksum
from joulewise.record.index.run_entry import read_entry
from joulewise.record.layout import INDEX, MANIFEST, RESULT
from joulewise.record.result_summary import with_head_checksum

FIRST_S = 1_700_000_000
APART_S = 300
BUILD_S, SHOW_S, LIST_S, FILTER_S = 60.0, 0.5, 1.0, 2.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the store is made, and then deleted")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        store = Path(folder) / "runs"
        made_s = _timed(lambda: make_store(store, options.runs))
        print(f"{options.runs:,} runs were made in {made_s:.0f} s")
        verdicts = Verdicts()
        measure(store, options.rounds, verdicts)
        check(store, verdicts)
    verdicts.show()
    return 0 if verdicts.all_met else 1


def make_store(store: Path, number: int) -> None:
    subprocess.run(
        [JOULEWISE, "--store", store, "run", "--name", "NAME", "--", "true"],
        check=True,
        capture_output=True,
    )
    (first,) = (path for path in store.iterdir() if path.is_dir())
    told = json.loads((first / MANIFEST).read_text())
    del told["crc32"]
    wall_ns, manifest = str(told["wall_start_ns"]), json.dumps(told, indent=1)
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
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(start_s))
        run_id = f"{stamp}-{dice.getrandbits(16):04x}"
        energy = {**line["energy_j"]["total"], "value": round(dice.expovariate(1 / 20_000), 3)}
        run = store / run_id
        run.mkdir()
        text = manifest.replace(first.name, run_id).replace(wall_ns, f"{start_s}123456789")
        text = text.replace('"NAME"', f'"job-{count % 1000}"')
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
    ):
        verdicts.at_most(f"{what}, CPU s", least(*words), limit_s, percent=False)
    for what, query in (("", ""), (" by energy", "?sort=energy"), (" page 500", "?page=500")):
        verdicts.at_most(
            f"view, list{what}, CPU s", page_s(store, query, rounds), LIST_S, percent=False
        )


def page_s(store: Path, query: str, rounds: int) -> float:
    """The least CPU time of one page; the first one pays for the imports."""
    view = subprocess.Popen(
        [JOULEWISE, "--store", store, "view", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert view.stdout is not None
        address = view.stdout.readline().strip()
        costs = []
        for _ in range(rounds + 1):
            before_s = cpu_s(view.pid)
            urllib.request.urlopen(address + query).read()
            costs.append(cpu_s(view.pid) - before_s)
        return min(costs)
    finally:
        view.send_signal(signal.SIGTERM)
        view.wait()


def check(store: Path, verdicts: Verdicts) -> None:
    """The whole list is that of a plain reading: as it is, and after the index was damaged."""
    names = sorted(path.name for path in store.iterdir() if path.is_dir())
    plain = [(name, read_entry(store / name).energy_j) for name in names]
    wrong = int(listed(store) != plain)
    damages: list[Callable[[Path], object]] = [
        lambda index: index.write_bytes(b"no index"),
        lambda index: os.truncate(index, index.stat().st_size // 2),
        lambda index: _overwrite(index, index.stat().st_size // 3),
    ]
    for damage in damages:
        damage(store / INDEX)
        wrong += listed(store) != plain
    verdicts.at_most("wrong lists, also of a damaged index", wrong, 0, percent=False)


def listed(store: Path) -> list[tuple[str, float | None]]:
    said = subprocess.run(
        [JOULEWISE, "--store", store, "ls", "--all", "--json", "-"],
        check=True,
        capture_output=True,
    ).stdout
    return [(run["id"], run["energy_j"]["total"]["value"]) for run in json.loads(said)["runs"]]


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

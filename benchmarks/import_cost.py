"""What `import joulewise` costs beside importing json, dataclasses, pathlib and subprocess.

CPU time of fresh interpreters, in pairs whose order alternates; the bare interpreter's start is
taken off both. The ratio's interval is a bootstrap over the pairs. The limit is 1.5.

    .venv/bin/python benchmarks/import_cost.py [--pairs 200]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys

import numpy as np
from helpers.verdict import Verdicts

LIMIT = 1.5
DRAWS = 4000
SCRIPTS = {
    "bare": "pass",
    "standard": "import json, dataclasses, pathlib, subprocess",
    "joulewise": "import joulewise",
    "and span": "import joulewise; joulewise.span('x').__enter__()",
    "and measure": "import joulewise; joulewise.measure()",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    pairs = parser.parse_args().pairs
    names = list(SCRIPTS)
    cpu_s = np.empty((pairs, len(names)))
    for pair in range(pairs):
        for place in np.roll(np.arange(len(names)), pair):
            cpu_s[pair, place] = _cpu_s(SCRIPTS[names[place]])
    print(f"{'':14}{'CPU ms':>8}{'of standard':>14}{'95 %':>16}")
    upper = 0.0
    for place, name in enumerate(names):
        median_ms = np.median(cpu_s[:, place]) * 1e3
        ratio, low, high = _ratio(cpu_s[:, place] - cpu_s[:, 0], cpu_s[:, 1] - cpu_s[:, 0])
        print(f"{name:14}{median_ms:>8.2f}{ratio:>14.3f}{low:>8.3f} -{high:>6.3f}")
        if name == "joulewise":
            upper = high
    verdicts = Verdicts()
    verdicts.at_most("import joulewise, upper bound", upper, LIMIT, percent=False)
    verdicts.show()
    sys.exit(int(not verdicts.all_met))


def _cpu_s(script: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", script], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _ratio(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float, float]:
    draw = np.random.default_rng(0).integers(0, len(ours), (DRAWS, len(ours)))
    ratios = np.mean(ours[draw], axis=1) / np.mean(theirs[draw], axis=1)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(np.mean(ours) / np.mean(theirs)), float(low), float(high)


if __name__ == "__main__":
    main()

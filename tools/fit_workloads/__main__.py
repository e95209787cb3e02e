"""Fits the workloads again to the published table: ``python -m tools.fit_workloads``.

Writes ``workloads/fitted.toml`` and the fitted lines of the measured boards' files, in the
source tree that it runs from, and says how well the fit predicts rows that it was not shown.
"""

from __future__ import annotations

import re
import sys
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Final

import click

from joulewise import simulate
from joulewise.simulate.boards import BOARDS, load_board
from joulewise.simulate.published import GPUS, read_table
from tools.fit_workloads.solve import WorkloadFit
from tools.fit_workloads.table import LeftOut, fit_board, leave_out, networks

HERE: Final = Path(simulate.__file__).parent
HEADER: Final = (
    "# Written by script/fit-workloads from power-cap-table.csv: not to be edited.\n"
    "# What the figures mean: joulewise.simulate.workloads.Profile.\n"
)


@click.command()
@click.argument("table", required=False, type=click.Path(exists=True, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Write nothing.")
def main(table: Path | None, *, dry_run: bool) -> None:
    """Fit the workloads to TABLE (the project's own copy of the published one, unless given)."""
    rows = read_table(table)
    text = HEADER
    missed: list[LeftOut] = []
    for key in GPUS.values():
        found = fit_board(key, rows)
        names = networks(rows, key)
        text += _toml(key, names, found)
        _say(f"{key}: fitted {len(names)} networks")
        missed += leave_out(key, rows)
        if not dry_run:
            _write_boards(key, found)
    if not dry_run:
        (HERE / "workloads" / "fitted.toml").write_text(text, "utf-8")
    errors = [abs(error) for it in missed for error in (it.time_error, it.energy_error)]
    _say(
        f"each of {len(missed)} rows left out in turn: predicted within {median(errors):.2%} "
        f"(median), {max(errors):.2%} (worst), time and energy"
    )


def _toml(key: str, names: tuple[str, ...], found: WorkloadFit) -> str:
    text = ""
    for name, profile in zip(names, found.profiles, strict=True):
        figures = "".join(f"{figure} = {value:.6g}\n" for figure, value in asdict(profile).items())
        text += f"\n[{key}.{name}]\n{figures}"
    return text


def _write_boards(key: str, found: WorkloadFit) -> None:
    """The measured board's own lines, and those that other boards have from it."""
    clocks = found.board.clocks
    for other in BOARDS:
        board = load_board(other)
        ratio = board.clocks.sm_max_mhz / clocks.sm_max_mhz
        path = HERE / "boards" / f"{other}.toml"
        text = path.read_text("utf-8")
        for name, value in (
            ("ridge_mhz", clocks.ridge_mhz * ratio),
            ("floor_v", clocks.floor_v),
            ("clocks_up_w", found.board.idle.clocks_up_w),
        ):
            tag = "fitted" if other == key else f"as {key}"
            text = re.sub(rf"(?m)^{name} = \S+(  # {tag})$", rf"{name} = {value:.6g}\1", text)
        path.write_text(text, "utf-8")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()

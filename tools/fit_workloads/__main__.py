"""Fits the workloads again to the published table: ``python -m tools.fit_workloads``.

Writes ``workloads/fitted.toml`` and the fitted lines of the measured boards' files, in the
source tree that it runs from, and prints how well the fit predicts rows that were left out.
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
from joulewise.simulate.published_caps import GPUS, read_table
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
    left_out: list[LeftOut] = []
    for key in GPUS.values():
        board_fit = fit_board(key, rows)
        names = networks(rows, key)
        text += _profiles_toml(key, names, board_fit)
        _print(f"{key}: fitted {len(names)} networks")
        left_out += leave_out(key, rows)
        if not dry_run:
            _write_boards(key, board_fit)
    if not dry_run:
        (HERE / "workloads" / "fitted.toml").write_text(text, "utf-8")
    errors = [abs(error) for row in left_out for error in (row.time_error, row.energy_error)]
    _print(
        f"each of {len(left_out)} rows left out in turn: predicted within {median(errors):.2%} "
        f"(median), {max(errors):.2%} (worst), time and energy"
    )


def _profiles_toml(key: str, names: tuple[str, ...], board_fit: WorkloadFit) -> str:
    text = ""
    for name, profile in zip(names, board_fit.profiles, strict=True):
        figures = "".join(f"{figure} = {value:.6g}\n" for figure, value in asdict(profile).items())
        text += f"\n[{key}.{name}]\n{figures}"
    return text


def _write_boards(key: str, board_fit: WorkloadFit) -> None:
    """Update the fitted lines of the measured board's file, and of boards that copy them."""
    clocks = board_fit.board.clocks
    for other in BOARDS:
        board = load_board(other)
        ratio = board.clocks.sm_max_mhz / clocks.sm_max_mhz
        path = HERE / "boards" / f"{other}.toml"
        text = path.read_text("utf-8")
        for name, value in (
            ("ridge_mhz", clocks.ridge_mhz * ratio),
            ("floor_v", clocks.floor_v),
            ("clocks_up_w", board_fit.board.idle.clocks_up_w),
        ):
            tag = "fitted" if other == key else f"as {key}"
            text = re.sub(rf"(?m)^{name} = \S+(  # {tag})$", rf"{name} = {value:.6g}\1", text)
        path.write_text(text, "utf-8")


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()

"""Draws a list of runs, a line each, the newest next to the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from joulewise.data.contract import told_energy
from joulewise.formatting import figures, fitting, one_line, plain, seconds
from joulewise.report.views.run import ending, total_source
from joulewise.store.index.run_entry import RunEntry
from joulewise.store.runs import Skipped

_WIDE: Final = 110
"""Columns of a terminal that has room for more than tells runs apart; an id tells its start."""

_STYLE: Final = {"complete": "green", "recording": "cyan"}
_RIGHT: Final = {"time", "energy", "error"}
_LONGEST_NAME: Final = 24
_LEAST_COMMAND: Final = 12
_SHORTEST_COMMAND: Final = 8  # letters; of fewer nobody knows the program
_PRESSED: Final = {"ended": 10, "name": 8}
"""What gives way in a narrow terminal, and what is left of it at least, as in ``signal 15…``."""

_MOST_SKIPPED: Final = 20
"""Lines on what cannot be read: there may be thousands, which would hide the runs."""

_LEFT_OUT: Final = ("command", "name", "time", "ended", "energy", "source")


def draw(runs: Sequence[RunEntry], skipped: Sequence[Skipped], console: Console) -> None:
    if runs:
        is_narrow = console.is_terminal and console.width < _WIDE
        _draw_table([_cells(run, is_narrow=is_narrow) for run in runs], console)
    lines = [plain(one.reason) for one in skipped[:_MOST_SKIPPED]]
    if len(skipped) > len(lines):
        lines.append(f"and {len(skipped) - len(lines)} more that cannot be read; --json lists all")
    for line in lines:
        console.print(Text(fitting(line, console.encoding), style="yellow"), soft_wrap=True)


def _cells(run: RunEntry, *, is_narrow: bool) -> dict[str, str]:
    energy, within = _energy(run)
    return {
        "run": plain(run.id),
        "name": plain(run.name),
        "started": run.started.strftime("%Y-%m-%d %H:%M"),
        "ended": ending(run.state, run.exit_code, run.codes, is_bound=run.is_bound),
        "time": "-" if run.time_s is None else seconds(run.time_s),
        "energy": energy,
        "error": within,
        "source": _source(run, is_narrow=is_narrow),
        "command": one_line(run.command),
    }


def _draw_table(rows: Sequence[dict[str, str]], console: Console) -> None:
    rows = [{key: fitting(cell, console.encoding) for key, cell in row.items()} for row in rows]
    filled = [h for h in rows[0] if h == "command" or any(row[h] for row in rows)]
    headers = filled
    if console.is_terminal and console.width < _WIDE:
        headers = [header for header in headers if header not in {"started", "error"}]
    widths = {h: max(len(h), *(len(row[h]) for row in rows)) for h in headers}
    widths["command"] = 0
    if console.is_terminal:
        _press(widths, console.width)
    _draw_line({header: header for header in headers}, widths, console, "dim")
    for row in rows:
        _draw_line(row, widths, console)
    if missing := [header for header in filled if header not in widths]:
        said = f"no room for: {', '.join(missing)}; a pipe gets them all, as in: ls | cat"
        console.print(Text(fitting(said, console.encoding), style="dim"))


def _press(widths: dict[str, int], columns: int) -> None:
    """Words make room for figures; what has none even so is left out: half a figure is wrong."""

    def over(room: int) -> int:
        return max(0, sum(widths.values()) + 2 * (len(widths) - 1) + room - columns)

    if "name" in widths:
        widths["name"] = min(widths["name"], _LONGEST_NAME)
    for header, least in _PRESSED.items():
        if header in widths:
            least_here = min(widths[header], least)
            widths[header] = max(least_here, widths[header] - over(_LEAST_COMMAND))
    for header in _LEFT_OUT:
        if header in widths and over(_SHORTEST_COMMAND if header == "command" else 0):
            del widths[header]


def _draw_line(
    row: dict[str, str], widths: dict[str, int], console: Console, style: str = ""
) -> None:
    line = Text(style=style)
    for header, width in widths.items():
        cell = row[header]
        # The last one has no width of its own: it takes the room that a terminal leaves.
        room = width or (console.width - line.cell_len if console.is_terminal else 0)
        if room > 0:
            cell = fitting(one_line(cell, room), console.encoding)[:room]
        told = cell.rjust(width) if header in _RIGHT else cell.ljust(width)
        ended = header == "ended" and not style
        line.append(told, style=_STYLE.get(cell, "yellow") if ended else "")
        line.append("  ")
    line.rstrip()
    if console.is_terminal:
        console.print(line, no_wrap=True, overflow="crop")
    else:  # a pipe has no width: whoever reads it gets all of a run on its line
        console.print(line, soft_wrap=True)


def _source(run: RunEntry, *, is_narrow: bool) -> str:
    """Where the energy of a run with simulated devices comes from; of others nothing is said.

    In a narrow terminal it is only said that some of it is simulated.
    """
    energy = told_energy(run.energy)
    if energy is None or not run.simulated:
        return "simulated" if run.simulated else ""
    if is_narrow:
        return "simulated" if run.simulated_counted else ""
    return total_source(energy, run.simulated_counted)


def _energy(run: RunEntry) -> tuple[str, str]:
    energy = told_energy(run.energy)
    return ("-", "") if energy is None else figures(energy)

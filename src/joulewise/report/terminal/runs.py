"""Draws the list of runs for ``ls``: one line each, the newest at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from joulewise.data.run_result_json import decode_energy
from joulewise.formatting import figures, fitting, one_line, plain, seconds
from joulewise.report.views.run import ending, total_source
from joulewise.store.index.run_entry import RunEntry
from joulewise.store.runs import Skipped

# From so many columns on there is room for the start and the error of a run too (chosen); an id
# already begins with the start.
_WIDE: Final = 110
_STYLE: Final = {"finished": "green", "recording": "cyan"}
_RIGHT: Final = {"time", "energy", "error"}
# Widths in columns (all chosen): of a name at most; of the command at least, before others give way
# and before it is left out, since a shorter one does not identify a program; and what the columns
# that give way in a narrow terminal keep at least, as in ``killed (si…``.
_LONGEST_NAME: Final = 24
_LEAST_COMMAND: Final = 12
_SHORTEST_COMMAND: Final = 8
_LEAST_WIDTHS: Final = {"ended": 10, "name": 8}
# Lines on runs that cannot be read (chosen): there may be thousands, which would hide the others.
_MOST_SKIPPED: Final = 20
_WIDE_ONLY: Final = {"started", "error"}
# The order in which columns are left out where they do not fit.
_LEFT_OUT: Final = ("command", "name", "time", "ended", "energy", "source")


def draw(runs: Sequence[RunEntry], skipped: Sequence[Skipped], console: Console) -> None:
    """Draw the runs, then why others cannot be read."""
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
    headers = filled = [h for h in rows[0] if h == "command" or any(row[h] for row in rows)]
    if console.is_terminal and console.width < _WIDE:
        headers = [header for header in headers if header not in _WIDE_ONLY]
    widths = {h: max(len(h), *(len(row[h]) for row in rows)) for h in headers}
    widths["command"] = 0
    if console.is_terminal:
        _narrow(widths, console.width)
    _draw_line({header: header for header in headers}, widths, console, "dim")
    for row in rows:
        _draw_line(row, widths, console)
    if missing := [header for header in filled if header not in widths]:
        note = f"columns left out: {', '.join(missing)}; to see all: joulewise ls | cat"
        console.print(Text(fitting(note, console.encoding), style="dim"))


def _narrow(widths: dict[str, int], columns: int) -> None:
    """Shorten texts in favour of figures, then leave out columns: a cut figure would be wrong."""

    def over(room: int) -> int:
        return max(0, sum(widths.values()) + 2 * (len(widths) - 1) + room - columns)

    if "name" in widths:
        widths["name"] = min(widths["name"], _LONGEST_NAME)
    for header, least in _LEAST_WIDTHS.items():
        if header in widths:
            least_here = min(widths[header], least)
            widths[header] = max(least_here, widths[header] - over(_LEAST_COMMAND))
    # The command may go first: the id is enough to ask for it.
    for header in _LEFT_OUT:
        if header in widths and over(_SHORTEST_COMMAND if header == "command" else 0):
            del widths[header]


def _draw_line(
    row: dict[str, str], widths: dict[str, int], console: Console, style: str = ""
) -> None:
    line = Text(style=style)
    for header, width in widths.items():
        cell = row[header]
        # The last column has no width of its own: it takes what is left of a terminal.
        room = width or (console.width - line.cell_len if console.is_terminal else 0)
        if room > 0:
            cell = fitting(one_line(cell, room), console.encoding)[:room]
        padded = cell.rjust(width) if header in _RIGHT else cell.ljust(width)
        is_ending = header == "ended" and not style
        line.append(padded, style=_STYLE.get(cell, "yellow") if is_ending else "")
        line.append("  ")
    line.rstrip()
    if console.is_terminal:
        console.print(line, no_wrap=True, overflow="crop")
    else:  # a pipe has no width: all of a run is on its line
        console.print(line, soft_wrap=True)


def _source(run: RunEntry, *, is_narrow: bool) -> str:
    """Where the energy of a run with simulated devices comes from; empty of other runs.

    In a narrow terminal only that some of it is simulated.
    """
    energy = decode_energy(run.energy)
    if energy is None or not run.simulated:
        return "simulated" if run.simulated else ""
    if is_narrow:
        return "simulated" if run.simulated_counted else ""
    return total_source(energy, run.simulated_counted)


def _energy(run: RunEntry) -> tuple[str, str]:
    energy = decode_energy(run.energy)
    return ("-", "") if energy is None else figures(energy)

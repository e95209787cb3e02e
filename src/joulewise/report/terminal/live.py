"""Draws a run in progress, in a terminal other than its own, until it ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from joulewise.analyse.stored_result import load_or_compute_result, read_result
from joulewise.data import RunResult
from joulewise.formatting import fitting, one_line, plain
from joulewise.process.linux import is_alive
from joulewise.report.tables import drawn
from joulewise.report.terminal.layout import print_command
from joulewise.report.views.live import RunNow, RunWatch, device_table, foretold, standing, title
from joulewise.report.views.run import ending, run_view
from joulewise.store.manifest import read_manifest
from joulewise.store.runs import RECORDING

REFRESH_S: Final = 1.0
"""Time between two redraws, as often as a recorder writes what is new."""

Pause = Callable[[float], None]


def watch(run: Path, console: Console, program: str, pause: Pause = time.sleep) -> None:
    """Show a run until it ends, then its result; in lines if it is not in a terminal."""
    watched = RunWatch(run)
    now = watched.look()
    if now.state != RECORDING:
        how = ending(now.state, now.exit_code, ())
        console.print(Text(f"run {plain(now.id)} has ended: {how}", "bold"))
    elif console.is_terminal and not console.is_dumb_terminal:
        _draw_until_end(watched, console, pause)
    else:
        _print_until_end(watched, console, pause)
    _draw_end(_result(run, pause), console, program)


def screen(now: RunNow, console: Console) -> Group:
    """The whole view, cut to the height of the terminal."""
    encoding, width, height = console.encoding, console.width, console.height

    def text(line: str, style: str = "") -> Text:
        return Text(fitting(line, encoding), style)

    above = [
        text(one_line(title(now), width), "bold"),
        text(one_line(now.command, width), "dim"),
        text(standing(now)),
    ]
    below = [text(line) for line in foretold(now)]
    wrapped = sum(len(line.wrap(console, width)) for line in (*above, *below))
    table = device_table(now, width, encoding)
    blocks = drawn(table, encoding, width)
    room = height - wrapped - 3  # its heading, and a blank line on either side
    # Blocks below the first are shown only if all of them fit, with a heading and a blank line.
    stacked = (len(blocks) - 1) * (len(table.rows) + 2) if room >= len(table.rows) else 0
    if stacked and room < len(table.rows) + stacked:
        titles = [column.title for column in table.columns[1:]]
        without = [it for it in titles if it not in {str(c.header) for c in blocks[0].columns}]
        below.insert(
            0,
            text(one_line(f"columns left out: {', '.join(without)}", width), "dim"),
        )
        blocks, room = blocks[:1], room - 1
    else:
        room -= stacked
    if room > len(table.rows):
        below.append(text(one_line("Ctrl-C closes this view; the run goes on", width), "dim"))
    elif room < len(table.rows):
        shown = max(room - 1, 1)
        hidden = f"and {len(table.rows) - shown} more devices, for which there is no room"
        below.insert(0, text(one_line(hidden, width), "dim"))
        blocks = drawn(replace(table, rows=table.rows[:shown]), encoding, width)[:1]
    apart = [part for block in blocks for part in (Text(), block)]
    return Group(*above, *apart, Text(), *below)


def line(now: RunNow) -> str:
    """The state of the run in one line."""
    parts = [title(now), standing(now)]
    parts += [f"{plain(it.key)} {it.power_w:.0f} W" for it in now.devices if it.power_w]
    return " · ".join([*parts, *foretold(now)])


def _draw_until_end(watched: RunWatch, console: Console, pause: Pause) -> None:
    # In the alternate screen, so that the terminal is as before when the view is closed.
    with Live(console=console, auto_refresh=False, screen=True, redirect_stderr=False) as live:
        for now in _polls(watched, pause):
            live.update(screen(now, console), refresh=True)


def _print_until_end(watched: RunWatch, console: Console, pause: Pause) -> None:
    told_ns = -1
    for now in _polls(watched, pause):
        if now.told_ns != told_ns:
            told_ns = now.told_ns
            console.print(Text(fitting(line(now), console.encoding)), soft_wrap=True)
            console.file.flush()


def _polls(watched: RunWatch, pause: Pause) -> Iterator[RunNow]:
    with _interrupt_check() as check:
        while (now := watched.look()).state == RECORDING:
            yield now
            pause(REFRESH_S)
            check()


@contextmanager
def _interrupt_check() -> Iterator[Callable[[], None]]:
    """Yield a function that raises KeyboardInterrupt where one was raised before and lost.

    Python raises it wherever the main thread happens to be. In a destructor, or in a function
    that C calls, it is printed and dropped, and Ctrl-C would have no effect.
    """
    is_interrupted = False

    def remember(number: int, frame: Any) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        signal.default_int_handler(number, frame)

    def check() -> None:
        if is_interrupted:
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # it is ignored, as of a command behind nohup
        yield check
        return
    signal.signal(signal.SIGINT, remember)
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


def _result(run: Path, pause: Pause) -> RunResult:
    """The result, which the recorder computes; computed here if the recorder has died."""
    recorder = read_manifest(run).recorder
    while (stored := read_result(run)) is None or stored.state == RECORDING:
        if recorder is None or not is_alive(recorder.pid, recorder.started_ticks):
            return load_or_compute_result(run)
        pause(REFRESH_S)
    return stored


def _draw_end(result: RunResult, console: Console, program: str) -> None:
    shown = run_view(result, program=program)
    console.print(Text(fitting(shown.title, console.encoding), "bold"))
    for fact in shown.facts:
        console.print(Text(fitting(fact, console.encoding), "dim"))
    console.print(Text(fitting(shown.finding, console.encoding), "bold"))
    print_command(f"{program} show {plain(result.id)}", "the whole result", console)

"""A run in progress, followed on another terminal."""

import fcntl
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from contextlib import contextmanager

import numpy as np
import pytest
from rich.console import Console

from joulewise.report.terminal.layout import Screen
from joulewise.report.terminal.live import screen, watch
from joulewise.report.views.live import RecentPower, RunWatch
from joulewise.units import NS_PER_S
from tests.helpers.processes import DEADLINE_S, JOULEWISE, first_line
from tests.helpers.recordings_in_progress import recorded
from tests.helpers.run_directories import MadeRun, device
from tests.helpers.run_processes import environment

RUN = "20261116-003512-bbbb"
ENDED = re.compile(r"\d J|kJ .* in ")
COLOUR = re.compile(r"\x1b\[[\d;]*3[1-7][\d;]*m")


@contextmanager
def at_a_terminal(store, *arguments, columns=80, rows=24, **environ):
    """The process, and a function that reads what it draws until that matches."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = subprocess.Popen(
        [*JOULEWISE, "--store", str(store), "view", "--terminal", *arguments],
        stdin=its, stdout=its, stderr=its, start_new_session=True,
        env=environment(**{"TERM": "xterm-256color", **environ}),
    )  # fmt: skip
    os.close(its)
    drawn = [""]

    def read_until(pattern):
        deadline_s = time.monotonic() + DEADLINE_S
        while not re.search(pattern, drawn[0]):
            left_s = max(0.0, deadline_s - time.monotonic())
            assert select.select([ours], [], [], left_s)[0], drawn[0]
            try:
                drawn[0] += os.read(ours, 1 << 16).decode(errors="replace")
            except OSError:  # the other end is closed
                assert re.search(pattern, drawn[0]), drawn[0]
        return drawn[0]

    try:
        yield process, read_until
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_driver_samples_from_before_the_run_are_not_drawn():
    """Its buffer may hold two minutes; other devices have nothing from before the run."""
    start_ns = 1_000 * NS_PER_S
    course = RecentPower(start_ns)
    t_ns = start_ns + np.arange(-12, 3) * NS_PER_S
    course.add({"t_ns": t_ns, "power_w": np.full(len(t_ns), 50.0)})
    assert [second.at_s for second in course.seconds()] == [0, 1, 2]


def test_a_run_is_followed_in_the_terminal_to_its_end(store):
    with (
        recorded(store, "--name", "mine", "--budget", "1MJ") as (run, _),
        at_a_terminal(store, "last") as (view, read_until),
    ):
        drawn = read_until(r"gpu0 +\d.* W +300 W [^\n]*[▁▂▃▄▅▆▇█]")
        assert drawn.startswith("\x1b[?1049h")
        read_until("budget 1MJ: ")
        read_until(r"recording · [^\n]* J|kJ ± ")
        run.stdin.close()
        drawn = read_until(r"# the whole result")
        assert view.wait(DEADLINE_S) == 0
    end = drawn.rpartition("\x1b[?1049l")[2]
    assert "finished" in end
    assert re.search(r"k?J ± .* in .* s", end)


def test_ctrl_c_leaves_the_run_alone(store):
    with (
        recorded(store) as (run, _),
        at_a_terminal(store) as (view, read_until),
    ):
        read_until("gpu0")
        view.send_signal(signal.SIGINT)
        read_until(r"\x1b\[\?1049l")
        assert view.wait(DEADLINE_S) == 0
        assert run.poll() is None


def test_an_interrupt_swallowed_by_a_destructor_still_ends_the_view(store, monkeypatch):
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)

    class Closed:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)

    looks = []

    def pause(_):
        looks.append(1)
        assert len(looks) < 3, "the interrupt was lost"
        Closed()

    with recorded(store) as (_, run), pytest.raises(KeyboardInterrupt):
        watch(run, Console(file=io.StringIO()), "joulewise", pause)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_a_name_the_newest_run_in_progress_is_shown(store, make_run):
    with recorded(store) as (_, run):
        make_run("22591231-235959-ffff", wall_start_ns=9_151_487_999 * 10**9)
        with at_a_terminal(store) as (_, read_until):
            read_until(run.name)
            read_until("gpu0")


def test_the_screen_is_restored_on_sigterm(store):
    with recorded(store), at_a_terminal(store) as (view, read_until):
        read_until("gpu0")
        view.terminate()
        read_until(r"\x1b\[\?1049l")
        assert view.wait(DEADLINE_S) == 128 + signal.SIGTERM


def test_no_colours_with_no_color(make_run, store):
    make_run(RUN)
    with at_a_terminal(store, NO_COLOR="1") as (_, read_until):
        assert not COLOUR.search(read_until("# the whole result"))
    with at_a_terminal(store) as (_, read_until):
        assert COLOUR.search(read_until("# the whole result"))


def test_a_dumb_terminal_gets_lines(store):
    with recorded(store) as (run, path):
        with at_a_terminal(store, TERM="dumb") as (_, read_until):
            dumb = read_until(r"gpu0 \d+ W[^\n]*\n").splitlines()[0]
        view = subprocess.Popen(
            [*JOULEWISE, "--store", str(store), "view", "--terminal"],
            stdout=subprocess.PIPE, env=environment(), text=True,
        )  # fmt: skip
        with view:
            piped = first_line(view.stdout)
            run.stdin.close()
            rest = view.stdout.read()
    assert view.returncode == 0
    assert "# the whole result" in rest
    for line in (dumb, piped):
        assert line.startswith(f"run {path.name} · recording · ")
    assert "\x1b" not in dumb + piped + rest


def test_a_run_that_has_ended_says_so(make_run):
    path = make_run(RUN, name="mine", exit_code=3)
    out = io.StringIO()
    watch(path, Screen(out), "joulewise")
    first, *rest = out.getvalue().splitlines()
    assert first == f"run {RUN} has ended: failed (exit 3)"
    assert rest[-1] == f"  joulewise show {RUN}  # the whole result"
    assert any(line.startswith("2.00 kJ") for line in rest)


class TestNoRoom:
    @pytest.fixture
    def now(self, store):
        made = MadeRun(store / RUN, seconds=90.0, hz=2.0)
        for number in range(8):
            made.fast(device(f"gpu{number}"), lambda t: 150 + 100 * (t % 20 > 10))
            made.slow(
                f"gpu{number}",
                gpu_utilisation_pct=lambda _: 99,
                temperature_c=lambda _: 65,
                sm_clock_mhz=lambda _: 1530,
                enforced_limit_w=lambda _: 300,
            )
        name = "a name that is far longer than a terminal has room for, \x1b[31m and hostile"
        return RunWatch(made.write(name=name)).look()

    @pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 24), (40, 12), (200, 60)])
    def test_nothing_is_wider_or_higher_than_the_terminal(self, now, columns, rows):
        lines = drawn_lines(now, columns, rows)
        assert max(map(len, lines)) <= columns
        assert len(lines) <= rows
        assert "\x1b" not in "".join(lines)

    def test_all_devices_in_40_columns(self, now):
        lines = drawn_lines(now, 40, 24)
        rows = [line for line in lines if line.startswith("gpu")]
        assert len(rows) == 8
        assert re.fullmatch(r"gpu0 +\d+ W +300 W +99 % +-", rows[0])
        assert "columns left out: minute, clock, temp." in lines

    @pytest.mark.parametrize("columns", [40, 60, 80])
    def test_energy_is_shown_at_every_width(self, now, columns):
        lines = drawn_lines(now, columns, 60)
        headings = [line for line in lines if line.startswith("device")]
        for title in ("power", "limit", "minute", "load", "clock", "temp.", "energy"):
            assert any(title in line for line in headings)

    def test_devices_that_do_not_fit_are_mentioned(self, now):
        lines = drawn_lines(now, 80, 12)
        shown = sum(line.startswith("gpu") for line in lines)
        assert 0 < shown < 8
        assert any(line.startswith(f"and {8 - shown} more") for line in lines)

    def test_an_old_encoding_gets_ascii_signs(self, now):
        out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        console = Console(file=out, width=80, height=24)
        console.print(screen(now, console))
        out.seek(0)
        assert re.search(r"gpu0 .*[_.\-=+*%#]{4}", out.read())


def drawn_lines(now, columns, rows):
    out = io.StringIO()
    console = Console(file=out, width=columns, height=rows)
    console.print(screen(now, console))
    return [line.rstrip() for line in out.getvalue().splitlines()]

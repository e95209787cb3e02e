"""``joulewise.measure()``: a block of one's own program as a run."""

import asyncio
import copy
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

import joulewise
from joulewise.data import Energy, Source, WarningCode
from joulewise.errors import UsageError
from joulewise.session import spans
from joulewise.session.measure import Energies
from tests.helpers.processes import DEADLINE_S, JOULEWISE, eventually, first_line, gone
from tests.helpers.run_processes import environment, run


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch):
    monkeypatch.delenv(spans.RUN_MARKS, raising=False)
    monkeypatch.delenv(spans.MEASURE_MARKS, raising=False)
    monkeypatch.setattr(spans, "_outer_marks", None)


@pytest.fixture
def measured(tmp_path):
    """A measurement that has been made."""
    with joulewise.measure("mine", tags=["a", "b"], store=tmp_path) as m, m.span("part", 2):
        sum(range(100_000))
    return m


def script(code, **options):
    """Another program, to its end."""
    options = {"env": environment(), "capture_output": True, **options}
    return subprocess.run(
        [sys.executable, "-c", f"import joulewise, os, signal, sys, time\n{code}"],
        text=True, check=False, timeout=DEADLINE_S, **options,
    )  # fmt: skip


def manifest(m):
    return json.loads((m.path / "run.json").read_text())


def test_what_came_of_it(measured, tmp_path):
    assert measured.path.parent == tmp_path
    assert measured.id == measured.path.name
    payload = manifest(measured)
    assert (payload["name"], payload["tags"], payload["state"]) == ("mine", ["a", "b"], "complete")
    assert payload["commands"][0]["pid"] == os.getpid()
    assert payload["commands"][0]["exit_code"] == 0
    assert measured.result.id == measured.id
    assert 0 < measured.time_s < DEADLINE_S
    (span,) = measured.spans
    assert (span.name, span.index) == ("part", 2)
    assert 0 <= span.start_s <= span.end_s <= measured.time_s
    assert set(span.energy_j) == set(measured.energy_j)
    assert all(warning.message for warning in measured.warnings)
    assert spans.MEASURE_MARKS not in os.environ


def test_before_the_end_nothing_is_known(tmp_path):
    m = joulewise.measure(store=tmp_path)
    with pytest.raises(UsageError, match="not started"):
        _ = m.energy_j
    assert m.id is None
    with m:
        assert m.id in repr(m)
        for name in ("energy_j", "time_s", "spans", "warnings", "result"):
            with pytest.raises(UsageError, match="read it after"):
                getattr(m, name)
        assert m._repr_html_() is None
    assert m.time_s > 0


def test_cell_by_cell(tmp_path):
    m = joulewise.measure(store=tmp_path)
    assert m.start() is m
    with joulewise.span("cell"):
        pass
    assert m.stop() is m
    assert m.stop().time_s == m.time_s
    assert [span.name for span in m.spans] == ["cell"]
    with pytest.raises(UsageError, match="started before"):
        m.start()
    with pytest.raises(UsageError, match="not started"):
        joulewise.measure().stop()


def test_an_exception_passes_and_is_reported(tmp_path):
    error = ValueError("mine")
    m = joulewise.measure(store=tmp_path)
    with pytest.raises(ValueError, match="mine") as caught, m, m.span("part"):
        raise error
    assert caught.value is error
    assert m.result.exit_code == 1
    assert len(m.spans) == 1


def test_a_decorated_function(tmp_path):
    @joulewise.measure("train", store=tmp_path)
    def train(depth):
        """Its words."""
        with joulewise.span("level", depth):
            return train(depth - 1) + 1 if depth else 0

    assert train.measured is None
    assert train(3) == 3
    assert train.__doc__ == "Its words."
    first = train.measured
    assert [span.index for span in first.spans] == [3, 2, 1, 0]
    train(0)
    assert train.measured.id != first.id
    assert len(list(tmp_path.iterdir())) == 2


def test_a_decorated_coroutine(tmp_path):
    @joulewise.measure(store=tmp_path)
    async def train():
        with joulewise.span("step"):
            await asyncio.sleep(0)
        return 7

    assert asyncio.run(train()) == 7
    assert [span.name for span in train.measured.spans] == ["step"]


def test_slips_are_explained():
    with pytest.raises(UsageError, match=r"@measure\(\)"):

        @joulewise.measure
        def forgotten():
            pass

    def numbers():
        yield 1

    with pytest.raises(UsageError, match="generator"):
        joulewise.measure()(numbers)
    with pytest.raises(UsageError, match="list of words"):
        joulewise.measure(tags="one")
    with pytest.raises(UsageError, match="list of words"):
        joulewise.measure(tags=[1])
    with pytest.raises(UsageError, match="a tag is empty"):
        joulewise.measure(tags=["a", " "])
    with pytest.raises(UsageError, match="cannot be named 'last'"):
        joulewise.measure(name="last")
    with pytest.raises(UsageError, match="the name is empty"):
        joulewise.measure(name=" ")
    for rate_hz in (0, -1, 1e-12, 1001, float("nan"), float("inf"), "x", [10]):
        with pytest.raises(UsageError, match="rate"):
            joulewise.measure(rate_hz=rate_hz)


def test_one_inside_another_and_the_threads_of_both(tmp_path):
    with joulewise.measure(store=tmp_path / "outer") as outer:
        with joulewise.measure(store=tmp_path / "inner") as inner:
            with joulewise.span("both"):
                pass
            with inner.span("inner alone"):
                pass
            worker = threading.Thread(target=joulewise.span("worker")(lambda: None))
            worker.start()
            worker.join()
        with joulewise.span("outer alone"):
            pass
    assert [span.name for span in inner.spans] == ["both", "inner alone", "worker"]
    assert [span.name for span in outer.spans] == ["both", "worker", "outer alone"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_mark_for_the_same_run(tmp_path, method):
    code = (
        "import multiprocessing\n"
        "@joulewise.span('child')\n"
        "def work(m, index):\n"
        "    with m.span('handed', index): pass\n"
        "if __name__ == '__main__':\n"
        "    with joulewise.measure(store=sys.argv[1]) as m:\n"
        f"        context = multiprocessing.get_context({method!r})\n"
        "        children = [context.Process(target=work, args=(m, i)) for i in range(2)]\n"
        "        for child in children: child.start()\n"
        "        for child in children: child.join(); assert child.exitcode == 0\n"
        "    print(*sorted(f'{span.name} {span.index}' for span in m.spans), sep=';')\n"
    )
    file = tmp_path / "program.py"
    file.write_text("import joulewise, sys\n" + code)
    done = subprocess.run(
        [sys.executable, "-W", "error", file, tmp_path / "store"],
        env=environment(), capture_output=True, text=True, check=False, timeout=DEADLINE_S,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "child None;child None;handed 0;handed 1\n"


def test_a_fork_does_not_stop_it(tmp_path):
    with joulewise.measure(store=tmp_path) as m:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                m.stop()
                with m.span("child"):
                    pass
                # Where only the end of its socket tells a recorder of our end, no child has that.
                status = int(m._recorder is not None)
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        with m.span("parent"):
            pass
    assert [span.name for span in m.spans] == ["child", "parent"]
    assert m.result.state == "complete"


def test_a_copy_reads_and_marks_but_does_not_stop(tmp_path):
    with joulewise.measure(store=tmp_path) as m:
        sent = pickle.loads(pickle.dumps(m))
        with sent.span("sent"):
            pass
        assert sent.id == m.id
        sent.stop()
        copy.deepcopy(m).stop()
    assert [span.name for span in m.spans] == ["sent"]
    kept = pickle.loads(pickle.dumps(m))
    assert (kept.energy_j, kept.time_s, kept.id) == (m.energy_j, m.time_s, m.id)


def test_a_store_that_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "file").touch()
    with pytest.warns(RuntimeWarning, match="could not be started") as caught:
        m = joulewise.measure(store=tmp_path / "file").start()
    assert caught[0].filename == __file__
    with m.span("part"):
        pass
    m.stop()
    assert (m.id, m.energy_j, m.result, m.spans) == (None, None, None, ())
    assert m.time_s > 0
    (warning,) = m.warnings
    assert warning.code is WarningCode.RECORDER_ENDED
    assert warning.hint
    assert "nothing was recorded" in repr(m)
    assert m._repr_html_() is None
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_recorder_that_is_killed_is_a_warning(tmp_path):
    m = joulewise.measure(store=tmp_path).start()
    os.kill(manifest(m)["recorder"]["pid"], signal.SIGKILL)
    with m.span("part"):
        pass
    with pytest.warns(RuntimeWarning, match="recorder ended before"):
        m.stop()
    assert m.energy_j is None
    assert f"joulewise show {m.id}" in m.warnings[-1].hint
    assert [path.name for path in tmp_path.iterdir()] == [m.id]
    payload = manifest(m)
    assert (payload["state"], payload["exit_code"]) == ("stopped", 0)
    assert payload["commands"][0]["end_ns"] == m._end_ns
    shown = subprocess.run(
        [*JOULEWISE, "--store", tmp_path, "show", m.id], capture_output=True, text=True, check=True
    )
    assert "  finished, recorder killed · " in shown.stdout


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_program_leaves_no_recorder(tmp_path, number):
    """Also where a child of it lives on, which has the recorder's socket no more."""
    code = (
        "m = joulewise.measure(store=sys.argv[1]).start()\n"
        "child = os.fork()\n"
        "if child: print(m.path, child, flush=True)\n"
        "time.sleep(1000)\n"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", f"import joulewise, os, sys, time\n{code}", tmp_path],
        stdout=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    path, child = first_line(program.stdout).split()
    try:
        recorder = json.loads((Path(path) / "run.json").read_text())["recorder"]["pid"]
        program.send_signal(number)
        program.wait(DEADLINE_S)
        eventually(lambda: gone(recorder))
    finally:
        os.kill(int(child), signal.SIGKILL)
        program.kill()
        program.communicate()
    assert json.loads((Path(path) / "run.json").read_text())["state"] == "stopped"


def test_an_interrupt_ends_the_block_and_the_recorder(tmp_path):
    code = (
        "with joulewise.measure(store=sys.argv[1]) as m:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    time.sleep(1000)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import joulewise, os, signal, sys, time\n{code}", tmp_path],
        env=environment(), capture_output=True, text=True, check=False, timeout=DEADLINE_S,
    )  # fmt: skip
    assert "KeyboardInterrupt" in done.stderr
    (path,) = tmp_path.iterdir()
    payload = json.loads((path / "run.json").read_text())
    assert (payload["state"], payload["exit_code"]) == ("complete", 130)
    assert gone(payload["recorder"]["pid"])


def test_an_interrupt_while_the_result_is_awaited_passes(tmp_path, monkeypatch):
    m = joulewise.measure(store=tmp_path).start()
    recorder = manifest(m)["recorder"]["pid"]

    def interrupted(**_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(m._recorder._connection, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        m.stop()
    eventually(lambda: gone(recorder))
    assert m.energy_j is None


def test_a_program_that_waits_for_all_its_children_does_not_wait_for_the_recorder(tmp_path):
    done = script(f"""
import joulewise, os
with joulewise.measure(store={str(tmp_path)!r}) as m:
    if os.fork() == 0:
        os._exit(0)
    reaped = 0
    try:
        while True:
            os.wait()
            reaped += 1
    except ChildProcessError:
        print("reaped", reaped)
print(m.result is not None)
""")
    assert done.stdout.splitlines() == ["reaped 1", "True"], done.stderr


def test_a_program_that_forgets_to_stop_leaves_a_whole_run(tmp_path):
    done = script(f"joulewise.measure(store={str(tmp_path)!r}).start()")
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = tmp_path.iterdir()
    assert json.loads((path / "run.json").read_text())["state"] == "complete"


def test_nothing_is_left_that_python_would_warn_of(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            with joulewise.measure(store=tmp_path) as m:
                pass
        del m
    assert multiprocessing.active_children() == []


def test_inside_a_measured_command(tmp_path):
    code = (
        "import joulewise\n"
        f"with joulewise.measure(store={str(tmp_path / 'own')!r}) as m:\n"
        "    with joulewise.span('mine'): pass\n"
        "print(*(span.name for span in m.spans))\n"
    )
    done = run(tmp_path / "outer", "--json", str(tmp_path / "result.json"),
               "--", sys.executable, "-c", code)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "mine\n"), done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert [span["name"] for span in result["spans"]] == ["mine"]


def test_the_joules_of_a_simulated_gpu(tmp_path):
    code = (
        "import joulewise\n"
        "from joulewise.simulate import gpu\n"
        f"with joulewise.measure(store={str(tmp_path / 'store')!r}) as m:\n"
        "    for epoch in range(2):\n"
        "        with m.span('epoch', epoch): gpu(0).step('resnet50', batch_size=128)\n"
        "e = m.energy_j\n"
        "print(e['gpu0'].value, e['gpu0'].error, e.total.value)\n"
        "print(sum(span.energy_j['gpu0'].value for span in m.spans))\n"
        "print(m.time_s, m.result.start_monotonic_ns)\n"
    )
    truth = tmp_path / "truth.csv"
    done = subprocess.run(
        [*JOULEWISE, "sim", "--gpu", "v100", "--truth", truth, "--", sys.executable, "-c", code],
        env=environment(), capture_output=True, text=True, check=False, timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    value, error, total, in_spans, time_s, start_ns = map(float, done.stdout.split())
    rows = [line.split(",") for line in truth.read_text().splitlines()[1:]]
    before = max(float(j) for t, _, j, _ in rows if int(t) <= start_ns)
    after = min(float(j) for t, _, j, _ in rows if int(t) >= start_ns + time_s * 1e9)
    assert abs(value - (after - before)) < 2 * error
    assert total >= value
    assert in_spans <= value + error


def test_energies_read_as_a_person_would_want():
    gpu = Energy(700.2, 5, 13, Source.MEASURED)
    cpu = Energy(74.5, 10, 0, Source.MODELLED)
    both = Energies(
        {"gpu0": gpu, "gpu1": gpu, "cpu0": cpu},
        Energy(774.7, 11.2, 13, Source.MIXED),
        ["gpu0", "cpu0"],
    )
    assert str(both) == (
        "total 774.7 J ± 2.2 % (measured, modelled): gpu0 700.2 J ± 2 %, "
        "cpu0 74.5 J ± 13 % (modelled)"
    )
    assert both["gpu1"] is gpu
    assert dict(both) == {"gpu0": gpu, "gpu1": gpu, "cpu0": cpu}
    assert str(Energies({"gpu0": None}, None, ["gpu0"])) == (
        "total could not be read: gpu0 could not be read"
    )
    large = Energy(1.2345e6, 1e4, 0, Source.MEASURED)
    assert str(Energies({}, large, [])) == "total 1.234 MJ ± 0.81 %"
    hardly = Energy(1.0, 1.5, 0, Source.ASSUMED)
    assert str(Energies({}, hardly, [])) == "total below 2.5 J (assumed)"
    nothing = Energy(0.0, 0.5, 0, Source.MEASURED)
    assert str(Energies({}, nothing, [])) == "total below 0.5 J"


def test_a_notebook_shows_a_table(measured):
    shown = measured._repr_html_()
    assert f"<b>{measured.id}: " in shown
    for key in (*measured.energy_j.counted, "total"):
        assert f"<td>{key}</td>" in shown
    assert "<script" not in shown

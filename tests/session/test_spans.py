"""Spans of the user's own: where they go, and that they harm nobody."""

import asyncio
import contextvars
import functools
import os
import pickle
import subprocess
import sys
import threading
import types

import pytest

import joulewise
from joulewise.errors import UsageError
from joulewise.hooks.marks import Marks
from joulewise.session import spans
from joulewise.store.logged_values import read_logged
from joulewise.store.spans import read_spans

NOTHING = (
    "import joulewise, sys\n"
    "with joulewise.span('epoch', 3):\n"
    "    pass\n"
    "print('joulewise.hooks.marks' in sys.modules)\n"
)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The inside of a ``joulewise run``."""
    (tmp_path / "marks").mkdir()
    monkeypatch.setenv(spans.RUN_MARKS, str(tmp_path / "marks"))
    monkeypatch.delenv(spans.MEASURE_MARKS, raising=False)
    monkeypatch.setattr(spans, "_outer_marks", None)
    return tmp_path


def seen(run):
    return [(span.name, span.index) for span in read_spans(run)]


def python(script, **environ):
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environ}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_where_nothing_measures_it_does_nothing(tmp_path):
    done = python(NOTHING, JOULEWISE_MARKS="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")
    gone = python(NOTHING, JOULEWISE_MARKS=str(tmp_path / "gone"))
    assert (gone.returncode, gone.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_inside_a_run_it_is_marked(run):
    with joulewise.span("epoch", 3, total=10):
        pass
    (span,) = read_spans(run)
    assert (span.name, span.index, span.total, span.pid) == ("epoch", 3, 10, os.getpid())
    assert span.closed
    assert span.start_ns <= span.end_ns


def test_spans_nest_and_overlap(run):
    first, second = joulewise.span("first"), joulewise.span("second")
    with joulewise.span("around"):
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
    found = {span.name: span for span in read_spans(run)}
    assert found["first"].start_ns <= found["second"].start_ns
    assert found["first"].end_ns <= found["second"].end_ns <= found["around"].end_ns
    assert all(span.closed for span in found.values())


def test_one_span_can_be_entered_again_while_it_is_open(run):
    step = joulewise.span("step")

    @step
    def descend(depth):
        with step:
            return depth and descend(depth - 1)

    descend(3)
    found = sorted(read_spans(run), key=lambda span: span.start_ns)
    assert [(span.name, span.closed) for span in found] == [("step", True)] * 8
    ends_ns = [span.end_ns for span in found]
    assert ends_ns == sorted(ends_ns, reverse=True)  # what began first ended last


def test_an_exception_passes_and_the_span_ends_as_broken_off(run):
    error = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught, joulewise.span("step"):
        raise error
    assert caught.value is error
    table = read_spans(run)
    assert (table.closed.tolist(), table.ended.tolist()) == ([False], [True])


def test_threads_have_their_own(run):
    step = joulewise.span("step")
    together = threading.Barrier(4)

    def work():
        for _ in range(5):
            with step:
                together.wait()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = list(read_spans(run))
    assert len(found) == 20
    assert all(span.closed for span in found)


def test_tasks_that_take_turns_do_not_end_each_others(run):
    step = joulewise.span("step")

    async def work(begun, end):
        with step:
            begun.set()
            await end.wait()

    async def main():
        begun, ends = [asyncio.Event() for _ in range(2)], [asyncio.Event() for _ in range(2)]
        tasks = [asyncio.create_task(work(begun[i], ends[i])) for i in range(2)]
        for event in begun:
            await event.wait()
        for end, task in zip(ends, tasks, strict=True):  # the first to begin is the first to end
            end.set()
            await task

    asyncio.run(main())
    first, second = sorted(read_spans(run), key=lambda span: span.start_ns)
    assert first.closed
    assert second.closed
    assert first.end_ns < second.end_ns


def test_functions_of_every_kind(run):
    @joulewise.span("plain")
    def plain(a, *, b):
        """Its words."""
        return a + b

    @joulewise.span("async")
    async def awaited(a):
        await asyncio.sleep(0)
        return a

    class Model:
        @joulewise.span("method")
        def fit(self):
            return self

    model = Model()
    assert plain(1, b=2) == 3
    assert (plain.__name__, plain.__doc__) == ("plain", "Its words.")
    assert asyncio.run(awaited(7)) == 7
    assert model.fit() is model
    assert joulewise.span("partial")(functools.partial(plain, 1))(b=3) == 4
    assert {name for name, _ in seen(run)} == {"plain", "async", "method", "partial"}


def test_generators_are_refused_with_a_reason():
    def numbers():
        yield 1

    async def asynchronous():
        yield 1

    for function in (numbers, asynchronous, functools.partial(numbers)):
        with pytest.raises(UsageError, match="generator"):
            joulewise.span("step")(function)


def test_slips_are_explained():
    with pytest.raises(UsageError, match='@span\\("name"\\)'):

        @joulewise.span
        def forgotten():
            pass

    with pytest.raises(UsageError, match="decorates a function"):
        joulewise.span("step")(3)


def test_a_forked_child_marks_for_itself(run):
    outer = joulewise.span("outer")
    with outer:
        child = os.fork()
        if child == 0:
            try:
                with joulewise.span("child"):
                    pass
                outer.__exit__(None, None, None)  # as it would on its way out of the block
            finally:
                os._exit(0)
        os.waitpid(child, 0)
    found = {span.name: span for span in read_spans(run)}
    assert set(found) == {"outer", "child"}
    assert found["child"].pid == child
    assert found["outer"].end_ns > found["child"].end_ns


def test_a_span_can_be_sent_to_another_process(run):
    step = pickle.loads(pickle.dumps(joulewise.span("step", 1)))
    with step:
        pass
    assert seen(run) == [("step", 1)]


def test_a_measurement_and_the_run_around_it_both_see_a_span(run, tmp_path):
    inner = tmp_path / "inner"
    (inner / "marks").mkdir(parents=True)
    marks = Marks(inner / "marks")
    spans.add_measurement(marks, str(inner / "marks"))
    try:
        with joulewise.span("both"):
            child = python("import joulewise\nwith joulewise.span('child'): pass")
            assert child.returncode == 0, child.stderr
    finally:
        spans.remove_measurement(marks, str(inner / "marks"))
    with joulewise.span("after"):
        pass
    assert sorted(seen(run)) == [("after", None), ("both", None), ("child", None)]
    assert sorted(seen(inner)) == [("both", None), ("child", None)]
    assert spans.MEASURE_MARKS not in os.environ


def test_each_thread_sees_its_own_measurement_and_others_see_all(tmp_path, monkeypatch):
    monkeypatch.setattr(spans, "_outer_marks", ())
    both = []
    for name in ("a", "b"):
        (tmp_path / name / "marks").mkdir(parents=True)
        both.append(Marks(tmp_path / name / "marks"))

    def measured(marks, name):
        spans.add_measurement(marks, name)
        with joulewise.span(name):
            pass

    for marks, name in zip(both, "ab", strict=True):
        contextvars.Context().run(measured, marks, name)
    worker = threading.Thread(target=joulewise.span("worker")(lambda: None))
    worker.start()
    worker.join()
    for marks, name in zip(both, "ab", strict=True):
        spans.remove_measurement(marks, name)
    assert seen(tmp_path / "a") == [("a", None), ("worker", None)]
    assert seen(tmp_path / "b") == [("b", None), ("worker", None)]


def cuda(*, initialised=True, broken=False):
    awaited = []

    def synchronize(device):
        if broken:
            raise RuntimeError("an illegal memory access was encountered")
        awaited.append(device)

    module = types.SimpleNamespace(
        is_initialized=lambda: initialised,
        current_device=lambda: 1,
        device_count=lambda: 4,
        memory_reserved=lambda device: 1024 if device == 3 else 0,
        synchronize=synchronize,
    )
    return types.SimpleNamespace(cuda=module), awaited


def test_work_in_flight_is_awaited_where_requested(run, monkeypatch):
    """On the GPUs in use alone: the others would get a context. No GPU here to see it on."""
    torch, awaited = cuda()
    monkeypatch.setitem(sys.modules, "torch", torch)
    with joulewise.span("step"):
        pass
    assert awaited == []
    with joulewise.span("step", sync=True):
        assert awaited == [1, 3]
    assert awaited == [1, 3, 1, 3]
    assert len(seen(run)) == 2


@pytest.mark.parametrize("options", [{"initialised": False}, {"broken": True}])
def test_waiting_wakes_nothing_and_raises_nothing(run, monkeypatch, options):
    torch, awaited = cuda(**options)
    monkeypatch.setitem(sys.modules, "torch", torch)
    with joulewise.span("step", sync=True):
        pass
    assert awaited == []
    assert seen(run) == [("step", None)]


def test_waiting_imports_nothing():
    script = NOTHING.replace("3", "3, sync=True").replace("joulewise.hooks.marks", "torch")
    assert python(script).stdout == "False\n"


def test_figures_go_to_the_run_and_to_every_measurement_around(run, tmp_path):
    with joulewise.measure(store=tmp_path / "store") as m:
        joulewise.log({"val/acc": 0.25}, loss=1.5, epoch=3)
        m.log(own=2.0)
    joulewise.log(loss=1.0)
    assert [(v.name, v.value, v.epoch) for v in read_logged(m.path)] == [
        ("val/acc", 0.25, 3),
        ("loss", 1.5, 3),
        ("own", 2.0, None),
    ]
    assert [v.value for v in read_logged(run)] == [0.25, 1.5, 1.0]


def test_logging_never_raises_and_outside_of_a_run_does_nothing(run):
    joulewise.log(5)
    joulewise.log(loss="no number", other=[1, 2], epoch="x")
    assert read_logged(run) == []
    script = (
        "import joulewise, sys\n"
        "joulewise.log(loss=1.0)\n"
        "print('joulewise.hooks.marks' in sys.modules, 'numpy' in sys.modules)\n"
    )
    environ = {spans.RUN_MARKS: "", spans.MEASURE_MARKS: ""}
    done = python(script, **environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False False\n", "")
    gone = python("import joulewise; joulewise.log(loss=1.0)", **{spans.RUN_MARKS: "/nowhere"})
    assert (gone.returncode, gone.stdout, gone.stderr) == (0, "", "")

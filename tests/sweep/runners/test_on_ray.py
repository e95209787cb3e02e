"""What is done with the tasks of a cluster; Ray itself is tried in test_ray_cluster."""

import io
import tarfile

import pytest

from joulewise.data.sweeps import Planned, TrialState
from joulewise.sweep.runners import on_ray as on_ray_module
from joulewise.sweep.runners.on_ray import RayRunner, TaskResult, measure
from joulewise.sweep.trial import log_name
from tests.helpers.fake_runner import LIMITS_W, asked, setting, trial

PLANNED = Planned(setting(LIMITS_W[0]), 0)


class Tasks:
    """One task at a time, which takes so many looks, and what it made; no cluster behind it."""

    homes = ("node",)
    lost = (ConnectionError,)

    def __init__(self, made, looks=0, stop=None):
        self.cancelled = 0
        self._made, self._looks = made, looks
        self.stop = stop

    def submit(self, *_):
        return "task"

    def is_ready(self, *_):
        if self.stop:
            self.stop()
        self._looks -= 1
        return self._looks < 0

    def cancel(self, _task):
        self.cancelled += 1

    def get(self, _task):
        return self._made


@pytest.fixture
def on_ray(tmp_path):
    def make(tasks):
        folder = tmp_path / "sweeps" / "one"
        folder.mkdir(parents=True)
        return RayRunner(asked(), tmp_path, folder, cluster=tasks, say=print)

    return make


def test_task_that_restores_controls_is_interrupted_once(on_ray):
    tasks = Tasks(TaskResult(trial(PLANNED), b"", b""), looks=5)
    runner = on_ray(tasks)
    tasks.stop = runner.stop
    runner.run(PLANNED)
    assert tasks.cancelled == 1


def test_a_run_that_cannot_be_stored_is_a_failed_one(on_ray, tmp_path):
    runner = on_ray(Tasks(TaskResult(trial(PLANNED), b"", b"said")))
    (tmp_path / "sweeps" / "one" / "logs").write_text("in the way")
    made = runner.run(PLANNED)
    assert made.state is TrialState.FAILED
    assert "cannot be stored" in made.reason


def test_the_log_of_a_second_attempt_comes_behind_the_first(on_ray, tmp_path):
    runner = on_ray(Tasks(TaskResult(trial(PLANNED), b"", b"said\n")))
    runner.run(PLANNED)
    runner.run(PLANNED)
    log = tmp_path / "sweeps" / "one" / "logs" / log_name(PLANNED)
    assert log.read_text() == "said\nsaid\n"


def test_of_a_log_that_is_too_large_the_end_is_sent(monkeypatch):
    monkeypatch.setattr(on_ray_module, "_LOG_B", 10)

    class Talks:
        def __init__(self, _asked, _store, folder, **_):
            self._log = folder / "logs" / "one.log"

        def run(self, planned):
            self._log.parent.mkdir(parents=True)
            self._log.write_text("much said, and the end")
            return trial(planned)

        def close(self): ...

    monkeypatch.setattr(on_ray_module, "LocalRunner", Talks)
    assert measure(asked().as_json(), PLANNED, "one").log == b"nd the end"


@pytest.fixture
def without_filters(monkeypatch):
    """As in Python 3.11.2, which Debian 12 has."""
    extract_all = tarfile.TarFile.extractall
    trusting = {"filter": "fully_trusted"} if hasattr(tarfile, "data_filter") else {}

    def extract(self, path=".", members=None, *, numeric_owner=False):
        extract_all(self, path, members, numeric_owner=numeric_owner, **trusting)

    monkeypatch.delattr(tarfile, "data_filter", raising=False)
    monkeypatch.setattr(tarfile.TarFile, "extractall", extract)


@pytest.mark.usefixtures("without_filters")
class TestWithoutFiltersOfTarfile:
    def test_a_run_arrives(self, tmp_path):
        (tmp_path / "there" / "run" / "trace").mkdir(parents=True)
        (tmp_path / "there" / "run" / "trace" / "file").write_text("whole")
        (tmp_path / "here").mkdir()
        on_ray_module.unpack(on_ray_module.pack(tmp_path / "there" / "run"), tmp_path / "here")
        assert (tmp_path / "here" / "run" / "trace" / "file").read_text() == "whole"

    @pytest.mark.parametrize("name", ["../out", "/tmp/out", "run/../../out", "link"])
    def test_archive_with_paths_outside_is_refused(self, tmp_path, name):
        member = tarfile.TarInfo(name)
        if name == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc"
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            archive.addfile(member)
        with pytest.raises(tarfile.TarError, match="not a file of a run directory"):
            on_ray_module.unpack(out.getvalue(), tmp_path)
        assert list(tmp_path.iterdir()) == []

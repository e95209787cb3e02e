"""A recording on simulated looks: what must not end it."""

import json
import os
import time
from dataclasses import replace

import pytest

from joulewise.data import DeviceInfo, Kind, Source
from joulewise.session.recording import ProgressTracker, Recording
from joulewise.session.request import Request
from joulewise.store.layout import PROCESSES
from joulewise.store.manifest import CommandRecord, Manifest, RecordedDevice, RecorderRecord


def test_a_check_that_fails_is_noted_once_and_ends_nothing(tmp_path):
    recording = Recording(tmp_path, Request(budgets=("1MJ",)), os.environ)
    recording.command_started(CommandRecord(os.getpid(), ("true",), 0))
    recording._tracker.check = lambda *_, **__: 1 / 0
    assert recording.check() == []
    assert recording.check() == []
    recording.stop(stopped=False)
    notes = [w.message for w in recording.result().warnings if w.code == "budget"]
    assert notes == ["budgets were not checked until the end: ZeroDivisionError: division by zero"]


@pytest.mark.parametrize(("budgets", "after_s"), [(("1MJ",), 1.0), ((), 5.0)])
def test_what_is_not_used_up_soon_is_looked_at_seldom(budgets, after_s, tmp_path):
    recording = Recording(tmp_path, Request(budgets=budgets), os.environ)
    recording.command_started(CommandRecord(os.getpid(), ("true",), time.monotonic_ns()))
    recording.check()
    assert recording.check_after_s == after_s
    recording.discard()


def test_a_budget_is_looked_at_when_it_may_be_used_up(tmp_path):
    recording = Recording(tmp_path, Request(budgets=("5J",)), os.environ)
    recording.command_started(CommandRecord(os.getpid(), ("true",), time.monotonic_ns()))
    while not recording.check():
        assert recording.check_after_s < 1
    assert recording.check_after_s == 1  # it is used up: there is nothing to look for
    recording.discard()


GPU = RecordedDevice(
    DeviceInfo("gpu0", Kind.GPU, "a GPU", "uid", "nvidia"), {"power_w": Source.MEASURED}
)


def counted(course, manifest):
    """What is live after a look."""
    course.check({}, manifest, 100, ended=False)
    return course._counted


def bare_manifest(**more):
    return replace(
        Manifest(
            id="run", commands=(), cwd="", rate_hz=10, wall_start_ns=0, monotonic_start_ns=0,
            boot_id="", devices=(GPU,), missing={}, recorder=RecorderRecord(1, 1),
        ),
        **more,
    )  # fmt: skip


def sighting(t_ns, ours):
    process = {"pid": 7, "name": "train", "ours": ours}
    return json.dumps({"t_ns": t_ns, "device": "gpu0", "processes": [process]}) + "\n"


def test_what_the_recorder_notes_later_decides_what_counts(tmp_path):
    course = ProgressTracker(tmp_path, Request(), 0)
    (tmp_path / PROCESSES).write_text(sighting(1, ours=False))
    manifest = bare_manifest()
    assert counted(course, manifest) == ()
    note = {"code": "host_process_ids", "message": "", "device": "gpu0"}
    assert counted(course, replace(manifest, notes=(note,))) == ("gpu0",)


def test_a_gpu_that_woke_counts_from_then_on(tmp_path):
    course = ProgressTracker(tmp_path, Request(), 0)
    (tmp_path / PROCESSES).write_text(sighting(1, ours=True))
    asleep = replace(GPU, sources={}, asleep_ns=1)
    assert counted(course, bare_manifest(devices=(asleep,))) == ()
    assert counted(course, bare_manifest()) == ("gpu0",)


def test_of_who_used_a_device_only_the_news_is_read(tmp_path):
    course = ProgressTracker(tmp_path, Request(), 0)
    path = tmp_path / PROCESSES
    path.write_text(sighting(1, ours=False))
    assert counted(course, bare_manifest()) == ()
    news = sighting(2, ours=True)
    # What was read before may be anything by now; a line that is half written waits.
    path.write_text("?" * path.stat().st_size + news[:9])
    assert counted(course, bare_manifest()) == ()
    with path.open("a") as file:
        file.write(news[9:])
    assert counted(course, bare_manifest()) == ("gpu0",)

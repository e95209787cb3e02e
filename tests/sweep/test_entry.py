"""The index of sweeps against a plain reading of their folders, whatever happens to either."""

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from joulewise.data.sweeps import Planned, RunCounts
from joulewise.report.views.listings import list_runs
from joulewise.store.index import folder_index
from joulewise.store.layout import INDEX
from joulewise.store.runs import Skipped
from joulewise.sweep import entry
from joulewise.sweep.entry import find_newest, list_sweeps, read_sweep_entry
from joulewise.sweep.lock import running
from joulewise.sweep.stored_sweeps import (
    SWEEP_FILE,
    as_text,
    create_sweep,
    find_sweep,
    find_sweeps_to_continue,
    load_sweep,
    sweeps,
)
from tests.helpers.fake_runner import asked, space, trial


@pytest.fixture(autouse=True)
def always_indexed(tmp_path, monkeypatch):
    """A small store has a file as well, and a file that was written just now counts as old."""
    monkeypatch.setattr(folder_index, "SMALL_STORE", 0)
    monkeypatch.setattr(folder_index, "RACY_NS", -1000 * 10**9)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def store(tmp_path):
    folder = tmp_path / "runs é"
    for number in range(12):
        make(folder, number + 1, name=f"n{number % 3}", state="finished")
    return folder


def make(store, start_ns, **more):
    folder = create_sweep(store, asked(), space())
    trials = (trial(Planned(space().reference, 0)),)
    write(folder, replace(load_sweep(folder), start_wall_ns=start_ns, trials=trials, **more))
    return folder


def write(folder, sweep):
    """By another file in its place, as joulewise writes it: its times and inode are others."""
    part = folder / "part"
    part.write_text(as_text(sweep))
    part.replace(folder / SWEEP_FILE)


def plain(store):
    """Every sweep by reading it, newest first, and then what cannot be read."""
    found = list(sweeps(store))
    good = [read_sweep_entry(each[0]) for each in found if not isinstance(each, Skipped)]
    bad = [read_sweep_entry(each.path) for each in found if isinstance(each, Skipped)]
    return [*reversed(good), *sorted(bad, key=lambda each: each.path.name, reverse=True)]


def indexed(store):
    found = list_sweeps(store)
    assert found.total == len(found.sweeps)
    return list(found.sweeps)


@pytest.fixture
def read(monkeypatch):
    """The sweeps whose file is read from here on."""
    folders = []

    def load_as_written(folder, **options):
        folders.append(folder)
        return original(folder, **options)

    original = entry.load_as_written
    monkeypatch.setattr(entry, "load_as_written", load_as_written)
    return folders


def test_the_list_is_that_of_a_plain_reading(store):
    assert indexed(store) == plain(store)
    assert [each.runs for each in indexed(store)] == [RunCounts(1, 0, 0, 0)] * 12
    page = list_sweeps(store, limit=5, page=3)
    assert (list(page.sweeps), page.total) == (plain(store)[10:], 12)


def test_nothing_is_read_twice(store, read):
    indexed(store)
    assert len(read) == 12
    newest = plain(store)[0].path
    read.clear()
    assert find_sweep(store, "last") == newest
    assert find_sweep(store, "n2") == newest
    assert find_sweeps_to_continue(store, [asked(name="never asked")]) == [None]
    assert len(indexed(store)) == 12
    assert read == []


def test_what_was_changed_added_removed_and_damaged_is_noticed(store, read):
    first = indexed(store)
    read.clear()
    oldest, newest = first[-1].path, first[0].path
    write(oldest, replace(load_sweep(oldest), name="renamed"))
    added = make(store, 99, name="added")
    shutil.rmtree(newest)
    earlier = store / "sweeps" / "20261115-000000-0000"  # or it might be the newest
    torn = first[3].path.rename(earlier) / SWEEP_FILE
    torn.write_text(torn.read_text()[:50])
    shutil.copytree(first[5].path, store / "sweeps" / "copied in")
    (store / "sweeps" / "20261116-000000-0000").mkdir()  # its maker was killed
    assert indexed(store) == plain(store)
    assert find_sweep(store, "last") == added
    assert find_sweep(store, "renamed") == oldest
    [damaged] = [each for each in indexed(store) if each.problem]
    assert damaged.path == torn.parent
    assert torn.parent.name in damaged.problem


def test_one_that_nobody_runs_any_more_was_interrupted(store):
    folder = make(store, 100, state="running")
    with running(folder):
        assert indexed(store)[0].state == "running"
        assert indexed(store) == plain(store)
    assert indexed(store)[0].state == "interrupted"
    assert find_newest(store).state == "interrupted"


def test_the_path_is_that_by_which_the_store_is_named(store, monkeypatch):
    torn = indexed(store)[2].path / SWEEP_FILE
    torn.write_text("{")
    indexed(store)
    monkeypatch.chdir(store.parent)
    here = store.relative_to(store.parent)
    assert indexed(here) == plain(here)


def test_a_damaged_index_is_made_anew(store):
    wanted = indexed(store)
    path = store / INDEX
    for damage in (
        lambda: path.write_bytes(b"no index"),
        lambda: os.truncate(path, path.stat().st_size // 2),
        path.unlink,
    ):
        damage()
        assert indexed(store) == wanted


@pytest.mark.parametrize("table", ["sweeps", "sweeps_data"])
def test_rows_that_others_changed_are_not_used_though_runs_were_listed_since(store, table):
    """Whoever finds the seal broken verifies the rows of all kinds before it is sealed again."""
    (store / "20261101-000000-0000").mkdir()
    list_runs(store, limit=5)
    wanted = indexed(store)
    with closing(sqlite3.connect(store / INDEX)) as connection, connection:
        column = "start_ns" if table == "sweeps" else "data"
        value = 10**9 if table == "sweeps" else wanted[0].path.name.encode()
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = 3", (value,))
    list_runs(store, limit=5)
    assert indexed(store) == wanted


def test_a_store_without_sweeps(tmp_path):
    assert indexed(tmp_path) == []
    assert find_newest(tmp_path) is None

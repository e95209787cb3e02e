"""The index of a store against a plain reading of its directories, whatever happens to either."""

import json
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import joulewise.store.checksums
from joulewise.data.run_result_json import RESULT_FORMAT
from joulewise.process.linux import boot_id, started_ticks
from joulewise.report.views.listings import list_runs, parse_filter
from joulewise.store.checksums import with_checksum
from joulewise.store.index import database, folder_index
from joulewise.store.index.conditions import ALWAYS, SqlCondition, text_is
from joulewise.store.index.folder_index import query_index
from joulewise.store.index.progress import ProgressSlot
from joulewise.store.index.run_entry import READABLE, RUNS, find_runs, read_entry
from joulewise.store.layout import FORMAT, INDEX, LIVE, MANIFEST, RESULT
from joulewise.store.manifest import Manifest, RecorderRecord, write_manifest
from joulewise.store.runs import find, id_second, named, newest_recording

S = 10**9


def make(store, number, *, name="", joules=1000.0, second=None, state="complete", **more):
    """A run without a trace, made at that second; its number tells it from others."""
    second = number if second is None else second
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(second))
    run = store / f"{stamp}-{number:04x}"
    run.mkdir(parents=True)
    known = {"commands": (), "cwd": "/", "rate_hz": 10.0, "monotonic_start_ns": 2, **more}
    manifest = Manifest(
        run.name, wall_start_ns=second * S, boot_id=boot_id(), name=name, state=state, **known
    )
    write_manifest(run, manifest, durable=False)
    if joules is not None:
        write_result(run, joules)
    return run


def write_result(run, joules):
    energy = {"value": joules, "error": 1.0, "source": "measured", "at_least": False}
    first = {"format": 1, "time_s": 1.0, "energy_j": {"total": energy}}
    (run / RESULT).write_text(json.dumps(first)[:-1] + ',\n"spans": []}\n')


def plain(store):
    """Every run as its own files tell it, oldest first, and what cannot be read."""
    entries = [read_entry(path) for path in sorted(store.iterdir()) if path.is_dir()]
    runs = [entry for entry in entries if not entry.problem]
    runs.sort(key=lambda entry: (*entry.order, os.fsencode(entry.path.name)))
    return runs, sorted((e.path.name, e.problem) for e in entries if e.problem)


def indexed(store, condition=ALWAYS):
    found = list_runs(store, condition, limit=10_000)
    return list(found.runs), sorted((one.path.name, one.reason) for one in found.skipped)


def wait_for_tick(folder):
    """Until the clock of the file system has advanced: what is written now has another time."""
    probe = folder / "probe"
    probe.write_text("")
    first_ns = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == first_ns:
        probe.write_text("")


@contextmanager
def always_indexed():
    """A small store has a file as well, and a file that was written just now counts as old."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_index, "SMALL_STORE", 0)
        patch.setattr(folder_index, "RACY_NS", -1000 * S)
        yield patch


@pytest.fixture
def patched(tmp_path):
    with always_indexed() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield patch


@pytest.fixture
def store(tmp_path):
    folder = tmp_path / "runs é"
    folder.mkdir(mode=0o700)
    for number in range(20):
        make(folder, number, name=f"n{number % 3}", joules=100.0 * number)
    (folder / "foreign").mkdir()
    return folder


def read_counter(monkeypatch):
    """The folders that are read for the index from here on."""
    read = []
    kind = folder_index._Update._row

    def row(update, folder):
        if folder not in update._rows:
            read.append(os.fsdecode(folder))
        return kind(update, folder)

    monkeypatch.setattr(folder_index._Update, "_row", row)
    return read


class StoreMachine(RuleBasedStateMachine):
    """Whatever is done to the directories and to the index, both ways to list agree."""

    def __init__(self):
        super().__init__()
        self.context = always_indexed()
        patch = self.context.__enter__()
        self.folder = Path(tempfile.mkdtemp())
        patch.setenv("XDG_CACHE_HOME", str(self.folder / "cache"))
        self.store = self.folder / "runs"
        self.store.mkdir(mode=0o700)
        self.made = 0
        self.kept = None

    def teardown(self):
        self.context.__exit__(None, None, None)
        shutil.rmtree(self.folder)

    def runs(self):
        return sorted(path for path in self.store.iterdir() if path.is_dir())

    def pick(self, number):
        return self.runs()[number % len(self.runs())]

    def has_runs(self):
        return bool(self.runs())

    @rule(second=st.integers(0, 3), state=st.sampled_from(["complete", "recording", "stopped"]))
    def add(self, second, state):
        self.made += 1
        make(self.store, self.made, second=second, name=f"n{self.made % 4}", state=state)

    @precondition(has_runs)
    @rule(number=st.integers(0, 20))
    def remove(self, number):
        run = self.pick(number)
        run.unlink() if run.is_symlink() else shutil.rmtree(run)

    @precondition(has_runs)
    @rule(number=st.integers(0, 20), letter=st.sampled_from("abc"))
    def edit_in_place_keeping_size_and_mtime(self, number, letter):
        path = self.pick(number) / MANIFEST
        if path.is_file():
            before = path.stat()
            text = path.read_text().replace('"name": "n', f'"name": "{letter}')
            with path.open("r+") as file:
                file.write(text)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    @precondition(has_runs)
    @rule(number=st.integers(0, 20), joules=st.integers(1000, 9999))
    def replace_result(self, number, joules):
        write_result(self.pick(number), float(joules))

    @precondition(has_runs)
    @rule(number=st.integers(0, 20), file=st.sampled_from([MANIFEST, RESULT]))
    def delete_file(self, number, file):
        (self.pick(number) / file).unlink(missing_ok=True)

    @precondition(has_runs)
    @rule(number=st.integers(0, 20), text=st.sampled_from(["", "{", "[]", '{"format": 9}']))
    def damage_manifest(self, number, text):
        (self.pick(number) / MANIFEST).write_text(text)

    @precondition(has_runs)
    @rule(number=st.integers(0, 20), name=st.sampled_from(["copy", "19700101-000002-ffff"]))
    def copy_with_old_times(self, number, name):
        if not (self.store / name).exists():
            shutil.copytree(self.pick(number), self.store / name)

    @precondition(has_runs)
    @rule(one=st.integers(0, 20), other=st.integers(0, 20))
    def exchange(self, one, other):
        first, second = self.pick(one), self.pick(other)
        if first != second:
            aside = self.folder / "aside"
            first.rename(aside)
            second.rename(first)
            aside.rename(second)

    @precondition(has_runs)
    @rule(number=st.integers(0, 20))
    def link(self, number):
        target = self.folder / "elsewhere"
        if not target.exists() and not self.pick(number).is_symlink():
            run = self.pick(number)
            run.rename(target)
            run.symlink_to(target)

    @rule(seed=st.integers(0, 1000), size=st.sampled_from([1, 100, 5000]))
    def damage_index(self, seed, size):
        index = self.store / INDEX
        if index.is_file() and index.stat().st_size:
            dice = random.Random(seed)
            with index.open("r+b") as file:
                file.seek(dice.randrange(index.stat().st_size))
                file.write(dice.randbytes(size))

    @rule()
    def keep_index(self):
        if (self.store / INDEX).is_file():
            self.kept = (self.store / INDEX).read_bytes()

    @precondition(lambda self: self.kept is not None)
    @rule()
    def put_old_index_back(self):
        (self.store / INDEX).write_bytes(self.kept)

    @precondition(has_runs)
    @rule(number=st.integers(0, 20))
    def write_while_another_reads(self, number):
        """A second command changes and lists the store while the first is in its transaction."""

        def use(index):
            before = index.count()
            write_result(self.pick(number), 5.0)
            wait_for_tick(self.folder)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(database, "_BUSY_S", 0.0)
                assert indexed(self.store) == plain(self.store)
            return before == index.count()

        assert query_index(self.store, RUNS, use)

    @invariant()
    def index_is_the_plain_reading(self):
        wait_for_tick(self.folder)
        runs, skipped = plain(self.store)
        try:
            assert indexed(self.store) == (runs, skipped)
            high = [run for run in runs if run.energy_j is not None and run.energy_j > 4000]
            assert indexed(self.store, parse_filter("energy>4kJ"))[0] == high
            assert named(self.store, "n1") == [run.path for run in runs if run.name == "n1"]
        finally:
            wait_for_tick(self.folder)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=25, stateful_step_count=15, deadline=None)


def _damage(index, how):
    match how:
        case "empty":
            index.write_bytes(b"")
        case "text":
            index.write_text("no index")
        case "cut":
            os.truncate(index, index.stat().st_size // 2)
        case "zeros":
            with index.open("r+b") as file:
                file.seek(4096)
                file.write(bytes(8192))
        case "folder":
            index.unlink()
            index.mkdir()
        case "link":
            index.rename(index.with_name("moved"))
            index.symlink_to(index.with_name("moved"))
        case "journal":
            index.with_name(f"{INDEX}-journal").write_bytes(
                b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" * 99
            )
        case statement:
            with closing(sqlite3.connect(index)) as connection, connection:
                connection.execute(statement)


@pytest.mark.parametrize(
    "how",
    [
        *("empty", "text", "cut", "zeros", "folder", "link", "journal"),
        "DROP TABLE runs",
        "DROP TABLE runs_data",
        "DROP TABLE meta",
        "DELETE FROM runs_data",
        "UPDATE meta SET value = 'another version' WHERE key = 'runs'",
        "UPDATE runs SET energy_j = energy_j + 1e6",
        "UPDATE runs SET name = x'ff'",
        "UPDATE runs_data SET data = x'7b7d'",
        "ALTER TABLE runs ADD COLUMN more",
        "UPDATE runs SET folder = x'61' WHERE energy_j = 300",
    ],
)
@pytest.mark.usefixtures("patched")
def test_a_damaged_index_gives_the_same_list(store, how):
    assert indexed(store) == plain(store)
    _damage(store / INDEX, how)
    assert indexed(store) == plain(store)
    assert indexed(store, parse_filter("energy>1kJ"))[0] == plain(store)[0][11:]
    assert indexed(store) == plain(store)


def test_an_index_in_use_reads_only_what_has_changed(store, patched):
    indexed(store)
    read = read_counter(patched)
    assert indexed(store) == plain(store)
    assert read == []
    changed = next(iter(sorted(store.iterdir())[5:]))
    write_result(changed, 7.0)
    assert indexed(store) == plain(store)
    assert read == [changed.name]


def test_a_row_of_a_folder_that_changed_just_now_is_not_stored(store, monkeypatch):
    """A second edit of the same size may leave the same times: their clock advances in steps."""
    monkeypatch.setattr(folder_index, "SMALL_STORE", 0)
    read = read_counter(monkeypatch)
    indexed(store)
    read.clear()
    assert indexed(store) == plain(store)
    assert len([name for name in read if name != "foreign"]) == 20


class TestAnIndexThatCannotBeUsed:
    def test_a_store_on_the_network_has_it_in_the_cache_folder(self, store, patched, tmp_path):
        patched.setattr(database, "is_on_local_disk", lambda _: False)
        assert indexed(store) == plain(store)
        assert not (store / INDEX).exists()
        assert len(list((tmp_path / "cache" / "joulewise" / "indexes").iterdir())) == 1
        read = read_counter(patched)
        assert indexed(store) == plain(store)
        assert read == []

    def test_a_store_that_cannot_be_written(self, store, patched, tmp_path):
        may = os.access
        patched.setattr(
            database.os, "access", lambda path, mode: Path(path) != store and may(path, mode)
        )
        assert indexed(store) == plain(store)
        assert not (store / INDEX).exists()
        assert (tmp_path / "cache").exists()

    def test_the_index_of_another_user_is_not_read(self, store, patched, tmp_path):
        indexed(store)
        before = (store / INDEX).read_bytes()
        own = os.geteuid()
        patched.setattr(
            database,
            "is_ours",
            lambda path: path.parent != store or path.lstat().st_uid == own + 1,
        )
        write_result(next(iter(sorted(store.iterdir())[5:])), 7.0)
        assert indexed(store) == plain(store)
        assert (store / INDEX).read_bytes() == before
        assert (tmp_path / "cache").exists()

    @pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
    def test_a_store_that_others_can_write_has_it_in_the_cache_folder(self, store, patched, mode):
        """Beside the file they could put a journal, which SQLite would replay."""
        store.chmod(mode)
        assert indexed(store) == plain(store)
        assert not (store / INDEX).exists()
        read = read_counter(patched)
        assert indexed(store) == plain(store)
        assert read == []

    @pytest.mark.usefixtures("patched")
    def test_the_store_of_another_user_has_it_in_the_cache_folder(self, store):
        """As it is where root lists it: the user could not bring root's file up to date."""
        other = os.geteuid() + 1
        try:
            os.chown(store, other, -1)
        except PermissionError:
            pytest.skip("only root can give a folder away")
        assert indexed(store) == plain(store)
        assert not (store / INDEX).exists()

    def test_a_private_folder_is_our_own_and_nobody_else_writes_to_it(self, tmp_path, monkeypatch):
        tmp_path.chmod(0o755)
        assert database.is_private(tmp_path)
        assert not database.is_private(tmp_path / "missing")
        other = os.geteuid() + 1
        monkeypatch.setattr(database.os, "geteuid", lambda: other)
        assert not database.is_private(tmp_path)

    @pytest.mark.parametrize("ending", ["-journal", "-wal"])
    def test_a_strange_file_beside_it_is_not_replayed(self, store, patched, ending):
        indexed(store)
        (store / f"{INDEX}{ending}").symlink_to(store / "elsewhere")
        assert next(database.index_files(store, os.environ)).parent != store
        assert indexed(store) == plain(store)
        assert patched is not None

    def test_a_cache_folder_that_others_can_write_is_not_used(self, store, patched, tmp_path):
        patched.setattr(database, "is_on_local_disk", lambda _: False)
        folder = tmp_path / "cache" / "joulewise" / "indexes"
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        assert indexed(store) == plain(store)
        assert list(folder.iterdir()) == []

    def test_neither_store_nor_cache_folder(self, store, patched, tmp_path):
        patched.setattr(database, "is_on_local_disk", lambda _: False)
        (tmp_path / "cache").write_text("mine")
        assert indexed(store) == plain(store)
        assert not (store / INDEX).exists()

    @pytest.mark.parametrize("lock", ["BEGIN EXCLUSIVE", "BEGIN IMMEDIATE"])
    def test_one_that_is_locked(self, store, patched, lock):
        indexed(store)
        patched.setattr(database, "_BUSY_S", 0.0)
        with closing(sqlite3.connect(store / INDEX, isolation_level=None)) as other:
            other.execute(lock)
            write_result(next(iter(sorted(store.iterdir())[5:])), 7.0)
            assert indexed(store) == plain(store)

    @pytest.mark.parametrize(
        "said",
        ["database or disk is full", "attempt to write a readonly database", "disk I/O error"],
    )
    def test_a_disk_that_takes_no_more(self, store, patched, said):
        indexed(store)
        make(store, 99, name="n1")
        shutil.rmtree(sorted(store.iterdir())[4])

        def fails(*_):
            raise sqlite3.OperationalError(said)

        patched.setattr(database.IndexDatabase, "write", fails)
        assert indexed(store) == plain(store)

    def test_a_run_that_may_not_be_read_now(self, store, patched):
        """What failed for a reason that may pass is not remembered."""
        run = sorted(path for path in store.iterdir() if path.is_dir())[3]
        reading = joulewise.store.checksums.read_regular_bytes

        def refused(path):
            if path == run / MANIFEST:
                raise PermissionError(13, "Permission denied")
            return reading(path)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("joulewise.store.checksums.read_regular_bytes", refused)
            assert [name for name, _ in indexed(store)[1]] == [run.name, "foreign"]
        assert [name for name, _ in indexed(store)[1]] == ["foreign"]
        assert patched is not None


def test_an_upgrade_reads_again_what_was_too_new(store, patched):
    """That a run was recorded by a newer joulewise holds for as long as ours is older."""
    assert RUNS.formats == (FORMAT, RESULT_FORMAT)
    make(store, 50, format=FORMAT + 1)
    listed = query_index(store, RUNS, lambda index: index.count(READABLE))
    assert listed == 20
    patched.setattr("joulewise.store.manifest.FORMAT", FORMAT + 1)
    newer = replace(RUNS, formats=(FORMAT + 1, RESULT_FORMAT))
    assert query_index(store, newer, lambda index: index.count(READABLE)) == 21


def test_a_new_field_of_an_entry_makes_the_index_again(store, patched):
    """A row without it would show its default."""
    indexed(store)
    found = []
    kept = replace(RUNS, read=lambda path: found.append(path) or RUNS.read(path))
    query_index(store, kept, lambda index: index.count(READABLE))
    assert not found
    assert ("time_s", "float | None") in RUNS.fields
    newer = replace(kept, fields=(*RUNS.fields, ("colour", "str")))
    query_index(store, newer, lambda index: index.count(READABLE))
    assert len(found) >= 20
    assert patched is not None


@pytest.mark.usefixtures("patched")
def test_two_commands_that_make_it_at_once(store):
    found = []
    threads = [threading.Thread(target=lambda: found.append(indexed(store))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [plain(store)] * 4
    assert indexed(store) == plain(store)


def test_a_small_store_has_no_file(store):
    assert indexed(store) == plain(store)
    assert sorted(path.name for path in store.iterdir() if path.is_file()) == []


class TestARunThatIsRecorded:
    @pytest.fixture
    def recorded(self, store):
        pid = os.getpid()
        recorder = RecorderRecord(pid, started_ticks(pid))
        return make(store, 50, state="recording", joules=None, recorder=recorder)

    def tell(self, run, joules):
        energy = {"value": joules, "error": 1.0, "error_sampling": 1.0, "error_gain": 0.0}
        energy |= {"source": "measured", "at_least": False}
        live = {"t_ns": 1, "time_s": 4.5, "energy_j": {"total": energy}, "counted": []}
        (run / LIVE).write_text(json.dumps(live))

    @pytest.mark.usefixtures("patched")
    def test_shows_its_joules_so_far(self, store, recorded):
        for joules in (10.0, 20.0, 30.0):
            self.tell(recorded, joules)
            (run,) = indexed(store, parse_filter("state=recording"))[0]
            assert (run.path, run.energy_j, run.time_s) == (recorded, joules, 4.5)
        assert indexed(store, parse_filter("energy=30J"))[0] == [run]
        assert newest_recording(store) == recorded

    @pytest.mark.usefixtures("patched")
    def test_is_killed_when_its_recorder_is_gone(self, store, recorded, monkeypatch):
        assert len(indexed(store, parse_filter("state=recording"))[0]) == 1
        monkeypatch.setattr("joulewise.store.runs.is_alive", lambda *_: False)
        assert indexed(store, parse_filter("state=recording"))[0] == []
        (run,) = indexed(store, parse_filter("state=killed"))[0]
        assert (run.path, run.energy_j) == (recorded, None)
        assert newest_recording(store) is None


@pytest.mark.usefixtures("patched")
class TestHostileContent:
    def test_what_is_no_unicode_and_no_number_of_64_bits(self, store):
        run = make(store, 70, name="\ud800 \0 x", tags=("\udfff",))
        write_result(run, 10**400)
        broken = store / os.fsdecode(b"\xff\xfe")
        shutil.copytree(run, broken)
        assert indexed(store) == plain(store)
        assert {entry.path for entry in find_runs(store, text_is("name", "\ud800 \0 x"))} == {
            run,
            broken,
        }
        assert indexed(store, parse_filter("energy>1MJ"))[0] == []  # no number of ours is so long

    @pytest.mark.parametrize("start_ns", [-1, 1 << 63, 10**40])
    def test_a_start_that_is_no_time(self, store, start_ns):
        path = make(store, 71) / MANIFEST
        payload = json.loads(path.read_text())
        del payload["crc32"]
        path.write_text(json.dumps({**payload, "wall_start_ns": start_ns}))
        assert indexed(store) == plain(store)
        assert path.parent.name in dict(indexed(store)[1])


OPENED = []


def _note_opened(event, arguments):
    if event == "open" and isinstance(arguments[0], str | bytes):
        OPENED.append(os.fsdecode(arguments[0]))


sys.addaudithook(_note_opened)


def opened(act):
    """The folders of runs in which a file was opened meanwhile."""
    OPENED.clear()
    act()
    return {Path(path).parent.name for path in OPENED if path.endswith((MANIFEST, RESULT))}


MANY = 2000


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    store = tmp_path_factory.mktemp("large") / "runs"
    first = make(store, 0, name="job-0")
    manifest = json.loads((first / MANIFEST).read_text())
    del manifest["crc32"]
    manifest, result = json.dumps(manifest), (first / RESULT).read_text()
    for number in range(1, MANY):
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(number))
        run = store / f"{stamp}-{number:04x}"
        run.mkdir()
        text = manifest.replace(first.name, run.name).replace("job-0", f"job-{number}")
        start = f'"wall_start_ns": {number * S}'
        text = with_checksum(text.replace('"wall_start_ns": 0', start))
        (run / MANIFEST).write_text(text)
        (run / RESULT).write_text(result.replace("1000.0", f"{number}.0"))
    return store


class TestALargeStore:
    """The short form of benchmarks/store_index.py: files that are opened in place of seconds."""

    @pytest.fixture(autouse=True)
    def old_files(self, monkeypatch):
        monkeypatch.setattr(folder_index, "RACY_NS", -1000 * S)

    def test_the_last_run_and_an_id_need_no_other(self, large):
        newest = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(MANY - 1))}-07cf"
        assert opened(lambda: find(large, "last")) <= {newest}
        assert find(large, "last").name == newest
        assert opened(lambda: find(large, newest[:-1])) == set()
        assert find(large, newest[:-1]).name == newest
        assert opened(lambda: find(large, newest)) == set()

    def test_a_list_opens_what_has_changed(self, large):
        payload = []

        @contextmanager
        def observer(total):
            payload.append(total)
            yield payload.append

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ProgressSlot, "observer", observer)
            (large / INDEX).unlink(missing_ok=True)
            assert len(opened(lambda: list_runs(large, limit=50))) == MANY
        assert payload[0] == sum(payload[1:]) == MANY
        page = list_runs(large, limit=50, page=2)
        assert (page.total, page.pages, len(page.runs)) == (MANY, 40, 50)
        assert page.runs[-1].name == f"job-{MANY - 51}"
        for condition in (ALWAYS, parse_filter("energy>1.5kJ"), SqlCondition("is_link")):
            assert opened(lambda c=condition: list_runs(large, c, limit=50)) == set()
        assert opened(lambda: find(large, "job-77")) == set()
        assert find(large, "job-77").name.endswith("-004d")
        changed = find(large, "job-78")
        write_result(changed, 9e6)
        assert opened(lambda: list_runs(large, limit=50)) == set()  # it is not on this page
        costly = parse_filter("energy>8MJ")
        assert opened(lambda: list_runs(large, costly, limit=50)) == {changed.name}
        assert [run.path for run in list_runs(large, costly, limit=50).runs] == [changed]
        shown = list_runs(large, limit=50).runs[7].path
        write_result(shown, 6.0)
        assert opened(lambda: list_runs(large, limit=50)) == {shown.name}
        assert opened(lambda: list_runs(large, limit=50)) == set()
        assert list_runs(large, limit=50).runs[7].energy_j == 6.0


def test_an_id_contains_its_second():
    assert id_second("19700102-000001-abcd") == 86401
    for name in ("19700102-000001", "99999999-999999-abcd", "x9700102-000001-abcd", ""):
        assert id_second(name) is None

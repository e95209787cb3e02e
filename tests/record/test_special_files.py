"""What lies in a store and is no regular file is passed over, never waited for."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from joulewise.record.files import open_regular, read_regular
from joulewise.record.layout import MANIFEST, MARKS, PROCESSES, RESULT
from joulewise.record.store import Skipped, new_run, readable

sys.path.insert(0, str(Path(__file__).parents[1]))
from processes import DEADLINE_S, JOULEWISE


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as line:
        before = Path.cwd()
        os.chdir(path.parent)  # a whole path may be too long for an address
        try:
            line.bind(path.name)
        finally:
            os.chdir(before)


KINDS = {
    "pipe": os.mkfifo,
    "socket": make_socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "loop": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_are_read(tmp_path, kind):
    path = tmp_path / "file"
    KINDS[kind](path)
    with pytest.raises(OSError, match=r"regular|No such device|[Ll]oop|levels of symbolic"):
        open_regular(path)
    path.rmdir() if kind == "folder" else path.unlink()
    path.write_text("text")
    assert read_regular(path) == "text"


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_with_one_is_listed(tmp_path, kind):
    whole, odd = new_run(tmp_path), new_run(tmp_path)
    (odd / MANIFEST).unlink()
    KINDS[kind](odd / MANIFEST)
    found = list(readable(tmp_path))
    assert [each.path for each in found if isinstance(each, Skipped)] == [odd]
    assert [each[0] for each in found if not isinstance(each, Skipped)] == [whole]


@pytest.mark.parametrize("name", [MANIFEST, RESULT, PROCESSES, f"{MARKS}/1.marks"])
def test_ls_and_show_do_not_wait_for_a_pipe(tmp_path, name):
    store = tmp_path / "store"
    ran = joulewise(store, "run", "--", "true")
    assert ran.returncode == 0, ran.stderr
    (run,) = store.iterdir()
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    assert joulewise(store, "ls").returncode == 0
    assert joulewise(store, "show", run.name).returncode in {0, 2, 125}


def test_a_link_to_a_run_is_not_deleted_and_the_reason_is_said(tmp_path):
    store = tmp_path / "store"
    run = new_run(tmp_path / "elsewhere")
    shutil.copytree(run, store / "kept")
    (store / "linked").symlink_to(run)
    done = joulewise(store, "rm", "--yes", "linked")
    assert done.returncode == 2
    assert "is a link to a run elsewhere" in done.stderr
    assert "None" not in done.stderr
    assert (run / MANIFEST).exists()


def joulewise(store, *arguments):
    return subprocess.run(
        [*JOULEWISE, "--store", str(store), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )

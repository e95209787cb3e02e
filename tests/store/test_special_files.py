"""What lies in a store and is not a regular file is ignored, never waited for."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from joulewise.analyse.run_result import analyse
from joulewise.cli import joulewise as cli
from joulewise.data import WarningCode
from joulewise.store.checksums import write_final_checksums
from joulewise.store.files import open_regular, read_regular
from joulewise.store.layout import CHECKSUMS, MANIFEST, MARKS, PROCESSES, RESULT
from joulewise.store.runs import Skipped, new_run, readable
from tests.helpers.processes import DEADLINE_S, JOULEWISE
from tests.helpers.run_directories import MadeRun, device


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


EVERY_VERB = """
import sys
from click.testing import CliRunner
from joulewise.cli import joulewise

for run in sys.argv[2:]:
    for verb in (["show"], ["export", "-o", "out.csv"], ["report"]):
        print(run, *verb, flush=True)
        done = CliRunner().invoke(joulewise, ["--store", sys.argv[1], verb[0], run, *verb[1:]])
        assert done.exit_code == 0, done.output
"""


def test_no_file_with_a_checksum_is_waited_for(tmp_path):
    """Without a stored result every file of a run is read; in one process, which is quicker."""
    store = tmp_path / "store"
    run = made(store / "run")
    names = [*json.loads((run / CHECKSUMS).read_text())["files"], CHECKSUMS]
    assert {PROCESSES, "trace/gpu0.arrows", "trace/gpu0.slow.arrows"} < set(names)
    assert any(name.startswith(MARKS) for name in names)
    for number, name in enumerate(names):
        damaged = store / f"damaged{number}"
        shutil.copytree(run, damaged)
        (damaged / name).unlink()
        os.mkfifo(damaged / name)
    done = subprocess.run(
        [sys.executable, "-c", EVERY_VERB, store, *(f"damaged{i}" for i in range(len(names)))],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_packed_file_without_a_checksum_is_not_waited_for(tmp_path):
    run = made(tmp_path / "run")
    (run / CHECKSUMS).unlink()
    os.mkfifo(run / "trace/gpu0.parquet")
    done = joulewise(tmp_path, "show", "run")
    assert done.returncode == 0, done.stderr
    assert "trace/gpu0.parquet is damaged" in done.stdout + done.stderr


def test_a_pipe_among_the_marks_does_not_hold_up_the_run(tmp_path):
    """It is made by the command itself, while the recorder is at work."""
    store = tmp_path / "store"
    command = "mkfifo $JOULEWISE_MARKS/x.marks; exit 3"
    assert joulewise(store, "run", "--", "sh", "-c", command).returncode == 3
    (run,) = store.iterdir()
    assert (run / MARKS / "x.marks").is_fifo()
    assert json.loads((run / CHECKSUMS).read_text())["is_final"]


def test_a_link_to_a_run_is_not_deleted_and_the_error_says_why(tmp_path):
    store = tmp_path / "store"
    run = new_run(tmp_path / "elsewhere")
    shutil.copytree(run, store / "kept")
    (store / "linked").symlink_to(run)
    done = joulewise(store, "rm", "--yes", "linked")
    assert done.returncode == 2
    assert "is a link to a run elsewhere" in done.stderr
    assert "None" not in done.stderr
    assert (run / MANIFEST).exists()


def made(path):
    """A run with a file of each kind and its checksums."""
    run = MadeRun(path).fast(device("gpu0"), lambda _: 100.0)
    run.slow("gpu0", temperature_c=lambda _: 40.0)
    run.processes("gpu0", (0.0, [(4242, "python", True)])).spans(("epoch", 0, 1.0, 5.0)).write()
    write_final_checksums(path)
    return path


def joulewise(store, *arguments, cwd=None):
    return subprocess.run(
        [*JOULEWISE, "--store", str(store), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )


@pytest.mark.parametrize("has_checksums", [True, False])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pipe"])
@pytest.mark.parametrize("name", ["gpu0.arrows", "gpu0.slow.arrows", "gpu0.parquet"])
def test_a_trace_file_of_another_kind_is_damage(tmp_path, kind, has_checksums, name):
    run = made(tmp_path / "run")
    if not has_checksums:
        (run / CHECKSUMS).unlink()
    path = run / "trace" / name
    path.unlink(missing_ok=True)
    KINDS[kind](path)
    for words in (["show", "run"], ["export", "run", "-o", str(tmp_path / "out.csv")]):
        done = CliRunner().invoke(cli, ["--store", str(tmp_path), *words])
        assert done.exit_code == 0, done.output
    warnings = [w.message for w in analyse(run).warnings if w.code is WarningCode.DAMAGED]
    assert [message for message in warnings if f"trace/{name} is damaged" in message]

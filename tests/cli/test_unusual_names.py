"""Links that lead back to themselves, and names longer than any file can have."""

import sys

import pytest

from joulewise.store.layout import SWEEPS

LONG = "x" * 300  # more than the 255 bytes that Linux has for a name


@pytest.fixture(autouse=True)
def _made(make_run):
    make_run("20260101-000000-aaaa", name="a")
    make_run("20260101-000001-bbbb", name="b")


@pytest.mark.parametrize("links", [{"x": "x"}, {"x": "y", "y": "x"}], ids=["one", "two"])
@pytest.mark.parametrize(
    "words",
    [
        ["ls"],
        ["show", "a"],
        ["show", "last"],
        ["show", "20260101-000001"],
        ["compare", "a", "b"],
        ["export", "a", "-o", "-"],
        ["rm", "--yes", "a"],
    ],
    ids=" ".join,
)
def test_a_store_with_a_looping_link_is_read(joulewise, store, links, words):
    (store / SWEEPS).mkdir()
    for folder in (store, store / SWEEPS):
        for name, target in links.items():
            (folder / name).symlink_to(target)
    done = joulewise(*words)
    assert done.returncode == 0, done.stderr
    assert "symbolic" not in done.stderr


def test_a_name_that_is_too_long_is_no_run(joulewise, tmp_path):
    for words in (
        ["show", LONG],
        ["compare", "a", LONG],
        ["compare", LONG, "b"],
        ["choose", LONG],
        ["choose", f"{LONG}.csv"],
        ["report", LONG],
        ["report", "a", "-o", f"{tmp_path}/{LONG}"],
        ["report", "a", "-o", f"{tmp_path}/{LONG}/x.html"],
        ["export", LONG, "-o", "-"],
        ["export", "a", "-o", f"{tmp_path}/{LONG}", "--format", "csv"],
        ["rm", "--yes", LONG],
        ["show", "a", "--json", f"{tmp_path}/{LONG}"],
        ["--store", f"{tmp_path}/{LONG}", "show", "x"],
        ["--store", f"{tmp_path}/{LONG}", "ls"],
        ["--store", f"{tmp_path}/{LONG}", "choose"],
        ["--store", f"{tmp_path}/{LONG}", "compare", "a", "b"],
        ["--store", f"{tmp_path}/{LONG}", "view"],
    ):
        done = joulewise(*words)
        assert done.returncode == 2, (words, done)
        assert "unexpected" not in done.stderr, words
        assert len(done.stderr.strip().splitlines()) == 2, done.stderr


def test_a_command_runs_although_its_json_has_no_possible_name(joulewise_alone, tmp_path):
    code = "print('ran'); raise SystemExit(9)"
    path = f"{tmp_path}/{LONG}"
    done = joulewise_alone("run", "--json", path, "--", sys.executable, "-c", code)
    assert (done.returncode, done.stdout) == (9, "ran\n")
    assert f"cannot write {path}: File name too long" in done.stderr
    assert "unexpected" not in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "a\udcff"], r"has no run, tag, group or sweep $'a\xff'"),
        (["export", "a\udcff", "-o", "-"], r"has no run, tag, group or sweep $'a\xff'"),
        (["--store", "/nowhere\udcff", "show", "x"], r"/nowhere\xff"),
    ],
)
def test_a_name_that_is_not_utf8_stands_as_a_shell_has_it(joulewise, words, said):
    done = joulewise(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "udcff" not in done.stderr

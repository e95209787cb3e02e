"""Paths, arguments and an environment that are not UTF-8: recorded, computed, shown, reported."""

import json
import os
import shlex
import subprocess

import pytest

from tests.helpers.processes import DEADLINE_S, JOULEWISE
from tests.helpers.run_processes import environment

ODD = b"caf\xe9\xff"


@pytest.fixture(scope="module", params=["0", ""], ids=["packed", "streams"])
def odd_store(request, tmp_path_factory):
    """A run of an odd command, in an odd folder with an odd environment, in a store below it."""
    folder = tmp_path_factory.mktemp("odd") / os.fsdecode(ODD)
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("a file system that takes only UTF-8")
    more = {b"ODD": ODD, b"JOULEWISE_COMPACT_OVER_ROWS": request.param.encode() or b"1000"}
    environ = {**{os.fsencode(k): os.fsencode(v) for k, v in environment().items()}, **more}
    done = joulewise(
        folder, environ, "run", "--name", ODD, "--json", "run.json", "--",
        "sh", "-c", 'sleep 0.3; printf %s "$1$ODD"; exit 3', "sh", ODD,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, ODD + ODD), done.stderr
    return folder, environ


def joulewise(folder, environ, *arguments):
    words = [os.fsencode(word) for word in (*JOULEWISE, "--store", folder / "runs", *arguments)]
    return subprocess.run(
        words, cwd=folder, env=environ, capture_output=True, check=False, timeout=DEADLINE_S
    )


def test_the_result_is_computed(odd_store):
    folder, _ = odd_store
    payload = json.loads((folder / "run.json").read_text())
    assert payload["state"] == "complete"
    assert payload["energy_j"]["total"]["value"] > 0


def test_what_was_run_and_where_is_stored_byte_for_byte(odd_store):
    folder, environ = odd_store
    done = joulewise(folder, environ, "ls", "--json", "-")
    (listed,) = json.loads(done.stdout)["runs"]
    manifest = json.loads((folder / "runs" / listed["id"] / "run.json").read_text())
    assert os.fsencode(manifest["commands"][0]["arguments"][-1]) == ODD
    assert os.fsencode(manifest["cwd"]) == os.fsencode(folder)
    assert os.fsencode(manifest["name"]) == ODD


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "last"),
        ("show", ODD, "--errors"),
        ("show", "last", "--json", "show.json"),
        ("ls",),
        ("export", "last", "-o", b"trace-" + ODD + b".csv"),
        ("export", "last", "-o", "trace.parquet"),
        ("export", "last", "--what", "spans", "-o", "spans.json"),
        ("report", "last", "-o", b"page-" + ODD + b".html"),
    ],
    ids=str,
)
def test_it_is_shown_exported_and_reported(arguments, odd_store):
    done = joulewise(*odd_store, *arguments)
    assert done.returncode == 0, done.stderr


def test_the_next_command_can_be_pasted(odd_store):
    folder, environ = odd_store
    shown = joulewise(folder, environ, "show", "last").stdout.decode()
    (command,) = [line for line in shown.splitlines() if " show " in line and " --errors" in line]
    pasted = command.strip().replace("joulewise ", shlex.join(JOULEWISE) + " ", 1)
    ran = subprocess.run(
        ["bash", "-c", pasted], cwd="/", env=environ, capture_output=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert b"total" in ran.stdout

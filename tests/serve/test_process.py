"""``joulewise view`` as a process."""

import http.client
import re
import signal
import socket
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.helpers.processes import DEADLINE_S, JOULEWISE, eventually, first_line
from tests.helpers.run_processes import environment

RUN = "20261101-120000-aaaa"
BROWSER = """#!/bin/sh
echo "$@" > "$OPENED.part"
mv "$OPENED.part" "$OPENED"
"""


@contextmanager
def viewing(store, *arguments, **environ):
    process = subprocess.Popen(
        [*JOULEWISE, "--store", str(store), "view", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**environ),
    )  # fmt: skip
    with process:
        try:
            yield process, first_line(process.stdout).strip()
        finally:
            process.kill()


def get(url):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=DEADLINE_S)
    connection.request("GET", parts.path)
    answer = connection.getresponse()
    try:
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_prints_its_address_and_ends_cleanly(store, make_run, number, status):
    make_run(RUN, name="mine")
    with viewing(store, "--port", "0") as (process, url):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{32}/", url)
        found, text = get(url)
        assert found == 200
        assert "mine" in text
        process.send_signal(number)
        stderr = process.stderr.read()
        assert process.wait(DEADLINE_S) == status
    assert stderr.startswith("joulewise: ")
    assert stderr.count("\n") == 1


def test_a_run_is_opened_by_its_name(store, make_run):
    make_run(RUN, name="mine")
    with viewing(store, "--port", "0", "mine") as (_, url):
        assert url.endswith(f"/run/{RUN}")
        assert get(url)[0] == 200


def test_a_missing_store_is_an_error(tmp_path):
    arguments = ["--store", str(tmp_path / "nowhere"), "view", "--port", "0"]
    ran = subprocess.run(
        [*JOULEWISE, *arguments], capture_output=True, text=True, timeout=DEADLINE_S,
        env=environment(), check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"there is no store {tmp_path / 'nowhere'}" in ran.stderr
    assert "--store" in ran.stderr


def test_another_port_is_used_where_the_default_is_in_use(store):
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 8765))
            taken.listen()
        except OSError:
            pass  # somebody else has it, which is as good
        with viewing(store) as (_, url):
            assert urlsplit(url).port != 8765
            assert get(url)[0] == 200


@pytest.mark.parametrize("arguments", [["--host", "0.0.0.0"], ["--port", "65536"], ["nobody"]])
def test_impossible_options_are_usage_errors(store, make_run, arguments):
    make_run(RUN)
    done = subprocess.run(
        [*JOULEWISE, "--store", str(store), "view", *arguments],
        capture_output=True, text=True, check=False, env=environment(), timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 2


def test_the_browser_gets_the_secret_from_a_private_file(store, tmp_path):
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(BROWSER)
    browser.chmod(0o755)
    environ = {"BROWSER": str(browser), "OPENED": str(opened), "TMPDIR": str(tmp_path)}
    with viewing(store, "--port", "0", "--open", **environ) as (process, url):
        address = eventually(lambda: opened.exists() and opened.read_text().strip())
        path = Path(urlsplit(address).path)
        assert address.startswith("file://")
        assert urlsplit(url).path not in address
        assert f"url={url}" in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_S)
    assert not path.exists()


def test_a_missing_extra_names_the_package(store):
    code = (
        "import importlib.util, sys\n"
        "found = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name: None if name == 'jinja2' else found(name)\n"
        f"sys.argv = ['joulewise', '--store', {str(store)!r}, 'view', '--port', '0']\n"
        "from joulewise.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=False, env=environment(), timeout=DEADLINE_S,
    )  # fmt: skip
    assert done.returncode == 125
    assert done.stderr.endswith("pip install 'joulewise[report]'\n")

"""What cannot be done is refused before the command starts, in a line and a hint."""

import os
import resource
import subprocess
import sys

import pytest

from tests.helpers.mounts import mounted_tmpfs
from tests.helpers.processes import python
from tests.helpers.run_processes import environment, manifest, run, runs


@pytest.mark.parametrize(
    ("arguments", "status", "message", "hint"),
    [
        ([], 2, "no command", "-- python train.py"),
        (["--budget", "2kmh", "--", "true"], 2, "2kmh", "2kWh"),
        (["--budget", "5gCO2", "--", "true"], 2, "5gCO2", "--gco2-per-kwh"),
        (["--json", "-", "--", "true"], 2, "stdout", "file"),
        (
            ["--json", "/no/such/folder/r.json", "--", "true"],
            2,
            "/no/such",
            "a file that you can write to",
        ),
        (["--json", "/tmp", "--", "true"], 2, "cannot write /tmp", "file"),
        (["--name", "last", "--", "true"], 2, "last", "another name"),
        (["--name", "", "--", "true"], 2, "the name is empty", "leave it out"),
        (["--tag", " ", "--", "true"], 2, "a tag is empty", "leave it out"),
        (["--rate", "fast", "--", "true"], 2, "'fast' is not a number", "--help"),
        (["--epochs", "1.5", "--", "true"], 2, "'1.5' is not a whole number", "--help"),
        (["--rate", "0", "--", "true"], 2, "0", "--help"),
        (["--rate", "nan", "--", "true"], 2, "nan", "--help"),
        (["--rate", "1e-12", "--", "true"], 2, "1e-12", "--help"),
        (["--rate", "1001", "--", "true"], 2, "1001", "--help"),
        (["--price-per-kwh", "inf", "--", "true"], 2, "inf", "--help"),
        (["--", "no-such-program"], 127, "no-such-program", "path"),
        (["--", "/etc/passwd"], 126, "not executable", "chmod"),
        (["--", "/etc"], 126, "folder", "program"),
    ],
)
def test_one_line_a_hint_and_no_run(arguments, status, message, hint, tmp_path):
    done = run(tmp_path / "store", *arguments)
    first, second = done.stderr.splitlines()
    assert done.returncode == status
    assert first.startswith("joulewise: ")
    assert message in first
    assert hint in second
    assert (done.stdout, list(tmp_path.iterdir())) == ("", [])


@pytest.mark.parametrize(
    ("content", "status"), [("#!/no/such/interpreter\n", 127), ("no first line", 126)]
)
def test_a_script_that_the_system_cannot_run_leaves_no_run(content, status, tmp_path):
    script = tmp_path / "script"
    script.write_text(content)
    script.chmod(0o755)
    done = run(tmp_path / "store", "--", str(script))
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "store").iterdir()) == []


ELSEWHERE = """
import ctypes, signal, sys
sys.modules["fcntl"] = None
for name in ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCHLD", "pthread_sigmask"):
    delattr(signal, name)
ctypes.CDLL = None
from joulewise.cli import main
sys.argv = ["joulewise", "run", "--", "true"]
main()
"""


def test_on_a_system_that_lacks_what_it_takes():
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        capture_output=True, text=True, check=False, timeout=180, env=environment(),
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "joulewise: `run` does not work on this system",
        "  use Linux, macOS, or WSL on Windows",
    ]


def test_a_store_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    done = run(tmp_path / "file" / "store", *python("print('started')"))
    assert (done.returncode, done.stdout) == (125, "")
    first, second = done.stderr.splitlines()
    assert str(tmp_path / "file") in first
    assert "--store" in second


def test_a_store_that_is_read_only(tmp_path):
    with mounted_tmpfs(tmp_path, "ro") as disk:
        done = run(disk, *python("print('started')"))
    assert (done.returncode, done.stdout) == (125, "")
    first, second = done.stderr.splitlines()
    assert "Read-only" in first
    assert "--store" in second


def test_a_full_store_is_refused_and_the_command_does_not_start(tmp_path):
    """A limit on the size of files fails a write as a full disk does."""
    done = run(
        tmp_path, *python("print('started')"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (125, ""), done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert runs(tmp_path) == []


def test_a_disk_that_gets_full_meanwhile_costs_rows_and_not_the_command(tmp_path):
    code = "import resource\ntime.sleep(2.5)\nprint('done')\nsys.exit(3)"
    done = run(
        tmp_path, "--rate", "1000", *python(code),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000)),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (3, "done\n"), done.stderr
    assert "Traceback" not in done.stderr


def test_a_disk_that_is_full_when_the_next_one_comes(tmp_path):
    with mounted_tmpfs(tmp_path, "size=64k") as disk:
        assert run(disk, *python("time.sleep(0.1)")).returncode == 0
        filling = f"open({str(disk / 'rest')!r}, 'wb').write(bytes(10**6))"
        code = (
            f"try:\n    {filling}\nexcept OSError:\n    print('full')\ntime.sleep(2.2)\nsys.exit(3)"
        )
        done = run(disk, *python(code))
        assert (done.returncode, done.stdout) == (3, "full\n"), done.stderr
        assert "Traceback" not in done.stderr
        assert "No space left" in done.stderr
        refused = run(disk, *python("print('started')"))
        assert (refused.returncode, refused.stdout) == (125, ""), refused.stderr
        assert len(runs(disk)) == 2  # the earlier ones are all there


def test_a_store_with_an_odd_name(tmp_path):
    store = tmp_path / "Läufe mit Leerzeichen\n und 'mehr' \N{SNOWMAN}"
    done = run(store, "--name", "größer", "--tag", "a b", *python("time.sleep(0.05)"))
    assert done.returncode == 0, done.stderr
    payload = manifest(store)
    assert (payload["name"], payload["tags"], payload["state"]) == ("größer", ["a b"], "complete")


def test_the_store_named_by_the_environment(tmp_path):
    done = subprocess.run(
        [os.sys.executable, "-m", "joulewise", "run", "--", "true"],
        env=environment(JOULEWISE_STORE=str(tmp_path / "s")), cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert len(runs(tmp_path / "s")) == 1


def test_the_store_after_the_verb(tmp_path):
    done = subprocess.run(
        [os.sys.executable, "-m", "joulewise", "run", "--store", "my runs", "--", "true"],
        env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    (folder,) = runs(tmp_path / "my runs")
    assert f"  joulewise --store 'my runs' show {folder.name} --errors" in done.stderr


def test_arguments_that_are_no_text(tmp_path):
    done = run(tmp_path, "--", "printf", "%s", b"\xff\xfe", text=False)
    assert (done.returncode, done.stdout) == (0, b"\xff\xfe")
    assert b"Traceback" not in done.stderr
    assert manifest(tmp_path)["state"] == "complete"

"""One tree of errors, drawn in its docstring, printed in one place."""

import inspect
import pickle
import re
import subprocess
import sys

import pytest

from joulewise import errors

TREE = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, errors.JoulewiseError)
]


def test_the_docstring_draws_every_error_once():
    drawn = re.findall(r"\b\w+Error\b", errors.__doc__.split("They are raised")[0])
    assert sorted(drawn) == sorted(cls.__name__ for cls in TREE)


@pytest.mark.parametrize("cls", TREE)
def test_every_error_has_a_message_a_hint_and_a_status(cls):
    error = cls("what is wrong", "what to do")
    assert (error.message, error.hint) == ("what is wrong", "what to do")
    assert str(error) == "what is wrong (what to do)"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert error.exit_status in {2, 125, 126, 127}


def run(body: str) -> subprocess.CompletedProcess[str]:
    script = (
        f"import sys, joulewise.cli as cli\nfrom joulewise.errors import *\ndef boom(**_): {body}\n"
    )
    script += "cli.joulewise.callback = boom\n"
    script += "sys.argv = ['joulewise']\ncli.main()"
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ("raise CommandNotFoundError('no such program', 'check PATH')", 127, "no such program"),
        ("raise UsageError('odd', 'say it so')", 2, "odd"),
        ("raise RuntimeError('an accident')", 125, "unexpected RuntimeError: an accident"),
        ("raise RuntimeError('two\\nlines')", 125, "unexpected RuntimeError: two lines"),
    ],
)
def test_an_error_is_one_line_and_a_hint(body, status, said):
    done = run(body)
    assert done.returncode == status
    first, second = done.stderr.splitlines()
    assert first == f"joulewise: {said}"
    assert second.startswith("  ")
    assert done.stdout == ""


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"], ["sim", "--gpu"]])
def test_a_slip_of_the_keyboard_is_two_lines_and_status_2(arguments):
    done = subprocess.run(
        [sys.executable, "-m", "joulewise", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 2

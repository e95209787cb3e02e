"""What is said of a command that cannot start is what to write instead."""

import os

import pytest

from joulewise.errors import CommandNotExecutableError, CommandNotFoundError
from joulewise.process.child import find_program


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A folder with ``python`` in it; we are where there are scripts."""
    programs, here = tmp_path / "bin", tmp_path / "here"
    for folder, name in (programs, "python"), (here, "train.py"), (here, "my train.py"):
        folder.mkdir(exist_ok=True)
        (folder / name).touch()
    (programs / "python").chmod(0o755)
    (here / "start").touch()
    monkeypatch.chdir(here)
    return str(programs)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("train.py", "run it with Python: python train.py"),
        ("my train.py", "run it with Python: python 'my train.py'"),
        ("python train.py", "leave out the quotes: python train.py"),
        ("start", "start a program in this folder as ./start"),
        ("trian.py", "check the spelling, or give its full path"),
        ("pyhton train.py", "check the spelling, or give its full path"),
        (" ", "check the spelling, or give its full path"),
        ("", "check the spelling, or give its full path"),
    ],
)
def test_what_is_not_found(path, name, hint):
    with pytest.raises(CommandNotFoundError) as refused:
        find_program(name, path)
    assert (refused.value.message, refused.value.hint) == (f"no program called {name}", hint)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("./train.py", "run it with Python: python ./train.py"),
        ("./start", "run: chmod +x ./start"),
        ("../here", "name a program in it"),
    ],
)
@pytest.mark.skipif(os.name != "posix", reason="the rights of files are those of POSIX")
def test_what_cannot_be_executed(path, name, hint):
    with pytest.raises(CommandNotExecutableError) as refused:
        find_program(name, path)
    assert refused.value.hint == hint


def test_what_is_there(path):
    find_program("python", path)

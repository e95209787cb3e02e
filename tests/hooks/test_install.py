"""How the hooks come into an interpreter, and how little of them can be seen there."""

import ast
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from joulewise import hooks
from joulewise.hooks.install import SITE, environment
from joulewise.store.spans import read_spans

HOOKS = Path(hooks.__file__).parent
OTHERS = Path.home() / ".pyenv" / "versions"
LOADED = "import sys; print('_joulewise_hooks' in sys.modules)"


def python(folder, *arguments, executable=sys.executable, **environ):
    marks = folder / "marks"
    marks.mkdir(exist_ok=True)
    return subprocess.run(
        [executable, *arguments],
        env={**environment({**os.environ, **environ}, marks, "a-run")},
        cwd=folder, capture_output=True, text=True, check=True,
    )  # fmt: skip


def interpreter(version):
    for found in (*sorted(OTHERS.glob(f"{version}.*/bin/python")), f"python{version}"):
        with suppress(OSError):
            # A shim of pyenv is in PATH for versions that it does not run.
            if not subprocess.run([found, "-c", ""], check=False, capture_output=True).returncode:
                return found
    pytest.skip(f"Python {version} is not here")


def test_they_are_there_and_the_path_is_as_before(tmp_path):
    done = python(tmp_path, "-c", f"{LOADED}; print({str(SITE)!r} in sys.path)")
    assert done.stdout.split() == ["True", "False"]
    assert list((tmp_path / "marks").iterdir()) == []


def test_they_load_next_to_nothing_until_they_are_needed(tmp_path):
    show = "import sys; print(*(name for name in sys.modules))"
    with_them = set(python(tmp_path, "-c", show).stdout.split())
    bare = subprocess.run(
        [sys.executable, "-c", show], capture_output=True, text=True, check=True
    ).stdout.split()
    ours = {name for name in with_them - set(bare) if name.startswith("_joulewise")}
    modules = ("import_hook", "out_of_memory")
    assert ours == {"_joulewise_hooks", *(f"_joulewise_hooks.{name}" for name in modules)}
    assert not {"typing", "threading", "struct"} & (with_them - set(bare))


@pytest.mark.parametrize("option", ["-S", "-I", "-E"])
def test_an_interpreter_told_to_ignore_them_does(tmp_path, option):
    done = python(tmp_path, option, "-c", LOADED)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_another_sitecustomize_is_found_as_if_this_were_not_there(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.greeting = __file__")
    (tmp_path / "usercustomize.py").write_text("import sys; sys.farewell = 1")
    show = f"{LOADED}; import sitecustomize; print(sys.greeting == sitecustomize.__file__)"
    done = python(tmp_path, "-c", show, PYTHONPATH=str(tmp_path))
    assert done.stdout.split() == ["True", "True"]


def test_the_error_of_another_sitecustomize_is_shown_as_ever(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("1 / 0")
    done = python(tmp_path, "-c", LOADED, PYTHONPATH=str(tmp_path))
    bare = subprocess.run(
        [sys.executable, "-c", "print(True)"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "ZeroDivisionError" in bare.stderr
    assert (done.stdout, done.stderr) == (bare.stdout, bare.stderr)


def test_where_there_is_no_other_there_is_none(tmp_path):
    show = "import importlib.util as u; print(u.find_spec('sitecustomize') is None)"
    bare = subprocess.run(
        [sys.executable, "-c", show], capture_output=True, text=True, check=True
    ).stdout
    assert python(tmp_path, "-c", show).stdout == bare


def test_without_the_marks_folder_they_stay_away(tmp_path):
    gone = environment(os.environ, tmp_path / "elsewhere", "a-run")
    done = subprocess.run(
        [sys.executable, "-c", LOADED], env=gone, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


FIT = """
import keras.src.callbacks.callback_list as module, importlib.util, inspect, sys
fit = module.CallbackList()
fit.on_train_begin(); fit.on_epoch_begin(2); fit.on_epoch_end(2); fit.on_train_end()
print(type(module.__loader__).__name__, "exec_module" in vars(module.__loader__))
print(inspect.getsource(module).startswith("class CallbackList"), fit.heard)
"""


def fake_keras(folder, source):
    """Nothing of Keras but the names by which it is known."""
    package = folder / "keras" / "src" / "callbacks"
    package.mkdir(parents=True)
    for part in (package, package.parent, package.parent.parent):
        (part / "__init__.py").touch()
    (package / "callback_list.py").write_text(source)


CALLBACKS = "class CallbackList:\n    heard = 0\n" + "".join(
    f"    def on_{name}(self, *_): self.heard += 1\n"
    for name in (
        "train_begin", "train_end", "epoch_begin", "epoch_end", "train_batch_begin",
        "train_batch_end", "test_begin", "test_end",
    )
)  # fmt: skip


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"])
def test_every_python_since_3_8_marks(tmp_path, version):
    executable = interpreter(version)
    fake_keras(tmp_path, CALLBACKS)
    done = python(tmp_path, "-c", FIT, executable=executable, PYTHONPATH=str(tmp_path))
    assert done.stdout.split() == ["SourceFileLoader", "False", "True", "4"]
    assert done.stderr == ""
    spans = list(read_spans(tmp_path))
    assert [(span.name, span.index) for span in spans] == [("training", 0), ("epoch", 2)]


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.7"])
def test_an_older_python_runs_as_ever(tmp_path, version):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.greeting = 'hello'")
    show = f"{LOADED}; print(sys.greeting)"
    executable = interpreter(version)
    done = python(tmp_path, "-c", show, executable=executable, PYTHONPATH=str(tmp_path))
    assert (done.stdout.split(), done.stderr) == (["False", "hello"], "")
    bare = python(tmp_path, "-c", LOADED, executable=executable)
    assert (bare.stdout, bare.stderr) == ("False\n", "")


def test_a_framework_that_has_changed_is_left_alone(tmp_path):
    fake_keras(tmp_path, "class CallbackList: heard = 0\n")
    show = "from keras.src.callbacks.callback_list import CallbackList as c; print(c.heard)"
    done = python(tmp_path, "-c", show, PYTHONPATH=str(tmp_path))
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_a_framework_that_is_loaded_lazily_stays_lazy(tmp_path):
    fake_keras(tmp_path, CALLBACKS + "print('loaded')\n")
    script = """
import sys
from importlib.machinery import PathFinder
from importlib.util import LazyLoader

class Lazily:
    def find_spec(self, name, path=None, target=None):
        spec = PathFinder.find_spec(name, path, target)
        if name.endswith("callback_list"):
            spec.loader = LazyLoader(spec.loader)
        return spec

sys.meta_path.insert(1, Lazily())
import keras.src.callbacks.callback_list as module
print("imported")
fit = module.CallbackList()
fit.on_train_begin(); fit.on_train_end()
"""
    done = python(tmp_path, "-c", script, PYTHONPATH=str(tmp_path))
    assert done.stdout.split() == ["imported", "loaded"]
    assert [span.name for span in read_spans(tmp_path)] == ["training"]


def test_the_environment_adds_to_what_is_there(tmp_path):
    base = {"PYTHONPATH": f"one{os.pathsep}two", "HOME": "there"}
    made = environment(base, tmp_path, "a-run")
    assert made["PYTHONPATH"].split(os.pathsep) == [str(SITE), "one", "two"]
    assert (made["JOULEWISE_MARKS"], made["JOULEWISE_RUN"]) == (str(tmp_path), "a-run")
    assert environment(made, tmp_path, "a-run") == made
    assert environment({}, tmp_path, "a-run")["PYTHONPATH"] == str(SITE)


def test_without_hooks_a_program_can_still_mark_by_itself(tmp_path):
    made = environment({"PYTHONPATH": "one"}, tmp_path, "a-run", hooks=False)
    assert made["PYTHONPATH"] == "one"
    assert made["JOULEWISE_MARKS"] == str(tmp_path)
    assert "PYTHONPATH" not in environment({}, tmp_path, "a-run", hooks=False)


@pytest.mark.parametrize("path", sorted(HOOKS.rglob("*.py")), ids=lambda path: path.name)
def test_a_file_is_one_that_python_3_8_can_read(path):
    ast.parse(path.read_text("utf-8"), feature_version=(3, 8))

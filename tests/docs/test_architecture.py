"""Paths on the architecture page exist, and its layers are those of the contract."""

import re
import sys

import pytest

from tests.helpers.paths import DOCS, ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGE = (DOCS / "explanation/architecture.md").read_text("utf-8")
SOURCE = ROOT / "src/joulewise"
OF_THE_REPOSITORY = ("src/", "tests/", "docs/", "benchmarks/", "script/", "examples/")
# Files of a store have slashes, too; what they are called is held by test_run_reference.
OF_A_STORE = re.compile(r"^(<run>|sweeps|trace|marks)/")
PATH = re.compile(
    r"(?<![\w./<-])((?:\w[\w.-]*/)+(?:[\w-]+\.py|[\w.-]+\.md|[\w-]+)?|\w+\.py)(?![\w<*])"
)


def named_paths():
    """Paths in backticks, and in drawings the words that end in .py or in a slash."""
    drawings = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    prose = re.sub(r"```text\n.*?```", "", PAGE, flags=re.DOTALL)
    quoted = (word for text in re.findall(r"`([^`\n]+)`", prose) for word in PATH.findall(text))
    drawn = (word for text in drawings for word in PATH.findall(text))
    words = {*quoted, *(word for word in drawn if word.endswith((".py", "/")))}
    return sorted(word for word in words if not OF_A_STORE.match(word) and word != "train.py")


@pytest.mark.parametrize("path", named_paths())
def test_every_path_exists(path):
    home = ROOT if path.startswith(OF_THE_REPOSITORY) else SOURCE
    assert (home / path).is_dir() if path.endswith("/") else (home / path).is_file()


def test_paths_are_found_in_the_text():
    assert {"session/run.py", "control/", "tests/package/test_imports.py"} <= set(named_paths())


def test_the_layers_are_those_of_the_contract():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (layers,) = (each["layers"] for each in contracts["contracts"] if each["type"] == "layers")
    drawing = re.search(r"## Layers.*?```text\n(.*?)```", PAGE, re.DOTALL)
    names = [re.match(r"\w+(?: \| \w+)*", line)[0] for line in drawing[1].splitlines()]
    assert names == layers


def test_the_map_for_contributors_has_every_package():
    contributing = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    packages = [each.parent.name for each in SOURCE.glob("*/__init__.py")]
    assert [name for name in packages if f"`{name}/`" not in contributing] == []

"""The shape of the source, counted by script/shape: what makes it hard to find one's way."""

import ast
import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT

MOST_MODULES = 20
MOST_SINGLE_SIBLING = 45


@pytest.fixture(scope="module")
def listed():
    def lines(kind):
        command = [sys.executable, ROOT / "script" / "shape", "--list", kind]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.split("\n")[:-1] if done.stdout.strip() else []

    return lines


def test_a_class_name_is_defined_once(listed):
    assert listed("classes") == []


def test_a_folder_has_few_modules(listed):
    counts = dict(line.rsplit(": ", 1) for line in listed("folders"))
    assert counts.pop("src/joulewise/cli"), "a file a verb"
    assert {folder for folder, count in counts.items() if int(count) > MOST_MODULES} == set()


def test_few_modules_are_imported_by_one_sibling_alone(listed):
    """Those that are: long, or tested alone."""
    assert len(listed("single-sibling")) <= MOST_SINGLE_SIBLING


def test_every_numeric_constant_is_explained(listed):
    """By a unit in its name, or a comment."""
    assert listed("constants") == []


def test_what_is_private_to_a_module_is_not_imported_from_another():
    imports = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {alias.name}"
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name.startswith("_")
    ]
    assert imports == []

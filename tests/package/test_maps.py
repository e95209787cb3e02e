"""The map at the beginning of each package names all of its modules, and no others."""

import ast
import re
from pathlib import Path

import pytest

import joulewise
from joulewise.cli import VERBS

SOURCE = Path(joulewise.__file__).parent
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
# The map of the whole is in CONTRIBUTING; ``hooks/site`` has only what Python itself looks for.
MAPPED = [package for package in PACKAGES if package not in {SOURCE, SOURCE / "hooks" / "site"}]
# In a block: "name.py  text" or "folder/  text". In a list: "- ``name``, ``folder/``: text".
ROW = re.compile(r"^ +([a-z0-9_]+(?:\.py|/))(?: |$)", re.MULTILINE)
ITEM = re.compile(r"^- ((?:``[a-z0-9_]+/?``(?:, )?)+):", re.MULTILINE)


def named_in_map(package: Path) -> list[str]:
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text()), clean=False)
    items = [name for item in ITEM.findall(docstring or "") for name in item.split(", ")]
    return [*ROW.findall(docstring or ""), *(name.strip("`") for name in items)]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_all_that_a_map_names_exists(package):
    for name in named_in_map(package):
        path = package / name
        assert path.exists() or path.with_suffix(".py").exists(), f"{package.name} has no {name}"


@pytest.mark.parametrize("package", MAPPED, ids=lambda package: package.name)
def test_a_map_names_all_that_is_in_the_folder(package):
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    modules = {path.stem for path in package.glob("*.py")} - {"__init__"}
    folders = {path.parent.name for path in package.glob("*/__init__.py")}
    if package.name == "cli":  # its map is the table of verbs, which the help shows
        modules -= set(VERBS)
    named = set(re.findall(r"[a-z0-9_]+", docstring))
    assert (modules | folders) - named == set()

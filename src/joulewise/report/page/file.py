"""A page as a file, which never takes the place of something else."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from joulewise.errors import JoulewiseError, UsageError
from joulewise.record.files import is_folder, open_regular, path_exists, replace_file
from joulewise.report.page.page import Page
from joulewise.report.page.render import GENERATOR, render
from joulewise.report.tables import file_name
from joulewise.report.unwritten import no_folder, unwritten

_HEAD: Final = 4096
_MARK: Final = f'<meta name="generator" content="{GENERATOR} '.encode()
_NEEDED: Final = {"jinja2": "jinja2", "altair": "altair", "vl_convert": "vl-convert-python"}


def require_extra() -> None:
    """What pages and figures are made with, before any work is done for them."""
    missing = [name for module, name in _NEEDED.items() if find_spec(module) is None]
    if missing:
        raise JoulewiseError(
            f"reports and figures need {', '.join(missing)}, not installed here",
            "pip install 'joulewise[report]'",
        )


def write_page(page: Page, path: Path, *, force: bool = False) -> None:
    """As a whole or not at all; over an earlier report, and over nothing else unless forced."""
    check_place(path, force=force)
    text = render(page)
    try:
        replace_file(path, text, durable=False)
    except OSError as error:
        raise unwritten(path, error, "give a path that can be written") from None


def check_place(path: Path, *, force: bool) -> None:
    if is_folder(path):
        raise UsageError(f"{path} is a folder", "name a file in it")
    if not is_folder(path.parent):
        raise no_folder(path)
    if force or not path_exists(path) or _is_ours(path):
        return
    raise UsageError(f"{path} is there, and no report of joulewise", "name another, or add --force")


def default_name(word: str) -> str:
    return f"joulewise-{file_name(word)}.html"


def _is_ours(path: Path) -> bool:
    try:
        with open_regular(path) as file:
            head = file.read(_HEAD)
    except OSError:
        return False
    return _MARK in head or not head

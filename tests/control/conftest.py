"""Tests of root's leave nothing in the machine's own folders."""

import pytest

from joulewise.control import claims


@pytest.fixture(autouse=True)
def run_folder(tmp_path_factory, monkeypatch):
    """In place of /run/joulewise, for guardians in this process."""
    monkeypatch.setattr(claims, "_RUN_FOLDER", tmp_path_factory.getbasetemp() / "run")

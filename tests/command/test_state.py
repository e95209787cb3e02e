"""Where state is kept, also of a user without a home."""

import pwd
from pathlib import Path

import pytest

from joulewise.command.state import made, state_folder
from joulewise.errors import UsageError


def test_without_a_home_nothing_is_found_and_nothing_kept(monkeypatch):
    def unknown(_):
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    folder = state_folder({})
    assert not folder.exists()
    with pytest.raises(UsageError, match="JOULEWISE_STATE"):
        made(folder / "leases")
    assert state_folder({"JOULEWISE_STATE": "/kept"}) == Path("/kept")

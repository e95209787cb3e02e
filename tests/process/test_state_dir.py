"""Where state is kept: safe from other users, and also for a user without a home."""

import os
import pwd
from pathlib import Path

import pytest

from joulewise.errors import PermissionDeniedError, UsageError
from joulewise.process.state_dir import is_safe, make_state_folder, state_folder

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")


def test_a_folder_is_made_for_all_to_read_and_used_again(tmp_path):
    folder = make_state_folder(tmp_path / "state")
    assert folder.stat().st_mode & 0o777 == 0o755
    assert make_state_folder(folder) == folder
    assert is_safe(folder)


@as_root
def test_root_refuses_a_folder_of_another_user(tmp_path):
    folder = make_state_folder(tmp_path / "state")
    os.chown(folder, 65534, 65534)
    with pytest.raises(PermissionDeniedError, match="belongs to user nobody") as refusal:
        make_state_folder(folder)
    assert f"chown root {folder}" in refusal.value.hint
    assert not is_safe(folder)


@as_root
def test_root_refuses_a_link_of_another_user(tmp_path):
    (tmp_path / "real").mkdir(mode=0o755)
    link = tmp_path / "state"
    link.symlink_to("real")
    assert make_state_folder(link) == link
    os.lchown(link, 65534, 65534)
    with pytest.raises(PermissionDeniedError, match="belongs to user nobody"):
        make_state_folder(link)


@as_root
@pytest.mark.parametrize("mode", [0o775, 0o777])
def test_root_refuses_a_folder_in_which_others_may_write(tmp_path, mode):
    folder = make_state_folder(tmp_path / "state")
    folder.chmod(mode)
    with pytest.raises(PermissionDeniedError, match="is writable by other users") as refusal:
        make_state_folder(folder)
    assert f"chmod go-w {folder}" in refusal.value.hint


def test_others_may_have_theirs_as_they_like(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    folder = make_state_folder(tmp_path / "state")
    folder.chmod(0o777)
    assert make_state_folder(folder) == folder


def test_without_a_home_nothing_is_found_and_nothing_stored(monkeypatch):
    def unknown(_):
        raise KeyError

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    folder = state_folder({})
    assert not folder.exists()
    with pytest.raises(UsageError, match="JOULEWISE_STATE"):
        make_state_folder(folder / "leases")
    assert state_folder({"JOULEWISE_STATE": "/kept"}) == Path("/kept")

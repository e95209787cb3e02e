"""What is said where a file cannot be written."""

import errno
import os

import pytest

from joulewise.errors import JoulewiseError, UsageError
from joulewise.report.export import write_error


@pytest.mark.parametrize(
    ("number", "said", "kind"),
    [
        (errno.ENOSPC, "the disk is full", JoulewiseError),
        (errno.EDQUOT, "quota", JoulewiseError),
        (errno.EACCES, "Permission denied", UsageError),
    ],
)
def test_what_to_do_is_of_what_is_wrong(number, said, kind, tmp_path):
    error = write_error(tmp_path / "x", OSError(number, os.strerror(number)), "name another")
    assert type(error) is kind
    assert said in error.message
    assert ("free some space" in error.hint) == (kind is JoulewiseError)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "no" / "x"
    with pytest.raises(FileNotFoundError) as caught:
        path.write_text("")
    assert f"there is no folder {path.parent}" in write_error(path, caught.value, "").message


def test_what_was_not_found_elsewhere_is_no_missing_folder(tmp_path):
    error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "trace")
    assert "no folder" not in write_error(tmp_path / "x", error, "").message

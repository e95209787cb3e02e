"""A guardian that cannot do its work says why before it ends."""

import os

import pytest

from joulewise.control.client import Client
from joulewise.errors import JoulewiseError

# Imported by every Python that starts with its folder in PYTHONPATH.
BROKEN = """
import sys
if "joulewise.control.guardian_process" in sys.argv:
    import joulewise.control.deadline_device
    def broken(environ):
        raise ZeroDivisionError("a bug")
    joulewise.control.deadline_device.open_all_devices = broken
"""


def environ(tmp_path, **more):
    return {**os.environ, "JOULEWISE_STATE": str(tmp_path / "state"), **more}


def test_a_bug_is_logged_and_reported_to_the_holder(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "sitecustomize.py").write_text(BROKEN)
    with pytest.raises(JoulewiseError, match="has failed: ZeroDivisionError: a bug") as result:
        Client.start_guardian(environ(tmp_path, PYTHONPATH=str(tmp_path)))
    assert "report this" in result.value.hint
    assert "ZeroDivisionError: a bug" in (tmp_path / "state" / "control.log").read_text()

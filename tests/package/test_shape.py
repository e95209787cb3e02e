"""The shape of the source, counted by script/shape: what makes it hard to find one's way."""

import subprocess
import sys

import pytest

from tests.helpers.paths import ROOT

MOST_MODULES = 20


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

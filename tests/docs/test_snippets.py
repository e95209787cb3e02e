"""Documentation that cannot rot: every shown command and every Python snippet runs.

A ```console block holds `$ command` lines, each followed by what it prints. The command must
succeed, and each word shown must be in what it really printed: figures move, words do not.
A ```python block runs as a script of its own.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"[A-Za-z]{3,}")


def snippets(language):
    for page in PAGES:
        for kind, body in FENCE.findall(page.read_text()):
            if kind == language:
                title = body.strip().splitlines()[0]
                yield pytest.param(body, id=f"{page.relative_to(ROOT)}: {title[:60]}")


def environ():
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": "100",
    }


@pytest.mark.parametrize("body", list(snippets("console")))
def test_a_shown_command_prints_what_is_shown(body, tmp_path):
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        while command.endswith("\\"):
            more, _, shown = shown.partition("\n")
            command = command[:-1] + more.removeprefix("> ")
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path, env=environ(), check=False, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
        assert set(WORD.findall(shown)) <= set(WORD.findall(done.stdout))


@pytest.mark.parametrize("body", list(snippets("python")))
def test_a_python_snippet_runs(body, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", body],
        cwd=tmp_path, env=environ(), check=False, text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"

"""Documentation that cannot rot: every shown command and every Python snippet runs.

A ```console block holds `$ command` lines, each followed by what it prints: the command must
succeed, and every shown line must be among the printed ones, in order. White space does not count,
and … stands for anything. After a line `<!-- figures vary -->` any number stands for any other,
also kJ for J and ms for s, and "yes" for "no", since what may be set depends on who asks.
The machine is one that does not measure its CPU, whatever the one below does.
A ```python block runs as a script of its own, and prints what a ```text block right after it shows.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.paths import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
VARY = "<!-- figures vary -->\n"
CONSOLE = re.compile(rf"^({VARY})?```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$(?:\n+^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
VARYING = re.compile(r"\d+(\.\d+)?( [GMkmµ]?(?=(J|Wh|s)\b))?|\b(yes|no)\b")
TIMEOUT_S = 300  # for a busy machine; nothing is judged by it


def blocks(pattern):
    for page in PAGES:
        for first, second in pattern.findall(page.read_text("utf-8")):
            title = (second or first).strip().splitlines()[0]
            yield pytest.param(first, second, id=f"{page.relative_to(ROOT)}: {title[:60]}")


def run(command, folder):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={
            **os.environ,
            "PATH": path,
            "COLUMNS": "100",
            "JOULEWISE_POWERCAP": str(folder / "powercap"),
        },
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def assert_shown(shown, printed, *, vary=False):
    def plain(line):
        return " ".join((VARYING.sub("0", line) if vary else line).split())

    rest = iter([plain(line) for line in printed.splitlines()])
    for line in filter(None, map(plain, shown.splitlines())):
        pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
        found = any(pattern.fullmatch(other) for other in rest)
        assert found, f"not printed, or not in this order: {line}\n\n{printed}"


@pytest.mark.parametrize(("vary", "body"), list(blocks(CONSOLE)))
def test_a_shown_command_prints_what_is_shown(vary, body, tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        assert_shown(shown, run(["bash", "-c", command], tmp_path), vary=bool(vary))


@pytest.mark.parametrize(("body", "shown"), list(blocks(PYTHON)))
def test_a_python_snippet_prints_what_is_shown(body, shown, tmp_path):
    assert_shown(shown, run([sys.executable, "-c", body], tmp_path))


def test_another_figure_is_noticed():
    with pytest.raises(AssertionError, match=r"200\.00 W"):
        assert_shown("200.00 W", "power.limit [W]\n300.00 W")
    assert_shown("200.00 W", "power.limit [W]\n300.00 W", vary=True)


def test_another_size_is_no_other_figure():
    assert_shown("cpu0  890 J  502 ms", "cpu0  1.04 kJ  1.02 s", vary=True)
    with pytest.raises(AssertionError, match="0J"):
        assert_shown("890 J", "1.04 kW", vary=True)


def test_links_lead_somewhere():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"

"""The reference of the command line is generated, and complete."""

import subprocess
import sys

from tests.helpers.paths import ROOT


def test_the_reference_is_what_the_verbs_say():
    made = subprocess.run(
        [sys.executable, ROOT / "script" / "cli-reference"],
        capture_output=True,
        text=True,
        check=True,
    )
    kept = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert kept == made.stdout, "script/cli-reference > docs/reference/cli.md"

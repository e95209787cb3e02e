"""Start-up is lean: nobody pays for a library that the moment does not need."""

import subprocess
import sys

import pytest

HEAVY = {"numpy", "scipy", "pyarrow", "pynvml", "altair", "torch", "keras", "ray", "amdsmi"}
HEAVY |= {"sqlalchemy", "alembic", "psycopg", "msgspec"}


def modules_after(script: str) -> set[str]:
    script += "\nimport sys; sys.stderr.write(' '.join(m.partition('.')[0] for m in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    ("script", "banned"),
    [
        ("import joulewise", HEAVY | {"rich", "click", "psutil"}),
        (
            "import joulewise; joulewise.span('x'), joulewise.measure()",
            HEAVY | {"rich", "click", "psutil"},
        ),
        ("import joulewise; joulewise.tune()", HEAVY | {"rich", "click", "psutil"}),
        (
            "import joulewise.session.measure, joulewise.session.recorder_client",
            HEAVY | {"rich", "click", "psutil"},
        ),
        ("import joulewise.devices, joulewise.simulate", HEAVY | {"rich", "click", "psutil"}),
        (
            (
                "import joulewise.data.jobs, joulewise.optimise.recurring.store as store\n"
                "from pathlib import Path\n"
                "store.job_store_address(None, Path(), {})"
            ),
            HEAVY | {"rich", "click", "psutil"},
        ),
        ("import joulewise.simulate.client", HEAVY | {"rich", "click", "psutil"}),
        (
            (
                "from joulewise.cli import joulewise\n"
                "joulewise.main(['--help'], standalone_mode=False)"
            ),
            HEAVY | {"rich", "psutil"},
        ),
    ],
)
def test_start_up_loads_nothing_heavy(script, banned):
    assert not modules_after(script) & banned


def test_the_check_sees_a_heavy_import():
    assert "numpy" in modules_after("import joulewise, numpy")

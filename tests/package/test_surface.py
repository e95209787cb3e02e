"""What `import joulewise` offers is exactly what `__all__` says."""

import subprocess
import sys
from importlib.metadata import version

import pytest

import joulewise


def test_everything_in_all_can_be_had():
    assert {name: getattr(joulewise, name) for name in joulewise.__all__}
    assert joulewise.__version__ == version("joulewise")


def test_nothing_public_is_outside_all():
    # In a fresh interpreter: submodules that other tests imported become attributes too.
    script = "import joulewise; print(*(n for n in vars(joulewise) if not n.startswith('_')))"
    seen = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert set(seen.stdout.split()) <= {*joulewise.__all__, "annotations", "TYPE_CHECKING", "Any"}
    assert dir(joulewise) == sorted(joulewise.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = joulewise.nonsense


def test_leases_are_at_hand():
    from joulewise.control import lease

    assert joulewise.control.lease is lease

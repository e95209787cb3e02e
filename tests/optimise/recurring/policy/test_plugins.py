"""Policies by name."""

from __future__ import annotations

import sys

import pytest

from joulewise.errors import JoulewiseError, UsageError
from joulewise.optimise.recurring import PolicyFactory, load_policy, make_policy


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Offer a policy ``mine`` in a package whose module has this code."""

    def offer(code):
        (tmp_path / "policy_of_tests.py").write_text(code)
        about = tmp_path / "policy_of_tests-1.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: policy-of-tests\nVersion: 1\n"
        )
        (about / "entry_points.txt").write_text("[joulewise.policies]\nmine=policy_of_tests:made\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "policy_of_tests", raising=False)

    yield offer
    sys.modules.pop("policy_of_tests", None)


def test_the_built_in_one():
    assert load_policy("default") is make_policy
    assert isinstance(make_policy, PolicyFactory)


def test_one_of_another_package(install):
    install("from joulewise.optimise.recurring import make_policy as made\n")
    assert load_policy("mine") is make_policy


def test_an_unknown_name_lists_those_known(install):
    install("")
    with pytest.raises(UsageError, match="'none'") as caught:
        load_policy("none")
    assert "default, mine" in caught.value.hint


@pytest.mark.parametrize(
    "code", ["import not_installed_at_all\n", "made = 1 / 0\n", "", "made = 3\n"]
)
def test_one_that_cannot_be_loaded(install, code):
    install(code)
    with pytest.raises(JoulewiseError, match=r"mine \(policy_of_tests:made\)") as caught:
        load_policy("mine")
    assert "default" in caught.value.hint

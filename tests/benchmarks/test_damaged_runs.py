"""Damaged runs are answered in a line, and never with another number and no warning.

60 cases of benchmarks/damaged_runs.py, which has thousands. A case fails again with
``python benchmarks/damaged_runs.py --cases 1 --seed SEED``, if its source is recorded alike.
"""

import os
import resource
import signal
import sys

import pytest

from tests.helpers.paths import ROOT

BENCHMARKS = ROOT / "benchmarks"
QUICK = ("ls --json", "show --json", "choose --json", "export trace", "export spans")
SEEDS = range(60)


@pytest.fixture(scope="module")
def damaged_runs():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import damaged_runs

        yield damaged_runs
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def sources(damaged_runs, tmp_path_factory):
    place = tmp_path_factory.mktemp("sources")
    return damaged_runs.make_sources(place, only=("packed", "killed", "sweep"))


def test_no_damage_changes_a_number_without_a_warning(damaged_runs, sources, tmp_path):
    baseline = damaged_runs.Baseline()
    wrong = []
    for seed in SEEDS:
        only = () if seed % 20 == 0 else QUICK
        case, found = damaged_runs.try_case(seed, sources, tmp_path, baseline, only=only)
        wrong += [f"seed {seed}: {case.what}: {name}: {why}" for name, why in found.items()]
    assert not wrong, "\n".join(wrong)


def test_what_a_killed_run_wrote_has_checksums(damaged_runs, sources):
    """Without them the harness would let a changed number of that source pass."""
    [source] = (each for each in sources if each.name == "killed")
    folder = source.store / source.asked
    checked_b = damaged_runs.checked_bytes(folder)
    sizes_b = {path: path.stat().st_size for path in (folder / "trace").iterdir()}
    assert checked_b.keys() >= sizes_b.keys()
    # Killed between a write and its line of checksums, which are microseconds, it lacks one write.
    assert sum(checked_b[path] for path in sizes_b) >= 0.6 * sum(sizes_b.values())


def test_the_harness_sees_a_number_that_changed(damaged_runs):
    before = damaged_runs.Answer(0, '{"time_s": 1.0, "warnings": []}', "")
    after = damaged_runs.Answer(0, '{"time_s": 1.1, "warnings": []}', "")
    warned = damaged_runs.Answer(0, '{"time_s": 1.1, "warnings": [{"code": "file_damaged"}]}', "")
    infinite = damaged_runs.Answer(0, '{"time_s": Infinity}', "")
    assert damaged_runs.check("show --json", after, before)
    assert damaged_runs.check("show --json", infinite, before)
    assert not damaged_runs.check("show --json", warned, before)
    assert not damaged_runs.check("show --json", before, before)


def test_a_case_that_ends_its_process_has_a_verdict(damaged_runs, monkeypatch, tmp_path):
    def crash(*_: object, **__: object):
        (tmp_path / "now").write_text("gpu: run.json: flip\nshow")
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(damaged_runs, "try_case", crash)
    what, wrong = damaged_runs.try_case_apart(0, (), tmp_path, damaged_runs.Baseline())
    assert (what, wrong) == ("gpu: run.json: flip", {"show": "its process ended by SIGKILL"})


def test_a_case_that_uses_too_much_cpu_time_has_a_verdict(damaged_runs):
    def spin():
        resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
        while True:
            pass

    with pytest.raises(damaged_runs.EndedError, match=r"SIG(XCPU|KILL)"):
        damaged_runs.in_fork(spin)
    assert damaged_runs.in_fork(lambda: "an answer") == "an answer"

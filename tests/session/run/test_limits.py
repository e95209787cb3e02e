"""Budgets: warned of once, and a command that must end is ended."""

import json
import shlex
import signal

import pytest

from joulewise.budget import parse_budget
from joulewise.session import run as limits_module
from joulewise.session.run import BudgetEnforcer
from tests.helpers.processes import eventually, gone, python
from tests.helpers.run_processes import manifest, run


def test_time_used_up_is_shown_once_and_nothing_is_stopped(tmp_path):
    done = run(tmp_path, "--budget", "0.3s", *python("time.sleep(1.5); sys.exit(4)"))
    assert done.returncode == 4
    said = [line for line in done.stderr.splitlines() if line.startswith("joulewise: the budget")]
    assert said == ["joulewise: the budget of 0.3s is used up"]
    (folder,) = tmp_path.iterdir()
    warnings = json.loads((folder / "result.json").read_text())["warnings"]
    assert [w["code"] for w in warnings].count("budget") == 1


@pytest.mark.parametrize("budget", ["1s:stop", "10J:stop"])
def test_a_budget_stops_the_command_with_all_it_started(budget, tmp_path):
    pids = tmp_path / "pids"
    # A shell has started both long before the budget is used up, also on a loaded machine.
    command = ["sh", "-c", f"sleep 600 & echo $$ $! > {shlex.quote(str(pids))}; wait"]
    done = run(tmp_path / "store", "--budget", budget, "--", *command)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert "stopping the command" in done.stderr
    for pid in map(int, pids.read_text().split()):
        eventually(lambda pid=pid: gone(pid))
    payload = manifest(tmp_path / "store")
    assert payload["commands"][0]["exit_code"] == 128 + signal.SIGTERM


class Command:
    pid = 4711


@pytest.fixture
def sent(monkeypatch):
    """What the processes of a command are sent; one of them ends only when it is killed."""
    sent = []

    class Ending:
        def __init__(self, token, pid):
            assert (token, pid) == ("t", Command.pid)

        def ask(self):
            sent.append(signal.SIGTERM)

        def kill(self):
            sent.append(signal.SIGKILL)
            return ["python (4712)"]

    monkeypatch.setattr(limits_module, "CommandTermination", Ending)
    return sent


class Line:
    def tell(self, kind, **content):
        pass


def test_what_does_not_end_within_the_grace_is_killed(sent, monkeypatch):
    now_ns = 0
    monkeypatch.setattr("joulewise.session.run.time.monotonic_ns", lambda: now_ns)
    said = []
    budgets = [parse_budget("2s:stop")]
    limits = BudgetEnforcer(budgets, Command(), 0, Line(), said.append, token="t", grace_s=10)
    assert limits.check() == 2
    now_ns = 2_500_000_000
    assert limits.check() == 10
    assert sent == [signal.SIGTERM]
    now_ns = 12_400_000_000
    assert limits.check() == pytest.approx(0.1)
    assert sent == [signal.SIGTERM]
    now_ns = 12_500_000_000
    assert limits.check() is None
    assert sent == [signal.SIGTERM, signal.SIGKILL]
    limits.check()
    assert len(sent) == 2
    assert said[-1] == "killed, as it had not ended within 10 s: python (4712)"


def test_the_recorder_and_we_may_find_the_same_which_is_shown_once(sent):
    said = []
    limits = BudgetEnforcer([], Command(), 0, Line(), said.append, token="t")
    event = {
        "kind": "budget", "budget": "1J", "state": "exceeded", "stop": True, "message": "used up",
    }  # fmt: skip
    limits.on_message(event)
    limits.on_message(event)
    limits.on_message({"kind": "something newer"})
    assert said == ["used up"]
    assert sent == [signal.SIGTERM]

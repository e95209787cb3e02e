"""Whether a GPU's activity is the command's: by readings alone, and beside processes of others."""

import json
import math

import pytest

from joulewise.analyse.attribution import UNSEEN, UNTOUCHED
from joulewise.analyse.run_result import analyse
from joulewise.data import WarningCode
from joulewise.store.layout import PROCESSES
from tests.helpers.run_directories import PID, START, MadeRun, device

IDLE_W = 42.0
HELD_W = 65.0
LOAD_W = 250.0
STRANGER = (77, "blender", False)


def power(load_s, held_s=2.0, before=()):
    """Idle, and from ``load_s`` (start, end) on the load, after which clocks stay up."""

    def power_w(t):
        for start, end in (load_s, *before):
            if start <= t < end:
                return LOAD_W + t % 3
            if end <= t < end + held_s:
                return HELD_W + t % 3
        return IDLE_W + t % 2

    return power_w


def analysed(path, power_w, *sightings, hz=50.0, until_s=99.0, **columns):
    made = MadeRun(path, hz=hz).fast(device("gpu0"), power_w, until_s=until_s)
    if columns:
        made.slow("gpu0", **columns)
    made.processes("gpu0", *(sightings or [(-1, [])]))
    return analyse(made.fast(device("cpu0"), lambda _: 20, until_s=until_s).write())


def unseen_uses(result):
    return [w.device for w in result.warnings if w.code is WarningCode.UNSEEN_USE]


@pytest.mark.parametrize("hz", [1.0, 2.5, 50.0])
@pytest.mark.parametrize("load_s", [(0.1, 0.15), (4.3, 4.35), (8.2, 10.0), (9.9, 10.0)])
def test_a_gpu_used_between_two_process_lists_counts(tmp_path, load_s, hz):
    result = analysed(tmp_path / "run", power(load_s), hz=hz)
    assert "gpu0" in result.counted
    assert unseen_uses(result) == ["gpu0"]


def test_a_gpu_that_was_idle_all_the_time_does_not_count(tmp_path):
    result = analysed(tmp_path / "run", power((90, 91)))
    assert result.counted == ("cpu0",)
    assert [out.reason for out in result.excluded] == [UNTOUCHED]
    assert not result.run.total.at_least


@pytest.mark.parametrize("load_s", [(0.0, 12.0), (3.0, 6.0), (9.0, 10.0)])
def test_others_who_compute_on_it_explain_its_activity(tmp_path, load_s):
    sightings = [(-1, []), (load_s[0] + 0.9, [STRANGER]), (load_s[1] + 0.5, [])]
    result = analysed(tmp_path / "run", power(load_s), *sightings)
    assert result.counted == ("cpu0",)
    assert [out.reason for out in result.excluded] == [
        f"{UNSEEN} (used by other processes: blender)"
    ]


def test_others_who_had_left_do_not_explain_what_came_later(tmp_path):
    sightings = [(-1, [STRANGER]), (0.5, [])]
    result = analysed(tmp_path / "run", power((8.5, 8.6)), *sightings)
    assert unseen_uses(result) == ["gpu0"]


def test_what_another_left_behind_is_not_the_commands(tmp_path):
    """Its clocks are still up when the command starts, and go down by themselves."""
    result = analysed(tmp_path / "run", power((-0.9, -0.5), held_s=4.0))
    assert result.counted == ("cpu0",)


def clock_mhz(until_s, first_s):
    """Clocks that are up until then, and are not read before ``first_s``."""
    return lambda t: math.nan if t < first_s else 1530.0 if t < until_s else 135.0


def test_clocks_that_another_left_up_are_not_the_commands(tmp_path):
    """They are first read when the command has started: power alone tells of before."""
    clocks = {"sm_clock_mhz": clock_mhz(1.5, first_s=0.5)}
    result = analysed(tmp_path / "run", power((-0.9, -0.5), held_s=2.0), **clocks)
    assert result.counted == ("cpu0",)


def test_utilisation_of_before_is_not_the_commands(tmp_path):
    """It is of the second before it is read; the driver names nobody on the GPU."""
    used = {"gpu_utilisation_pct": lambda t: math.nan if t < 0.5 or t > 1.5 else 60.0}
    made = MadeRun(tmp_path / "run").fast(device("gpu0"), power((-0.9, -0.1)))
    made.slow("gpu0", offset_s=-0.3, **used)
    made.processes("gpu0", (0.1, []))
    result = analyse(made.fast(device("cpu0"), lambda _: 20).write())
    assert result.counted == ("cpu0",)


def test_utilisation_that_comes_late_is_not_the_commands(tmp_path):
    """Its first value after the start averages the second before; the one before it is older."""
    used = {"gpu_utilisation_pct": lambda t: 27.0 if 0 < t < 1.5 else 0.0}
    result = analysed(tmp_path / "run", power((-0.9, -0.1)), **used)
    assert result.counted == ("cpu0",)


def test_utilisation_later_in_the_command_is_its_own(tmp_path):
    used = {"gpu_utilisation_pct": lambda t: 27.0 if 4 < t < 5.5 else 0.0}
    result = analysed(tmp_path / "run", power((-0.9, -0.1)), **used)
    assert unseen_uses(result) == ["gpu0"]


def test_clocks_that_were_down_before_are_the_commands(tmp_path):
    """Power was that of an idle GPU when the command started."""
    clocks = {"sm_clock_mhz": clock_mhz(1.5, first_s=0.5)}
    result = analysed(tmp_path / "run", lambda t: IDLE_W + t % 2, **clocks)
    assert unseen_uses(result) == ["gpu0"]


def test_a_use_just_after_anothers_counts(tmp_path):
    result = analysed(tmp_path / "run", power((0.3, 0.4), before=[(-0.9, -0.5)]))
    assert unseen_uses(result) == ["gpu0"]


def test_a_desktops_server_explains_nothing(tmp_path):
    made = MadeRun(tmp_path / "run").fast(device("gpu0"), power((4.3, 4.5)))
    server = {"pid": 9, "name": "Xorg", "ours": False, "kind": "graphics"}
    line = {"t_ns": START - 1, "device": "gpu0", "processes": [server]}
    (made.path / PROCESSES).write_text(json.dumps(line) + "\n")
    assert unseen_uses(analyse(made.write())) == ["gpu0"]


def test_utilisation_shows_use_that_power_does_not(tmp_path):
    used = {"gpu_utilisation_pct": lambda t: 30.0 if 4 <= t < 5 else 0.0}
    result = analysed(tmp_path / "run", lambda t: IDLE_W + t % 2, **used)
    assert unseen_uses(result) == ["gpu0"]


@pytest.mark.parametrize("cut", [{"until_s": 6.0}, {"hz": 0.2}])
def test_a_gpu_not_read_all_the_time_counts_with_a_warning(tmp_path, cut):
    result = analysed(tmp_path / "run", lambda t: IDLE_W + t % 2, **cut)
    assert "gpu0" in result.counted
    (warning,) = (w for w in result.warnings if w.code is WarningCode.UNSEEN_USE)
    assert "not read all the time" in warning.message


def test_whose_process_was_seen_needs_no_activity(tmp_path):
    result = analysed(tmp_path / "run", power((90, 91)), (-1, []), (3, [(PID, "python", True)]))
    assert "gpu0" in result.counted
    assert unseen_uses(result) == []

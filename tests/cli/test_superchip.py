"""Runs on simulated GH200 modules, whose counter contains the CPU and its memory."""

import pytest
from superchip import PROGRAMS, measure

NAMED = {program.name: program for program in PROGRAMS}


@pytest.mark.parametrize("name", ["GPU and CPU", "in turns", "one of two"])
def test_the_total_is_what_the_modules_truly_drew(tmp_path, name):
    program = NAMED[name]
    one = measure(program, 0, tmp_path)
    assert one.result["counted"] == [f"gpu{gpu}" for gpu in program.used]
    assert one.holds
    assert not one.twice_holds  # else this machine could not tell whether a CPU counts twice


def test_the_result_names_the_scope_and_the_measured_parts(tmp_path):
    one = measure(NAMED["GPU alone"], 0, tmp_path)
    assert one.result["scopes"] == {"gpu0": "module"}
    parts = one.result["parts"]["gpu0"]
    assert parts["gpu"]["value"] == pytest.approx(one.gpu_truth_j, abs=2 * parts["gpu"]["error"])
    assert 0 < parts["memory"]["value"] < parts["gpu"]["value"] < one.total_j
    reasons = {out["device"]: out["reason"] for out in one.result["excluded"]}
    assert reasons == {
        "cpu0": "part of the energy of gpu0",
        "dram0": "part of the energy of gpu0",
    }

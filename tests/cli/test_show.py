"""A stored run as a result: kept, computed, still recording, killed, or a group's sum."""

import json
import os
from dataclasses import replace

import pytest

from joulewise.data.sweeps import Setting
from joulewise.hooks.marks import Marks
from joulewise.process.linux import boot_id, started_ticks
from joulewise.store.checksums import write_final_checksums
from joulewise.store.layout import MARKS, RESULT
from joulewise.store.manifest import CommandRecord, RecorderRecord, read_manifest, write_manifest
from joulewise.sweep.space import Space
from joulewise.sweep.spec import SweepSpec
from joulewise.sweep.stored_sweeps import create_sweep
from tests.helpers.run_directories import START, S

ID, OTHER = "20261116-003512-7f3a", "20261116-003513-beef"


def printed_json(ran):
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_a_run_by_id_prefix_name_and_last(joulewise, make_run, store):
    make_run(ID, name="resnet")
    for which in (ID, "20261116-0035", "resnet", "last", str(store / ID)):
        assert printed_json(joulewise("show", which, "--json", "-"))["id"] == ID


def test_what_is_shown(joulewise, make_run, store):
    make_run(ID, name="resnet")
    ran = joulewise("show", "last")
    assert ran.stderr == ""
    assert f"run {ID}  resnet" in ran.stdout
    assert "2.20 kJ" in ran.stdout
    assert "not in the total: gpu1 (not used by any process of the command)" in ran.stdout
    assert f"joulewise --store '{store}' export {ID}" in ran.stdout
    assert "sampling" not in ran.stdout.partition("\n\n")[2].partition("\n")[0]
    assert "sampling" in joulewise("show", "last", "--errors").stdout


def test_the_json_has_a_key_for_every_device(joulewise, make_run):
    make_run(ID)
    result = printed_json(joulewise("show", ID, "--json", "-"))
    assert result["energy_j"].keys() == {"total", "gpu0", "gpu1", "cpu0"}
    assert result["counted"] == ["gpu0", "cpu0"]
    assert [span["name"] for span in result["spans"]] == ["epoch", "=epoch()"]


def test_json_in_a_file_goes_with_the_table(joulewise, make_run, tmp_path):
    make_run(ID)
    ran = joulewise("show", ID, "--json", str(tmp_path / "r.json"))
    assert "2.20 kJ" in ran.stdout
    assert json.loads((tmp_path / "r.json").read_text())["id"] == ID


def test_what_was_not_computed_is_computed_and_stored(joulewise, make_run):
    run = make_run(ID, result=False)
    first = printed_json(joulewise("show", ID, "--json", "-"))
    assert (run / RESULT).exists()
    assert printed_json(joulewise("show", ID, "--json", "-")) == first


def test_what_is_stored_is_not_computed_again(joulewise, make_run):
    run = make_run(ID)
    (run / "trace" / "gpu0.arrows").unlink()
    assert printed_json(joulewise("show", ID, "--json", "-"))["energy_j"]["gpu0"]


@pytest.mark.parametrize("verb", [("show",), ("report", "-o", "page.html")])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_marks_that_were_damaged_after_the_result_was_stored_are_named(
    joulewise, make_run, verb, is_deleted
):
    """Logged figures are read from them whenever they are shown."""
    run = make_run(ID)
    before = set((run / MARKS).iterdir())
    marks = Marks(run / MARKS)
    for number in range(3):
        marks.figure("loss", number, t_ns=START + number)
    marks.close()
    (path,) = set((run / MARKS).iterdir()) - before
    write_final_checksums(run, durable=False)
    sound = printed_json(joulewise(*verb, ID, "--json", "-"))
    assert sound["logged"][0]["values"] == 3
    if is_deleted:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-4])
    damaged = printed_json(joulewise(*verb, ID, "--json", "-"))
    assert damaged["logged"] != sound["logged"]
    new = [one for one in damaged["warnings"] if one not in sound["warnings"]]
    (warning,) = (one for one in new if path.name in one["message"])
    assert warning["code"] == "file_damaged"


@pytest.mark.parametrize("damage", ["", "{", '{"format": 99}'])
def test_a_result_that_does_not_fit_is_computed_again(joulewise, make_run, damage):
    run = make_run(ID)
    (run / RESULT).write_text(damage)
    assert printed_json(joulewise("show", ID, "--json", "-"))["energy_j"]["gpu0"]


def test_a_run_that_is_being_recorded_is_shown_up_to_now_and_not_stored(joulewise, make_run):
    me = RecorderRecord(os.getpid(), started_ticks(os.getpid()))
    changed = {"commands": (CommandRecord(1, ("sleep",), START),), "monotonic_end_ns": None}
    changed |= {"recorder": me, "boot_id": boot_id(), "state": "recording", "exit_code": None}
    run = make_run(ID, result=False, **changed)
    result = printed_json(joulewise("show", ID, "--json", "-"))
    assert (result["state"], result["exit_code"]) == ("recording", None)
    assert result["time_s"] == pytest.approx(10.48, abs=0.03)
    assert not (run / RESULT).exists()


def test_a_killed_run_shows_so(joulewise, make_run):
    command = CommandRecord(1, ("sleep",), START)
    make_run(ID, result=False, state="recording", commands=(command,), monotonic_end_ns=None)
    ran = joulewise("show", ID)
    assert "killed · 10.5 s" in ran.stdout
    assert "warning: the recorder ended" in ran.stdout


def test_the_rates_of_the_run_hold_until_others_are_given(joulewise, make_run):
    make_run(ID, options={"price_per_kwh": 0.36})
    assert "at 0.36 per kWh" in joulewise("show", ID).stdout
    ran = joulewise("show", ID, "--price-per-kwh", "0.5", "--gco2-per-kwh", "400")
    assert "at 0.5 per kWh" in ran.stdout
    assert "at 400 g per kWh" in ran.stdout


def test_no_such_run(joulewise, make_run):
    make_run(ID)
    ran = joulewise("show", "nobody")
    assert ran.returncode == 2
    assert "has no run, tag, group or sweep 'nobody'" in ran.stderr
    assert ran.stderr.count("\n") == 2


@pytest.mark.parametrize("verb", ["show NAME", "report NAME", "compare capped NAME"])
def test_a_name_that_is_nearly_one_is_requested_for(joulewise, make_run, verb):
    make_run(ID, name="capped")
    ran = joulewise(*verb.replace("NAME", "caped").split())
    assert ran.returncode == 2
    assert "did you mean capped? " in ran.stderr
    assert "did you mean last? " in joulewise("show", "lsat").stderr


def test_the_last_run_of_a_sweep_leads_to_the_sweep(joulewise, make_run, store):
    setting = Setting.of({"power_limit_w": None})
    sweep = create_sweep(store, SweepSpec(name="mine"), Space((setting,), setting)).name
    make_run(ID, tags=(f"sweep:{sweep}",))
    ran = joulewise("show", "last")
    assert "one of the newest sweep, mine" in ran.stderr
    assert f"choose {sweep}" in ran.stderr
    assert "newest sweep" not in joulewise("show", ID).stderr
    make_run("20270101-000000-0001")
    assert "newest sweep" not in joulewise("show", "last").stderr


def test_a_sweep_is_shown_by_another_verb(joulewise, make_run, store):
    make_run(ID)
    setting = Setting.of({"power_limit_w": None})
    sweep = create_sweep(store, SweepSpec(), Space((setting,), setting)).name
    ran = joulewise("show", sweep)
    assert ran.returncode == 2
    assert f"{sweep} is a sweep (interrupted)" in ran.stderr
    assert f"choose {sweep}" in ran.stderr


def test_a_damaged_run_is_two_lines(joulewise, make_run):
    run = make_run(ID, result=False)
    (run / "run.json").write_text("{")
    ran = joulewise("show", ID)
    assert ran.returncode == 125
    assert "not whole JSON" in ran.stderr
    assert ran.stderr.count("\n") == 2


class TestGroup:
    def test_nodes_are_summed(self, joulewise, make_run):
        make_run(ID, group="job7", host={"name": "n1"}, boot_id="1")
        other = make_run(OTHER, group="job7", host={"name": "n2"}, boot_id="2", result=False)
        rename_gpus(other, "n2")
        result = printed_json(joulewise("show", "job7", "--json", "-"))
        assert result["id"] == "job7"
        assert result["energy_j"]["total"]["value"] == pytest.approx(4400, rel=0.02)
        assert result["counted"] == ["n1/gpu0", "n1/cpu0", "n2/gpu0", "n2/cpu0"]
        assert result["time_s"] == 10
        assert result["details"]["runs"] == [ID, OTHER]
        assert "4.40 kJ" in joulewise("show", "job7").stdout

    def test_a_job_is_all_of_its_steps(self, joulewise, make_run):
        make_run(ID, group="job7.0", host={"name": "n1"}, boot_id="1")
        make_run(OTHER, group="job7.1", host={"name": "n2"}, boot_id="2")
        assert printed_json(joulewise("show", "job7", "--json", "-"))["details"]["runs"] == [
            ID,
            OTHER,
        ]
        assert printed_json(joulewise("show", "job7.1", "--json", "-"))["details"]["runs"] == [
            OTHER
        ]
        assert joulewise("show", "job").returncode == 2

    def test_a_device_that_two_recorders_saw_counts_once(self, joulewise, make_run):
        make_run(ID, group="job7", host={"name": "n1"}, boot_id="1")
        make_run(OTHER, group="job7", host={"name": "n1"}, boot_id="1")
        result = printed_json(joulewise("show", "job7", "--json", "-"))
        assert result["energy_j"]["total"]["value"] == pytest.approx(2200, rel=0.02)

    def test_a_gpu_counts_once_whatever_the_node_shows_it_is(self, joulewise, make_run):
        make_run(ID, group="job7", host={"name": "box1"}, boot_id="1")
        make_run(OTHER, group="job7", host={"name": "box2"}, boot_id="2")
        result = printed_json(joulewise("show", "job7", "--json", "-"))
        assert result["counted"] == ["box1/gpu0", "box1/cpu0", "box2/cpu0"]
        reasons = {out["device"]: out["reason"] for out in result["excluded"]}
        assert reasons["box2/gpu0"] == f"{OTHER} recorded it at the same time as {ID}"

    def test_containers_on_one_machine_share_its_cpu(self, joulewise, make_run):
        make_run(ID, group="job7", host={"name": "box1"}, boot_id="1")
        make_run(OTHER, group="job7", host={"name": "box2"}, boot_id="1")
        counted = printed_json(joulewise("show", "job7", "--json", "-"))["counted"]
        assert counted == ["box1/gpu0", "box1/cpu0"]

    def test_what_came_one_after_the_other_adds_up(self, joulewise, make_run):
        later_ns = (1_800_000_000 + 60) * S
        make_run(ID, group="job7", host={"name": "n1"}, boot_id="1")
        later = {"wall_start_ns": later_ns, "wall_end_ns": later_ns + 11 * S}
        make_run(OTHER, group="job7", host={"name": "n1"}, boot_id="2", **later)
        result = printed_json(joulewise("show", "job7", "--json", "-"))
        assert result["energy_j"]["total"]["value"] == pytest.approx(4400, rel=0.02)
        assert result["time_s"] == 70
        assert result["counted"] == ["n1/gpu0", "n1/cpu0"]


def rename_gpus(run, node):
    """As on another machine, whose GPUs are others."""
    manifest = read_manifest(run)
    devices = tuple(
        replace(one, info=replace(one.info, uid=f"{node}-{one.info.uid}"))
        for one in manifest.devices
    )
    write_manifest(run, replace(manifest, devices=devices))


def test_a_name_that_several_have_is_the_newest_and_shows_so(joulewise, make_run):
    for number in (1, 2):
        make_run(f"2026111{number}-003512-7f3a", name="twice")
    ran = joulewise("show", "twice")
    assert ran.stdout.startswith("run 20261112-003512-7f3a  twice\n")
    assert ran.stderr == "joulewise: 2 runs have the name 'twice'; the newest is used\n"


def test_a_command_of_several_lines_is_one_line(joulewise, make_run):
    code = "import x\nprint(x)\n" + "y\n" * 500
    make_run("long", commands=(CommandRecord(1, ("python", "-c", code), START, START + S),))
    lines = joulewise("show", "long").stdout.splitlines()
    assert lines[1].startswith("  python -c 'import x print(x) y y")
    assert len(lines[1]) < 130

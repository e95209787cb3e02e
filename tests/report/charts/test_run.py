"""The figures of a run: what each shows, that it agrees with the result, and that it is drawn."""

import json
import random
import re
from dataclasses import replace

import numpy as np
import pytest

from joulewise.analyse.curves.series import EnergyPart, breakdown
from joulewise.analyse.group import GroupRun
from joulewise.analyse.run_result import analyse
from joulewise.analyse.stored_result import load_or_compute_result
from joulewise.data import Source
from joulewise.report.charts.records import mean_and_deviation
from joulewise.report.charts.run import chart_runs
from joulewise.report.charts.theme import apply_theme, theme_config
from joulewise.report.html.pages import run_page
from joulewise.report.resolve import LoadedRuns
from joulewise.report.tables import as_csv
from joulewise.store.layout import MANIFEST, STREAM, TRACE, StreamKind
from joulewise.store.manifest import read_manifest, write_manifest
from tests.helpers.run_directories import PID, START, MadeRun, S, device

ALL = {"power", "energy", "breakdown", "epochs", "sensors", "memory", "cpu-load", "sampling"}
HOSTILE = "</script>\x1b[31m=cmd()"


def trained(path, keys=("gpu0",), *, seconds=30.0, epochs=10, seed=0, limit_w=lambda _: 250.0):
    made = MadeRun(path, seconds=seconds, lead_s=4.0)
    draw = random.Random(seed)
    for key in keys:
        made.processes(key, (-4, []), (0.1, [(PID, "python", True)]))
        made.fast(
            device(key), lambda t: (200 + 50 * (t % 1 > 0.5) if t > 0 else 50) + draw.gauss(0, 1)
        )
        made.slow(
            key,
            gpu_utilisation_pct=lambda t: 96 if t > 0 else 0,
            temperature_c=lambda t: 40 + max(t, 0),
            sm_clock_mhz=lambda t: 1400 if t > 0 else 135,
            enforced_limit_w=limit_w,
            throttle_reasons=lambda t: 1 if t <= 0 else 0x4 if t <= seconds / 2 else 0,
            performance_state=lambda t: 0 if t > 0 else 8,
            memory_clock_mhz=lambda _: 877,
            memory_utilisation_pct=lambda t: 40 if t > 0 else 0,
            memory_used_b=lambda t: 3 * 2**30 if t > 2 else 0,
            pcie_tx_mb_s=lambda t: 20 + t % 3,
            pcie_rx_mb_s=lambda t: 200 + t % 5,
        )
    made.slow("cpu0", load_pct=lambda t: 60 if t > 0 else 10)
    made.fast(device("cpu0", measured=("energy_j",), source=Source.MODELLED), lambda _: 80)
    made.fast(device("dram0", source=Source.ASSUMED), lambda _: 12)
    made.spans(
        *(("epoch", i, i * seconds / epochs, (i + 1) * seconds / epochs) for i in range(epochs))
    )
    return made


def charts(*runs):
    return {chart.key: chart for chart in chart_runs(runs).charts}


@pytest.fixture
def run(tmp_path):
    return trained(tmp_path / "run").write()


@pytest.fixture
def gpus(tmp_path):
    return trained(tmp_path / "gpus", [f"gpu{i}" for i in range(9)], epochs=2).write()


@pytest.fixture
def bare(tmp_path):
    """One device, no epochs, nothing but power."""
    made = MadeRun(tmp_path / "bare").fast(device("cpu0", measured=("power_w",)), lambda t: 60 + t)
    return made.write()


@pytest.fixture
def several(tmp_path):
    return [trained(tmp_path / f"run{i}", seconds=20.0 + 4 * i, seed=i).write() for i in range(3)]


def test_a_run_has_only_figures_that_it_has_data_for(run, bare):
    assert set(charts(run)) == ALL
    assert set(charts(bare)) == {"power", "energy", "sampling"}


@pytest.mark.parametrize("which", ["run", "gpus", "bare", "several"])
def test_specs_are_valid_and_draw_only_data_of_their_tables(which, request, capfd):
    import vl_convert

    runs = request.getfixturevalue(which)
    for chart in chart_runs(runs if which == "several" else [runs]).charts:
        text = json.dumps(chart.drawing().to_dict(validate=True))
        assert set(re.findall(r'"data": {"name": "(\w+)"}', text)) <= set(chart.tables)
        assert '"values"' not in text
        assert '"url"' not in text
        assert set(re.findall(r'"style": "(\w+)"', text)) <= set(theme_config("light")["style"])
        assert not re.search(r"#[0-9a-fA-F]{6}", text)  # colours are the look's
        spec = apply_theme(chart.spec(), "print", 240.0)
        assert "NaN" not in json.dumps(spec)
        vl_convert.vegalite_to_svg(spec, show_warnings=True)
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""


def test_numbers_equal_those_of_the_result(run):
    result, found = load_or_compute_result(run), charts(run)
    total = result.run.total
    last = found["energy"].tables["growth"].records[-1]
    assert (last["energy_j"], last["error_j"]) == (total.value, total.error)
    assert found["energy"].table.records[-1] == last
    parts = found["breakdown"].table.records
    assert sum(part["energy_j"] for part in parts) == pytest.approx(total.value)
    bars = found["breakdown"].tables["devices"].records
    energies = [result.run.devices[key].energy for key in result.counted]
    assert [(it["low_j"], it["high_j"]) for it in bars] == [
        (max(one.value - one.error, 0.0), one.value + one.error) for one in energies
    ]
    epochs = [one for one in result.spans if one.span.name == "epoch"]
    records = found["epochs"].table.records
    assert [one["energy_j"] for one in records] == [one.total.value for one in epochs]
    assert [one["error_j"] for one in records] == [one.total.error for one in epochs]
    for row in found["power"].table.records:
        use = result.run.devices[row["device"]]
        assert (row["mean_w"], row["peak_w"]) == (use.mean_w, use.peak_w)


def test_cells_and_csv_equal_the_records(run):
    for chart in chart_runs([run]).charts:
        for table in chart.tables.values():
            assert len(table.rows) == len(table.records)
            assert all(len(row) == len(table.columns) for row in table.rows)
            assert len(as_csv(table).splitlines()) == len(table.records) + 1


def test_the_title_has_the_share_of_time_at_the_limit(tmp_path):
    made = MadeRun(tmp_path / "capped", seconds=20.0)
    made.fast(device("gpu0"), lambda t: 148 + t % 2)
    made.slow(
        "gpu0", enforced_limit_w=lambda _: 150, throttle_reasons=lambda t: 0x4 if t <= 15 else 0
    )
    chart = charts(made.write())["power"]
    (row,) = chart.table.records
    assert row["held_pct"] == pytest.approx(100 * 16 / 21)
    assert chart.title == "gpu0 is at its 150 W limit for 76 % of the time"


def test_the_title_says_that_the_limit_is_never_reached(tmp_path):
    made = MadeRun(tmp_path / "free").fast(device("gpu0"), lambda t: 90 + t % 2)
    made.slow("gpu0", enforced_limit_w=lambda _: 300, throttle_reasons=lambda _: 0)
    assert charts(made.write())["power"].title.endswith(" and never reaches its 300 W limit")


def test_memory_pcie_and_cpu_load_are_shown_over_time(run):
    found = charts(run)
    (memory,) = found["memory"].table.records
    assert memory["memory_used_max_gib"] == 3
    assert memory["pcie_tx_mb_s"] == pytest.approx(21, abs=0.1)
    assert memory["memory_clock_mhz"] == 877
    assert found["memory"].title.startswith(
        "gpu0 uses up to 3.00 GiB of memory and receives 202 MB/s"
    )
    drawn = {one["quantity"] for one in found["memory"].tables["sensors"].records}
    assert drawn == {
        "memory_used_b",
        "memory_utilisation_pct",
        "memory_clock_mhz",
        "pcie_tx_mb_s",
        "pcie_rx_mb_s",
    }
    states = [
        one["mean"]
        for one in found["sensors"].tables["sensors"].records
        if one["quantity"] == "performance_state"
    ]
    assert states[-1] == 0
    assert [one["device"] for one in found["cpu-load"].table.records] == ["cpu0"]
    assert found["cpu-load"].title == "The CPUs are busy 58 % of the time"


def test_sensors_without_readings_have_no_panel(tmp_path):
    made = MadeRun(tmp_path / "run").fast(device("gpu0"), lambda t: 90 + t % 2)
    made.slow("gpu0", memory_clock_mhz=lambda _: 877, pcie_tx_mb_s=lambda _: np.nan)
    found = charts(made.write())
    assert "sensors" not in found
    assert "cpu-load" not in found
    assert len(found["memory"].spec()["vconcat"]) == 1
    (row,) = found["memory"].table.records
    assert (row["pcie_tx_mb_s"], row["memory_used_gib"]) == (None, None)


def test_driver_samples_are_preferred_to_polled_power(tmp_path):
    """At six a second they show what one look a second does not."""
    made = trained(tmp_path / "run")
    t_ns = START + (np.arange(180) * S / 6).astype(np.int64)
    name, use = "gpu_utilisation_pct", np.where(np.arange(180) % 6 < 3, 100.0, 0.0)
    made.lane("gpu0", StreamKind.BUFFER_GPU_UTILISATION, {"t_ns": t_ns, name: use})
    run = made.write()
    records = charts(run)["sensors"].tables["sensors"].records
    mine = [one["mean"] for one in records if one["quantity"] == name]
    assert len(mine) > 100
    assert {0, 100} <= set(mine)
    summary = analyse(run).details["sensors"]["gpu0"]["run"][name]
    assert summary == {"mean": 50, "min": 0, "max": 100}
    polled = [one for one in records if one["quantity"] == "temperature_c"]
    assert len(polled) <= 30


def test_the_limit_is_drawn_as_it_changes(tmp_path):
    made = trained(tmp_path / "run", limit_w=lambda t: 250.0 if t < 15 else 200.0)
    limits = charts(made.write())["power"].tables["limits"].records
    assert [(one["limit_w"], one["last"]) for one in limits] == [(250, 0), (200, 0), (200, 1)]
    assert limits[1]["t_s"] == pytest.approx(15, abs=1.5)
    assert limits[-1]["t_s"] == pytest.approx(30)


def test_a_single_reading_is_a_point_and_its_limit_a_line(tmp_path):
    made = MadeRun(tmp_path / "short", seconds=1.2, lead_s=0.2, tail_s=0.1)
    made.fast(device("gpu0"), lambda t: 100 + t)
    made.slow("gpu0", temperature_c=lambda _: 40, enforced_limit_w=lambda _: 150)
    found = charts(made.write())
    assert len(found["sensors"].tables["sensors"].records) == 1
    marks = [layer["mark"]["type"] for layer in found["sensors"].spec()["vconcat"][0]["layer"]]
    assert marks == ["rule", "point"]
    limits = found["power"].tables["limits"].records
    assert [(one["limit_w"], one["last"]) for one in limits] == [(150, 0), (150, 1)]


def test_a_device_without_a_limit_has_no_limit_line(run):
    panels = charts(run)["power"].spec()["vconcat"]
    lines = [sum(layer["data"]["name"] == "limits" for layer in each["layer"]) for each in panels]
    assert lines == [1, 0, 0]


def test_the_band_has_every_peak(tmp_path):
    made = MadeRun(tmp_path / "run", seconds=60.0)
    made.fast(device("gpu0"), lambda t: 290 if abs(t - 31) < 0.005 else 100 + t % 2)
    power = charts(made.write())["power"].tables["power"].records
    assert max(one["high_w"] for one in power) == pytest.approx(290)
    assert max(one["mean_w"] for one in power) < 290


def test_a_bar_has_the_error_of_its_device(run):
    chart, result = charts(run)["breakdown"], load_or_compute_result(run)
    ends = {it["label"]: (it["low_j"], it["high_j"]) for it in chart.tables["devices"].records}
    for key in ("gpu0", "cpu0", "dram0"):
        energy = result.run.devices[key].energy
        bounds = (max(energy.value - energy.error, 0), energy.value + energy.error)
        assert ends[f"{key}, {energy.source.value}"] == bounds
    layers = chart.spec()["layer"]
    rule = next(layer for layer in layers if layer["mark"].get("style") == "interval")
    assert rule["data"]["name"] == "devices"


def test_standard_deviation_is_named_and_not_written_as_plus_minus(several):
    text = mean_and_deviation([100.0, 110.0, 120.0], "J")
    assert text == "110 J (standard deviation 10.0 J)"
    assert not [chart.title for chart in chart_runs(several).charts if "±" in chart.title]


def test_idle_and_dynamic_energy_add_up_to_the_device(run):
    result = load_or_compute_result(run)
    shares = {(one.device, one.part): one for one in breakdown(result)}
    use = result.run.devices["gpu0"]
    idle, dynamic = shares["gpu0", EnergyPart.IDLE], shares["gpu0", EnergyPart.DYNAMIC]
    assert idle.energy_j + dynamic.energy_j == pytest.approx(use.energy.value)
    assert idle.energy_j == pytest.approx(50 * 30, rel=0.05)
    assert (dynamic.energy_j, dynamic.error_j) == (use.net.value, use.net.error)
    assert shares["cpu0", EnergyPart.WHOLE].source is Source.MODELLED
    assert shares["dram0", EnergyPart.WHOLE].source is Source.ASSUMED


def test_devices_beyond_the_last_panel_are_in_the_tables_and_mentioned(gpus):
    found = charts(gpus)
    assert len(found["power"].table.records) == 11
    assert "Only the first 8 of 11 devices are drawn" in found["power"].description
    assert "Only the first 7 of 9 GPUs are drawn" in found["sensors"].description


def test_several_runs_are_averaged_without_those_that_have_ended(several):
    found = charts(*several)
    assert set(found) == {"power", "energy", "epochs"}
    power = found["power"].tables["power"].records
    assert [power[at]["runs"] for at in (1, len(power) // 2, -2)] == [3, 3, 1]
    assert power[-2]["sigma_w"] is None
    middle = [one["mean_w"] for one in power if 5 < one["t_s"] < 15]
    assert np.mean(middle) == pytest.approx(225 + 92, rel=0.02)
    totals = [load_or_compute_result(run).run.total.value for run in several]
    assert [one["energy_j"] for one in found["energy"].table.records] == totals
    epochs = found["epochs"].table.records
    assert len(epochs) == 30
    assert {one["run"] for one in epochs} == {run.name for run in several}


def test_a_damaged_run_is_named_and_the_rest_is_drawn(several, tmp_path):
    several[0].joinpath(MANIFEST).write_text("{")
    (several[1] / TRACE / f"gpu0{STREAM}").write_bytes(b"no stream")
    nowhere = tmp_path / "nowhere"
    found = chart_runs([*several, nowhere])
    skipped = {one.path for one in found.skipped}
    assert {several[0], nowhere} <= skipped
    assert several[2] not in skipped
    assert found.charts
    assert all("Left out: run0 (" in chart.description for chart in found.charts)


@pytest.mark.parametrize(
    "damage", [lambda whole: whole[: len(whole) // 2 + 3], lambda _: b"no stream", lambda _: b""]
)
def test_a_truncated_stream_is_reported(run, damage):
    result = load_or_compute_result(run)
    found = LoadedRuns(result, (run,), (GroupRun(read_manifest(run), result),))
    assert not [it for it in run_page(found, run.parent).notices if "figures lack" in it.message]
    stream = run / TRACE / f"gpu0{STREAM}"
    stream.write_bytes(damage(stream.read_bytes()))
    messages = [it.message for it in run_page(found, run.parent).notices]
    (message_of_damage,) = [
        message for message in messages if "figures lack what is lost" in message
    ]
    assert message_of_damage.startswith("run: ")
    assert "gpu0.arrows" in message_of_damage


def test_a_run_in_progress_is_drawn_up_to_its_result(run):
    """Who analyses it a second time finds more joules than the page has said above."""
    result = load_or_compute_result(run)
    whole = replace(result.run.total, value=0.9 * result.run.total.value)
    shown = replace(result, run=replace(result.run, total=whole))
    found = LoadedRuns(shown, (run,), (GroupRun(read_manifest(run), shown),))
    page = run_page(found, run.parent)
    (energy,) = (c for it in page.sections for c in it.charts if c.key == "energy")
    assert energy.tables["growth"].records[-1]["energy_j"] == whole.value
    assert page.data["energy_j"]["total"]["value"] == whole.value


def test_an_unreadable_run_has_no_figures(tmp_path):
    found = chart_runs([tmp_path])
    assert (found.charts, len(found.skipped)) == ((), 1)


def test_the_name_of_a_run_is_escaped(several):
    for run in several:
        write_manifest(run, replace(read_manifest(run), id=HOSTILE))
    for chart in chart_runs(several).charts:
        text = json.dumps(chart.spec(), ensure_ascii=False) + chart.title + chart.description
        assert "\x1b" not in text
        for table in chart.tables.values():
            assert "\x1b" not in as_csv(table)

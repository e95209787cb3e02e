"""The figures of a tuned run: what each shows, and that the page has them in a section."""

import json
import re
from dataclasses import replace

import pytest

from joulewise.analyse.group import GroupRun
from joulewise.analyse.stored_result import load_or_compute_result
from joulewise.report.charts.run import chart_runs
from joulewise.report.charts.theme import apply_theme, theme_config
from joulewise.report.html.pages import run_page
from joulewise.report.resolve import LoadedRuns
from joulewise.report.tables import as_csv
from joulewise.store.layout import TUNING
from joulewise.store.manifest import read_manifest
from joulewise.store.tuning_file import write_tuning
from tests.helpers.run_directories import PID, MadeRun, device
from tests.helpers.written_tunings import (
    BEFORE,
    CHOSEN,
    OTHER,
    ended_tuning,
    exploring_tuning,
    tuning_over_limits,
)

TUNINGS = {
    "two axes": ended_tuning(),
    "limits": tuning_over_limits(),
    "exploring": exploring_tuning(),
    "nothing fitted": replace(ended_tuning(), fitted=()),
    "one setting": replace(ended_tuning(), tried=ended_tuning().tried[:1], chosen=None),
    "choice not tried": replace(ended_tuning(), tried=ended_tuning().tried[:1]),
}


@pytest.fixture
def run(tmp_path):
    made = MadeRun(tmp_path / "run").fast(device("gpu0"), lambda t: 200 + t)
    made.slow("gpu0", sm_clock_mhz=lambda t: 1400 + t, gpu_utilisation_pct=lambda _: 99)
    made.processes("gpu0", (0, [(PID, "python", True)]))
    return made.write()


def charts(run, tuning):
    drawn = chart_runs([run], tuning=tuning).charts
    return {chart.key: chart for chart in drawn if chart.key.startswith("tuning-")}


def page(run):
    result = load_or_compute_result(run)
    member = GroupRun(read_manifest(run), result)
    return run_page(LoadedRuns(result, (run,), (member,)), run.parent)


@pytest.mark.parametrize("which", TUNINGS)
def test_specs_are_valid_and_draw_only_data_of_their_tables(run, which, capfd):
    import vl_convert

    for chart in charts(run, TUNINGS[which]).values():
        text = json.dumps(chart.drawing().to_dict(validate=True))
        assert set(re.findall(r'"data": {"name": "(\w+)"}', text)) <= set(chart.tables)
        assert set(re.findall(r'"style": "(\w+)"', text)) <= set(theme_config("light")["style"])
        assert not re.search(r"#[0-9a-fA-F]{6}", text)
        for theme in ("light", "print"):
            spec = apply_theme(chart.spec(), theme, 480.0)
            assert "NaN" not in json.dumps(spec)
            vl_convert.vegalite_to_svg(spec, show_warnings=True)
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""


def test_there_is_a_figure_over_time_and_one_of_each_axis(run):
    assert list(charts(run, TUNINGS["two axes"])) == [
        "tuning-power",
        "tuning-power-limit",
        "tuning-sm-clock",
    ]
    assert list(charts(run, TUNINGS["limits"])) == ["tuning-power", "tuning-power-limit"]
    assert not charts(run, None)


def test_phases_in_one_state_are_one_bar(run):
    chart = charts(run, ended_tuning())["tuning-power"]
    states = [(it["state"], it["start_s"], it["end_s"], it["steps"]) for it in chart.table.records]
    assert states == [
        ("warming up", 0.0, 1.0, 5),
        ("exploring", 1.0, 3.0, 34),
        ("holding", 3.0, 6.0, 40),
        ("exploring", 6.0, 7.0, 20),
        ("holding", 7.0, 9.0, 30),
        ("checking", 9.0, 10.0, 10),
    ]


def test_the_setting_in_force_is_the_one_before_where_nothing_was_set(run):
    records = charts(run, ended_tuning())["tuning-power"].tables["settings"].records
    assert [(it["setting"], it["start_s"], it["end_s"]) for it in records] == [
        (str(BEFORE), 0.0, 2.0),
        (str(OTHER), 2.0, 3.0),
        (str(CHOSEN), 3.0, 9.0),
        (str(BEFORE), 9.0, 10.0),
    ]
    assert [it["sm_clock_mhz"] for it in records] == [None, 900.0, 1200.0, None]


def test_lines_pass_through_the_choice_and_the_setting_before(run):
    chart = charts(run, ended_tuning())["tuning-sm-clock"]
    fitted = chart.tables["fitted"].records
    assert {it["line"] for it in fitted} == {"200 W (chosen)", "300 W (before)"}
    clocks = [it["at"] for it in fitted if it["line"] == "200 W (chosen)"]
    assert clocks[:3] == [900.0, 1200.0, 1500.0]
    assert clocks[3] > 1500.0  # unlocked
    by_setting = {it["setting"]: it["line"] for it in chart.table.records}
    assert by_setting == {
        str(BEFORE): "300 W (before)",
        str(CHOSEN): "200 W (chosen)",
        str(OTHER): "elsewhere",
    }
    assert "unlocked" in json.dumps(chart.drawing().to_dict())


def test_numbers_are_those_of_the_tuning(run):
    tuning = ended_tuning()
    for key in ("tuning-power-limit", "tuning-sm-clock"):
        records = charts(run, tuning)[key].table.records
        for record, one in zip(records, tuning.tried, strict=True):
            assert record["steps"] == one.steps
            assert record["step_energy_j"] == one.step_energy_j.mean
            assert record["step_time_s_low"] == one.step_time_s.low
            assert record["step_time_s_high"] == one.step_time_s.high
        assert as_csv(charts(run, tuning)[key].table).count("\n") == 1 + len(tuning.tried)


def test_the_choice_is_marked_and_while_exploring_the_best_so_far(run):
    def marks(tuning):
        records = charts(run, tuning)["tuning-power-limit"].tables["marked"].records
        return {it["mark"]: it["setting"] for it in records}

    assert marks(ended_tuning()) == {"before": str(BEFORE), "chosen": str(CHOSEN)}
    assert marks(exploring_tuning()) == {"before": str(BEFORE), "best so far": str(CHOSEN)}


def test_what_was_tried_is_drawn_without_a_trace(run):
    for stream in (run / "trace").iterdir():
        stream.write_bytes(b"")
    keys = list(charts(run, ended_tuning()))
    assert keys[-2:] == ["tuning-power-limit", "tuning-sm-clock"]


def test_the_page_has_a_section_and_its_json_has_the_tuning(run):
    write_tuning(run, ended_tuning())
    made = page(run)
    (section,) = [one for one in made.sections if one.title == "Tuning"]
    assert [chart.key for chart in section.charts] == list(charts(run, ended_tuning()))
    assert [table.name for table in section.tables] == [
        "tuning-account",
        "tuning",
        "tuning-changes",
    ]
    cells = dict(section.tables[0].rows)
    assert cells["energy saved"] == "24.0 ± 1.0 %"
    assert cells["more time"] == "8.0 ± 1.0 %"
    by_proof = "blocks of steps at both settings in turn (--prove), 12 comparisons"
    assert cells["known by"] == f"{by_proof}; the table has the means of all steps"
    assert cells["exploring"] == "54 steps, 10.5 s, 1.50 kJ"
    assert section.tables[2].rows == (("6.00 s", "the time of a step has changed"),)
    assert made.data["tune"]["chosen"] == CHOSEN.as_json()
    (figures,) = [one for one in made.sections if one.title == "Figures"]
    assert not [chart for chart in figures.charts if chart.key.startswith("tuning-")]


def test_a_run_that_was_not_tuned_has_no_section(run):
    made = page(run)
    assert "Tuning" not in [section.title for section in made.sections]
    assert "tune" not in made.data


def test_a_page_says_that_the_tuning_is_damaged(run):
    write_tuning(run, ended_tuning())
    (run / TUNING).write_text((run / TUNING).read_text()[:500])
    made = page(run)
    (notice,) = [notice for notice in made.notices if TUNING in notice.message]
    assert "damaged" in notice.message
    assert "Tuning" not in [section.title for section in made.sections]

"""What is said of a sweep, from the figures that all its forms share."""

import io
import math
import re
from dataclasses import replace

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from rich.console import Console

from joulewise.data import Energy, Source
from joulewise.data.sweeps import Setting, Sweep, Trial, TrialState, Work
from joulewise.metrics.boundary import View
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.metric import parse
from joulewise.metrics.result import Interval, ParabolaFit
from joulewise.report.settings_text import change, describe_ratios, setting_words
from joulewise.report.terminal.sweep import draw
from joulewise.report.views.projection import applying, next_commands, outlook, projection_lines
from joulewise.report.views.sweep import result_json, search_as_json, sweep_outcome, sweep_view
from joulewise.sweep.trial import log_name

LIMITS_W = (150.0, 200.0, 300.0)
TIMES_S = {150.0: 13.0, 200.0: 11.0, 300.0: 10.0}
ENERGIES_J = {150.0: 1400.0, 200.0: 1500.0, 300.0: 2000.0}


def sweep(*, name="", command=("python", "train.py"), blocks=3):
    settings = [Setting.of({"power_limit_w": limit_w, "lr": "=1+1"}) for limit_w in LIMITS_W]
    trials = [
        Trial(
            setting,
            block,
            TrialState.DONE,
            gpu="GPU-1",
            time_s=TIMES_S[setting["power_limit_w"]] * (1 + 0.001 * (block + place)),
            energy={
                "gpu": Energy(
                    ENERGIES_J[setting["power_limit_w"]] * (1 + 0.002 * (block - place)),
                    1.0,
                    40.0,
                    Source.MEASURED,
                )
            },
        )
        for block in range(blocks)
        for place, setting in enumerate(settings)
    ]
    return Sweep(
        "20260101-000000-abcd",
        {"command": list(command), "gpus": [0]},
        0,
        settings[-1],
        tuple(settings),
        tuple(trials),
        name=name,
        gpu_name="V100",
        limits_w=(150.0, 300.0, 300.0),
    )


def shown(**options):
    return sweep_view(evaluate(sweep(**options), [parse("energy"), parse("edp")], View()))


def test_the_finding_is_a_sentence():
    energy, edp = shown().findings
    assert energy.startswith("energy: 150 W, lr =1+1 takes 29.7 ")
    assert "less energy and 29.7 " in energy
    assert energy.endswith("% more time than 300 W, lr =1+1")
    assert edp.startswith("EDP: 200 W")


def balanced(energy_j=890.0):
    """Two limits with the same E · t within noise, though energy and time differ by far."""
    settings = [Setting.of({"power_limit_w": limit_w}) for limit_w in (200.0, 300.0)]
    figures = {200.0: (11.2, energy_j), 300.0: (10.0, 1000.0)}
    trials = []
    for block, factor in enumerate((0.985, 1.0, 1.015)):
        for setting in settings:
            time_s, mean_j = figures[setting["power_limit_w"]]
            joules = mean_j * (factor if setting is settings[0] else 1.0)
            energy = {"gpu": Energy(joules, 0.1, 40.0, Source.MEASURED)}
            trials.append(Trial(setting, block, TrialState.DONE, time_s=time_s, energy=energy))
    return Sweep("made", {}, 0, settings[1], tuple(settings), tuple(trials))


def test_within_noise_is_said_of_the_metric_and_the_reference_recommended():
    found = balanced()
    result = evaluate(found, [parse("edp")], View())
    it = sweep_view(result)
    (finding,) = it.findings
    wanted = "EDP: keep the reference, 300 W: 200 W takes 10.7 "
    assert finding.startswith(wanted)
    assert finding.endswith("than 300 W, but by EDP the two differ by no more than noise")
    assert it.choices.rows[-1][1] == "EDP within noise"
    assert it.choices.rows[-1][-1] is None  # it does not beat the reference anywhere
    assert result_json(result)["findings"] == {"edp": finding.removeprefix("EDP: ")}
    (ahead,) = outlook(found, result, View(), runs_per_year=50)
    assert (ahead.setting, ahead.command, ahead.year) == (found.reference, None, None)
    assert list(next_commands(found, (ahead,), "joulewise")) == []


def test_what_is_better_has_its_command():
    found = balanced(energy_j=500.0)
    result = evaluate(found, [parse("edp")], View())
    (ahead,) = outlook(found, result, View(), runs_per_year=50)
    assert ahead.setting["power_limit_w"] == 200
    assert ahead.year is not None
    assert list(next_commands(found, (ahead,), "joulewise")) == [
        ("joulewise run --power-limit=200 -- python train.py", "by edp")
    ]


def test_tables_have_a_row_for_each_choice_and_each_setting():
    it = shown()
    assert [row[0] for row in it.choices.rows] == ["reference", "energy", "EDP"]
    assert [row[0] for row in it.points.rows] == ["150", "200", "300"]
    assert [record["power_limit_w"] for record in it.points.records] == list(LIMITS_W)


def test_every_form_has_the_same_figures():
    it = evaluate(sweep(), [parse("energy")], View())
    choice = it.best["energy"]
    record = sweep_view(it).choices.records[1]
    assert record["energy_ratio"] == choice.energy.mean
    assert record["energy_j"] == it.point(choice.setting).energy_j.mean
    assert change(choice.energy) in sweep_view(it).choices.rows[1]


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (Interval(0.75, 0.74, 0.77), "-25.0 % [-26.0, -23.0]"),
        (Interval(0.75, 0.74, 0.76), "-25.0 % ± 1.0"),
        (Interval(8.126, 1.31, 53.1), "8.1 times [1.3, 53]"),
        (Interval(1.2, 0.4, 3.6), "1.2 times [0.40, 3.6]"),
        (Interval(2.2), "2.2 times"),
        (Interval(1.1), "+10.0 %"),
        (Interval(0.9997), "+0.0 %"),
        (Interval(0.9997, 0.99, 1.01), "+0.0 % ± 1.0"),
        (None, None),
    ],
)
def test_a_ratio_is_said_as_what_is_more_or_less(ratio, said):
    assert change(ratio) == said


@given(st.floats(-3, 3), st.floats(1e-5, 3))
@example(0.05, 0.0485)  # +5.1 % (+0.1 to +10.3) is not ± 5.2
def test_what_is_printed_holds_no_change_exactly_where_the_interval_does(mean, half):
    low, high = mean - half, mean + half
    assume(min(abs(low), abs(high)) > 1e-5)
    said = change(Interval(*(math.exp(it) for it in (mean, low, high))))
    numbers = [float(it) for it in re.findall(r"[-+]?\d+(?:\.\d+)?", said)]
    if "times" in said:
        printed, no_change = numbers[1:], 1.0
    elif "±" in said:
        printed, no_change = [numbers[0] - numbers[1], numbers[0] + numbers[1]], 0.0
    else:
        printed, no_change = numbers[1:], 0.0
    assert (printed[0] <= no_change <= printed[1]) == (low <= 0 <= high)


@pytest.mark.parametrize(
    ("reported", "said"),
    [
        (
            [(Interval(0.75, 0.74, 0.76), "energy", ""), (Interval(1.1), "time", "unsure")],
            "25.0 ± 1.0 % less energy and 10.0 % more time (unsure) than A",
        ),
        (
            [(Interval(8.1, 1.3, 53), "energy", ""), (Interval(1.1), "time", "")],
            "8.1 times the energy of A (1.3 to 53) and 10.0 % more time than A",
        ),
        (
            [(Interval(0.97, 0.92, 1.03), "energy", "within noise")],
            "3.0 % less energy (8.0 % less to 3.0 % more, within noise) than A",
        ),
        (
            [(Interval(2.5, 0.9, 7.1), "energy", "noisy"), (Interval(0.9997), "time", "")],
            "2.5 times the energy of A (0.90 to 7.1, noisy) and under 0.1 % less time than A",
        ),
        ([(None, "energy", "")], ""),
    ],
)
def test_ratios_in_a_sentence(reported, said):
    assert describe_ratios(reported, "A") == said


def test_a_setting_in_words():
    values = {"power_limit_w": 150.0, "sm_clock_mhz": None, "mem_clock_mhz": 877.0, "b": "32"}
    said = "150 W, SM unlocked, memory 877 MHz, b 32"
    assert setting_words(Setting.of(values)) == said


def test_the_command_that_applies_it():
    command = ("python", "train.py", "--lr", "{lr}")
    found = sweep(command=command)
    applied = applying(found, found.settings[0])
    assert applied == "joulewise run --power-limit=150 --gpu=0 -- python train.py --lr =1+1"
    assert "-- python train.py --lr==1+1" in applying(sweep(command=()), found.settings[0])


def test_a_year_of_it():
    found = sweep()
    it = evaluate(found, [parse("energy")], View())
    (ahead,) = outlook(found, it, View(), runs_per_year=3.6e6, price_per_kwh=0.5)
    assert ahead.year.energy_kwh.mean == pytest.approx(600, rel=0.02)
    assert ahead.year.money.mean == pytest.approx(300, rel=0.02)
    assert ahead.year.co2_kg is None


@pytest.mark.parametrize(
    ("reference", "by", "said"),
    [
        (300.0, "energy", "energy: 3600 runs a year save 0.593 ("),
        (150.0, "time", "time: 3600 runs a year cost 0.593 ("),
        (300.0, "time", None),
    ],
)
def test_a_year_is_told_as_what_it_saves_or_costs(reference, by, said):
    found = sweep()
    first = next(it for it in found.settings if it["power_limit_w"] == reference)
    found = replace(found, reference=first)
    it = evaluate(found, [parse(by)], View())
    lines = list(projection_lines(outlook(found, it, View(), runs_per_year=3600), it.per))
    assert len(lines) == (said is not None)
    assert not any("-" in line for line in lines)
    if said:
        assert lines[0].startswith(said)
        assert lines[0].endswith("h longer" if by == "energy" else "h less")


def test_of_one_run_nobody_knows_where_others_would_lie():
    for blocks in (1, 3):
        found = sweep(blocks=blocks)
        it = evaluate(found, [parse("energy")], View())
        (line,) = projection_lines(outlook(found, it, View()), "training")
        assert ("95 % interval" in line) == (blocks > 1)


def test_where_no_gpu_was_in_use_nothing_is_compared_for_it():
    found = sweep()
    trials = [replace(it, gpu="", energy={"rest": it.energy["gpu"]}) for it in found.trials]
    it = evaluate(replace(found, trials=tuple(trials)), [parse("energy")], View("node"))
    headings = [column.heading for column in sweep_view(it).boundaries.columns]
    assert headings == [
        "objective",
        "best setting",
        "energy, node",
        "energy, wall",
        "best for wall",
    ]


def test_names_from_elsewhere_do_not_steer_the_terminal():
    out = io.StringIO()
    it = evaluate(sweep(name="\x1b[31mred[bold]\n"), [parse("energy")], View())
    draw(it, Console(file=out, width=200, markup=False, highlight=False))
    assert "\x1b" not in out.getvalue()
    assert "[bold]" in out.getvalue()


def failing(sweep, *trials, **changed):
    return replace(sweep, trials=(*sweep.trials, *trials), **changed)


def failed(limit_w, block=5, **reported):
    setting = Setting.of({"power_limit_w": limit_w, "lr": "=1+1"})
    return Trial(setting, block, TrialState.FAILED, reason="it broke", attempts=2, **reported)


def test_what_failed_is_told_once_for_each_reason_with_its_log(tmp_path):
    last = failed(200.0, log_tail="\n".join("abcde") + "\x1b[31m\n")
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / log_name(last.planned)
    log.touch()
    found = failing(sweep(), failed(150.0), failed(200.0, block=6), last)
    ((problem, under),) = sweep_outcome(found, tmp_path).problems
    assert problem == "failed: 150 W, lr =1+1 | 200 W, lr =1+1 (3 runs): it broke"
    assert under == ("| c", "| d", "| e\\x1b[31m", f"log: {log}")
    assert [it["log"] for it in search_as_json(found, tmp_path)["failed"]] == [None, None, str(log)]


def test_a_search_says_whether_it_is_sure():
    result = {
        "settings": {"power_limit_w": 150.0, "lr": "1"},
        "tolerance": 0.01,
        "probability": 0.871,
        "sure": False,
        "saving": {"mean": 0.2, "low": 0.19, "high": 0.21, "pairs": 3},
    }
    sure, unsure = ({"metrics": {"edp": {**result, "sure": it}}} for it in (True, False))
    runs = len(sweep().trials)
    (said,) = sweep_outcome(replace(sweep(), sure=sure)).search
    assert said == (
        f"EDP: sure after {runs} runs that 150 W, lr 1 is within 1 % of the best; "
        "3 pairs of these runs came after the search, and measured the saving"
    )
    (said,) = sweep_outcome(replace(sweep(), sure=unsure)).search
    assert said.startswith(
        f"EDP: not sure after {runs} runs that 150 W, lr 1 is within 1 % of the best "
        "(probability 87 %)"
    )
    (note,) = sweep_outcome(replace(sweep(), sure=sure, state="finished"), metrics=["energy"]).notes
    assert note.startswith("the search was for the best by edp; by energy, only")


def test_short_looks_are_told_apart_from_the_runs_that_count():
    found = replace(sweep(), state="finished")
    looks = [replace(it, look_s=10.0) for it in found.trials[:2]]
    (note,) = sweep_outcome(replace(found, trials=(*found.trials, *looks))).notes
    assert (
        note
        == "in addition, 2 short trials that only guided the search; they are not in these figures"
    )


def test_a_sweep_that_is_not_finished_says_so():
    found, goes_on = sweep(), "; run the same command again to resume it"
    made, most = len(found.trials), 5 * len(found.settings)
    asked = {**found.asked, "repeat": 5}
    running = sweep_outcome(replace(found, asked=asked)).notes
    assert running == (f"running: {made} of {most} runs",)
    cut = replace(found, state="interrupted")
    grid = sweep_outcome(replace(cut, asked=asked)).notes
    assert grid == (f"interrupted: {made} of {most} runs{goes_on}",)
    search = sweep_outcome(replace(cut, asked={**asked, "adaptive": True})).notes
    assert search == (f"interrupted: {made} runs of a search{goes_on}",)
    assert sweep_outcome(replace(sweep(), state="finished")).notes == ()


def test_where_every_run_failed_there_is_nothing_to_choose():
    out = io.StringIO()
    all_failed = replace(sweep(), trials=(failed(150.0), failed(300.0)))
    it = evaluate(all_failed, [parse("edp")], View())
    draw(it, Console(file=out, width=100), how=sweep_outcome(all_failed))
    assert "3 settings, no run that finished" in out.getvalue()
    assert "prefers" not in out.getvalue()
    assert "failed: 150 W" in out.getvalue()


def test_the_command_has_the_folder_and_the_environment_of_the_sweep():
    found = sweep(command=("python", "{lr}.py"))
    asked = {**found.asked, "cwd": "my work", "environ": {"LR": "{lr} x"}}
    applied = applying(replace(found, asked=asked), found.settings[0])
    begin = "cd 'my work' && LR='=1+1 x' joulewise run "
    assert applied == begin + "--power-limit=150 --gpu=0 -- python =1+1.py"


def test_the_r2_of_the_means_stands_beside_that_of_the_runs():
    """Also where the parabola is refused."""
    fit = ParabolaFit("energy", Setting(()), (1.0, 1.0, 1.0), 0.63, 0.61, 9, means_r2=0.92)
    result = evaluate(sweep(), [parse("energy")], View())
    worth = "R² = 0.920 for the means, 0.630 for single runs"
    (drawn,) = sweep_view(replace(result, fits=(fit,))).fits
    assert worth in drawn
    (refused,) = sweep_view(replace(result, fits=(replace(fit, problem="it bends"),))).fits
    assert refused == f"No quadratic fit of energy ({worth}) to the limit: it bends"


def test_a_parabola_that_is_refused_says_of_which_batch_size_it_is():
    result = evaluate(sweep(), [parse("energy")], View())
    few = [
        ParabolaFit(
            "energy", Setting.of({"batch_size": size}), None, None, None, 0, problem=problem
        )
        for size, problem in (("32", "few"), ("64", "few"), ("96", "bent"))
    ]
    said = sweep_view(replace(result, fits=tuple(few))).fits
    assert said == (
        "No quadratic fit of energy to the limit at batch_size 32; batch_size 64: few",
        "No quadratic fit of energy to the limit at batch_size 96: bent",
    )


def test_what_is_assumed_is_told_in_watts_and_as_a_pue():
    (note,) = sweep_view(evaluate(sweep(), [parse("energy")], View())).notes
    assert note.startswith("What is counted: node = GPU measured, ")
    wall = "wall = the energy of the node, times an assumed PUE of "
    assert f" W assumed for the rest of the node; {wall}" in note
    (note,) = sweep_view(evaluate(sweep(), [parse("energy")], View(overhead_w=75.0))).notes
    assert note.startswith(
        "What is counted: wall = GPU measured, 75 W given for the rest "
        "of the node, times an assumed PUE of "
    )


def test_times_of_simulated_runs_are_simulated_without_an_energy():
    """As of steps in virtual time, of which only the run's energy is known."""
    found = sweep()
    trials = [
        replace(
            it,
            energy={"gpu": replace(it.energy["gpu"], source=Source.SIMULATED)},
            spans={"step": Work(10, it.time_s)},
        )
        for it in found.trials
    ]
    result = evaluate(replace(found, trials=tuple(trials)), [parse("time")], View(per="step"))
    assert result.points[0].energy_j is None
    assert "GPU simulated" in sweep_view(result).title

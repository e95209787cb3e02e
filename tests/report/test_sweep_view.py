"""What is said of a sweep, from the figures that all its forms share."""

import io

import pytest
from rich.console import Console

from joulewise.data import Energy, Source
from joulewise.data.sweeps import Setting, Sweep, Trial, TrialState
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.result import Interval
from joulewise.metrics.rules import parse
from joulewise.metrics.view import View
from joulewise.report.sweep import draw
from joulewise.report.sweep_outlook import applying, outlook
from joulewise.report.sweep_view import view
from joulewise.report.sweep_words import change, setting_words

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
    return view(evaluate(sweep(**options), [parse("energy"), parse("edp")], View()))


def test_the_finding_is_a_sentence():
    energy, edp = shown().findings
    assert energy.startswith("energy: 150 W, lr =1+1 takes 29.7 ")
    assert "less energy and 29.7 " in energy
    assert energy.endswith("% more time than 300 W, lr =1+1")
    assert edp.startswith("EDP: 200 W")


def test_tables_have_a_row_for_each_choice_and_each_setting():
    it = shown()
    assert [row[0] for row in it.choices.rows] == ["reference", "energy", "EDP"]
    assert [row[0] for row in it.points.rows] == ["150", "200", "300"]
    assert [record["power_limit_w"] for record in it.points.records] == list(LIMITS_W)


def test_every_form_has_the_same_figures():
    it = evaluate(sweep(), [parse("energy")], View())
    choice = it.best["energy"]
    record = view(it).choices.records[1]
    assert record["energy_ratio"] == choice.energy.mean
    assert record["energy_j"] == it.point(choice.setting).energy_j.mean
    assert change(choice.energy) in view(it).choices.rows[1]


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (Interval(0.75, 0.74, 0.77), "-25.0 % ± 2.0"),
        (Interval(1.1), "+10.0 %"),
        (None, None),
    ],
)
def test_a_ratio_is_said_as_what_is_more_or_less(ratio, said):
    assert change(ratio) == said


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


def test_names_from_elsewhere_do_not_steer_the_terminal():
    out = io.StringIO()
    it = evaluate(sweep(name="\x1b[31mred[bold]\n"), [parse("energy")], View())
    draw(it, Console(file=out, width=200, markup=False, highlight=False))
    assert "\x1b" not in out.getvalue()
    assert "[bold]" in out.getvalue()

"""What is told of a run: the right words, in any width, terminal and encoding."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from joulewise.data import (
    Energy,
    Excluded,
    QualityWarning,
    RunResult,
    Source,
    Span,
    SpanResult,
    Use,
    WarningCode,
    total,
)
from joulewise.report.terminal.run import draw
from joulewise.report.views.run import PriceAndCarbon, ending, run_view

S = 10**9


def use(value, source=Source.MEASURED, *, counter=True, net=None):
    energy = Energy(value, 0.003 * value, 0.004 * value, source)
    return Use(energy, net, value / 100, value / 50, value if counter else None, value)


GPU = use(8000, net=Energy(4000, 10, 20, Source.MEASURED))
USES = {
    "gpu0": GPU,
    "gpu1": use(4000, counter=False),
    "gpu2": use(4000, counter=False),
    "gpu3": Use(None),
    "cpu0": use(2000, Source.MODELLED),
}
SPANS = {
    "epoch": {
        "count": 4,
        "announced": 5,
        "time_s": {"mean": 20.0, "min": 19.5, "max": 20.6},
        "energy_j": {"mean": 2000.0, "min": 1970.0, "max": 2030.0},
    },
    "step": {"count": 4000, "time_s": {"mean": 0.02, "std": None}, "energy_j": {"mean": None}},
}


def result(**changed):
    whole = Span("run", None, 5 * S, 105 * S)
    counted = ("gpu0", "cpu0")
    defaults = {
        "id": "20261116-003512-7f3a",
        "exit_code": 0,
        "state": "complete",
        "start_monotonic_ns": 5 * S,
        "run": SpanResult(whole, total(USES[key].energy for key in counted), USES),
        "counted": counted,
        "excluded": (
            Excluded("gpu1", "not used by any process of the command"),
            Excluded("gpu2", "not used by any process of the command"),
            Excluded("gpu3", "GPU is lost"),
        ),
        "warnings": (
            QualityWarning(WarningCode.GAP, "no reading for 2 s", "see the doctor", "gpu0"),
        ),
        "details": {
            "about": {"name": "resnet", "command": "python train.py", "tags": ["a", "b"]},
            "baseline": {"gpu0": {"kind": "asleep", "power_w": 40.0}},
            "spans": SPANS,
        },
    }
    return RunResult(**{**defaults, **changed})


def drawn(reported, width=80, encoding="utf-8", **options):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    draw(reported, Console(file=file, width=width, highlight=False, markup=False), **options)
    file.flush()
    return raw.getvalue().decode(encoding)


def line_with(text, words):
    """The line that begins so."""
    (line,) = [line for line in text.splitlines() if line.strip().startswith(words)]
    return " ".join(line.split())


def test_a_device_has_energy_error_watts_and_source():
    text = drawn(result())
    assert line_with(text, "gpu0 ") == "gpu0 8.00 kJ ± 0.5 % 80.0 W 160 W measured (counter)"
    assert line_with(text, "cpu0 ") == (
        "cpu0 2.00 kJ ± 0.5 % 20.0 W 40.0 W modelled (whole machine)"
    )
    assert line_with(text, "gpu3 ") == "gpu3 unavailable - - -"


def test_a_cpu_that_is_counted_is_counted_for_the_whole_machine():
    uses = {"n1/cpu0": use(2000), "n1/dram0": use(500, Source.ASSUMED)}
    whole = SpanResult(Span("run", None, 0, S), use(2500).energy, uses)
    shown = run_view(result(run=whole, counted=tuple(uses)))
    assert [row.source for row in shown.rows] == ["measured (counter, whole machine)", "assumed"]


def test_the_total_sums_what_counts_and_says_what_it_leaves_out():
    text = drawn(result())
    assert line_with(text, "total ").startswith("total 10.0 kJ ± 0.4 % 100 W")
    assert "not in the total: gpu1, gpu2 (not used by any process of the command)" in text
    assert "not in the total: gpu3 (GPU is lost" in text


def test_the_last_sentence_is_the_finding():
    assert "10.0 kJ ± 0.4 % (2.78 Wh) in 1 min 40 s: 80 % GPU, 20 % CPU." in drawn(result())
    nothing = result(run=SpanResult(Span("run", None, 0, S), None, {}), counted=())
    assert "No device's energy could be read in these 1.00 s." in drawn(nothing)


def test_the_two_parts_of_the_error():
    assert line_with(drawn(result(), errors=True), "gpu0 ") == (
        "gpu0 8.00 kJ ± 0.5 % ± 0.3 % ± 0.4 % measured (counter)"
    )


def test_net_names_the_idle_that_was_taken_off():
    assert "net of idle (40.0 W, asleep): gpu0 4.00 kJ ± 0.6 %" in drawn(result())
    assert "all GPUs" not in drawn(result())


def test_net_of_several_gpus_is_also_told_together():
    uses = {"gpu0": GPU, "gpu1": GPU}
    whole = SpanResult(Span("run", None, 0, S), total([GPU.energy, GPU.energy]), uses)
    idle = {key: {"kind": "asleep", "power_w": 40.0} for key in uses}
    actual = drawn(result(run=whole, counted=tuple(uses), details={"baseline": idle}))
    assert "net of idle, all GPUs: 8.00 kJ ± 0.4 %" in actual


def test_a_group_has_one_net_or_the_reason_why_not():
    uses = {"n1/gpu0": GPU, "n2/gpu0": GPU}
    whole = SpanResult(Span("run", None, 0, S), total([GPU.energy, GPU.energy]), uses)
    details = {"runs": ["a", "b"], "baseline": {}}
    known = result(run=whole, counted=tuple(uses), details=details)
    assert "net of idle, all GPUs: 8.00 kJ ± 0.4 %" in run_view(known).notes
    uses["n2/gpu0"] = use(8000)
    details["baseline"] = {"n2/gpu0": {"kind": None, "reason": "it was never idle in b"}}
    assert "net of idle: unavailable, n2/gpu0: it was never idle in b" in run_view(known).notes


def test_spans_are_summed_up_by_name():
    text = drawn(result())
    assert line_with(text, "epoch ") == "epoch 4 of 5 20.0 s 19.5-20.6 s 2.00 kJ 1.97-2.03 kJ"
    assert line_with(text, "step ") == "step 4000 20.0 ms - - -"


def test_with_errors_a_span_of_each_name_has_its_typical_error():
    energies = [
        Energy(2000, 30, 40, Source.MEASURED),
        Energy(2000, 90, 120, Source.MEASURED),
        Energy(1, 1, 1, Source.MEASURED, at_least=True),
        None,
    ]
    listed = tuple(
        SpanResult(Span("epoch", at, at * S, (at + 1) * S), energy, {})
        for at, energy in enumerate(energies)
    )
    text = drawn(result(spans=listed), 120, errors=True)
    assert line_with(text, "span ").endswith("mean energy error of a span energy min-max")
    # 50 J and 150 J of 2000 J; steps are not listed, so nothing is known of one.
    assert line_with(text, "epoch ").endswith("2.00 kJ ± 5.0 % 1.97-2.03 kJ")
    assert line_with(text, "step ").endswith("- - -")


def test_spans_that_were_cut_off_stand_beside_the_count():
    text = drawn(result(details={"spans": {"epoch": {**SPANS["epoch"], "unfinished": 1}}}))
    assert line_with(text, "epoch ").startswith("epoch 4 of 5, 1 unfinished 20.0")


def test_money_and_carbon_only_where_their_rates_are_given():
    assert "cost" not in drawn(result())
    text = drawn(result(), rates=PriceAndCarbon(price_per_kwh=0.36, gco2_per_kwh=360))
    assert "cost: 0.00100 ± 0.4 % at 0.36 per kWh" in text
    assert "emissions: 1.00 ± 0.4 % g CO₂ at 360 g per kWh" in text


def test_a_warning_has_its_hint():
    text = drawn(result())
    assert "warning: gpu0: no reading for 2 s\n" in text.replace(" \n", "\n").replace("  ", " ")
    assert "see the doctor" in text


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_any_width_and_encoding(width, encoding):
    text = drawn(result(), width, encoding, errors=True)
    assert "8.00 kJ" in text
    assert max(map(len, text.splitlines()[:12])) <= width


@pytest.mark.parametrize("hostile", ["\x1b[31mred", "[bold red]x[/]", "<b>x</b>", "a\rb", "a\nb"])
def test_hostile_names_are_text(hostile):
    about = {"name": hostile, "command": hostile, "host": hostile, "group": hostile}
    spans = {hostile: SPANS["epoch"]}
    actual = result(
        details={"about": about, "spans": spans},
        warnings=(QualityWarning(WarningCode.OTHER_PROCESSES, hostile, hostile, hostile),),
        excluded=(Excluded("gpu1", hostile),),
    )
    text = drawn(actual)
    assert "\x1b" not in text
    assert "\r" not in text
    assert text.count("[bold red]x[/]") == (9 if "bold" in hostile else 0)


@pytest.mark.parametrize(
    ("state", "code", "said"),
    [
        ("complete", 0, "finished"),
        ("complete", 3, "failed (exit 3)"),
        ("complete", 137, "killed (signal 9)"),
        ("killed", None, "killed"),
        ("recording", None, "recording"),
        ("stopped", 143, "interrupted"),
    ],
)
def test_how_it_ended(state, code, said):
    assert ending(state, code, []) == said


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "finished, recorder killed"),
        (137, "killed (signal 9), recorder killed"),
        (None, "recorder killed"),  # of a process that --pid measured
    ],
)
def test_a_command_that_outlived_its_recorder(code, said):
    assert ending("stopped", code, ["recorder_ended"]) == said


def test_the_next_commands_can_be_pasted():
    shown = run_view(result(), program="joulewise --store 'my runs'")
    assert shown.commands[0][0] == (
        "joulewise --store 'my runs' show 20261116-003512-7f3a --errors"
    )


def test_with_errors_no_command_leads_to_them():
    assert "--errors" in drawn(result())
    assert "--errors" not in drawn(result(), errors=True)


def test_no_trace_is_offered_where_nothing_was_recorded():
    uses = {key: replace(use, energy=None) for key, use in USES.items()}
    empty = replace(result(details={}), run=SpanResult(result().run.span, None, uses))
    assert run_view(empty, program="joulewise").commands == ()


def test_a_long_name_of_a_span_takes_few_lines_of_the_table():
    actual = drawn(result(details={"spans": {"x" * 3000: SPANS["epoch"]}}))
    assert "x…" in actual
    assert actual.count("x") < 100

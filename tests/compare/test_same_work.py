"""The same epochs or samples are the same work; steps of other batches are none of each other's."""

from dataclasses import replace

import numpy as np
import pytest

from joulewise.compare.judgement import CompareOutcome
from joulewise.compare.quantities import have_common_number
from joulewise.compare.runs import CompareWarningCode, compare_runs
from joulewise.compare.sweeps import compare_sweeps
from joulewise.data import DOUBTFUL, QualityWarning, Span, WarningCode
from joulewise.data.sweeps import Work
from joulewise.metrics.boundary import SampleCount, View
from joulewise.metrics.evaluate import evaluate
from joulewise.metrics.result import SweepWarningCode
from joulewise.store.manifest import CommandRecord
from tests.helpers.comparison_runs import S, joules, made, side
from tests.helpers.sweeps import limit, sweep, trial

WORK = {CompareWarningCode.DIFFERENT_WORK, CompareWarningCode.WORK_NOT_KNOWN}


def compared(a, b):
    return compare_runs(side("a", a), side("b", b))


def work_codes(found):
    return [it.code for it in found.warnings if it.code in WORK]


def command(*words):
    return {"commands": (CommandRecord(1, ("python", "train.py", *words), 0, 1, 0),)}


def test_another_batch_size_is_the_same_work_where_the_epochs_are_the_same():
    found = compared(made("1", steps=16), made("2", steps=4, energies={"gpu0": joules(15_000.0)}))
    assert (found.work.per, found.work.is_same) == ("run", True)
    assert work_codes(found) == []
    assert found.get("energy").ratio.mean == pytest.approx(0.75)


@pytest.mark.parametrize("quantity", ["energy/step", "time/step"])
def test_steps_of_another_batch_size_are_not_compared(quantity):
    found = compared(made("1", steps=16), made("2", steps=4))
    assert found.get(quantity).verdict is CompareOutcome.NOT_COMPARABLE
    assert found.get(quantity).ratio is None
    assert found.get(quantity).reason == "an epoch has 16 steps in A, 4 in B"


def test_steps_of_one_size_are_compared_whatever_the_number_of_epochs():
    found = compared(made("1", steps=16), made("2", epochs=3, steps=16, time_s=150.0))
    assert found.work.per == "epoch"
    assert found.get("time/step").ratio.mean == pytest.approx(1)


def test_without_epochs_more_steps_are_more_work():
    found = compared(made("1", epochs=0, steps=10), made("2", epochs=0, steps=20, time_s=200.0))
    assert (found.work.per, found.work.is_same) == ("step", False)
    assert work_codes(found) == [CompareWarningCode.DIFFERENT_WORK]


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [
        (("--batch-size", "16"), ("--batch-size", "64")),
        (("--batch_size=16",), ("--batch_size=64",)),
        (("data.batch_size=16",), ("data.batch_size=64",)),
        (("-b", "16"), ("-b", "64")),
        (
            ("eval.batch_size=512", "train.batch_size=16"),
            ("eval.batch_size=512", "train.batch_size=64"),
        ),
        (("--val.batch_size=512", "-b", "16"), ("--val.batch_size=512", "-b", "64")),
        (
            ("--batch-size", "8", "--per_device_train_batch_size", "16"),
            ("--batch-size", "8", "--per_device_train_batch_size", "64"),
        ),
        (("--batch-size=8", "--batch-size=16"), ("--batch-size=64",)),
    ],
)
def test_without_epochs_steps_of_other_batches_leave_the_work_unknown(of_a, of_b):
    found = compared(
        made("1", epochs=0, steps=10, **command(*of_a)),
        made("2", epochs=0, steps=20, **command(*of_b)),
    )
    assert (found.work.per, found.work.is_same) == ("run", None)
    assert work_codes(found) == [CompareWarningCode.WORK_NOT_KNOWN]
    assert found.get("time/step").reason == "a batch has 16 samples in A, 64 in B"


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [
        (("text.batch_size=8", "image.batch_size=64"), ("text.batch_size=8",)),
        (("test.batch_size=8",), ("test.batch_size=64",)),
    ],
)
def test_a_batch_size_that_may_not_be_the_trainings_says_nothing_of_its_steps(of_a, of_b):
    found = compared(
        made("1", epochs=0, steps=10, **command(*of_a)),
        made("2", epochs=0, steps=10, **command(*of_b)),
    )
    assert not found.work.unlike_steps
    assert found.get("time/step").ratio is not None


def simulated(run_id, batch_size, **changed):
    return made(run_id, options={"simulated": {"batch_size": batch_size}}, **changed)


def test_other_numbers_of_samples_are_compared_per_sample():
    found = compared(simulated("1", 32, steps=10), simulated("2", 32, steps=5, time_s=60.0))
    assert (found.work.per, found.work.unit) == ("sample", "sample")
    assert (found.work.a, found.work.b) == ((640,), (320,))
    assert found.get("time/sample").ratio.mean == pytest.approx(1.2)


def test_a_last_batch_that_is_not_full_is_no_other_work():
    # 1000 samples are 32 batches of 32 (1024) or 8 of 128 (1024 as well), 16 of 64, 11 of 96 (1056)
    found = compared(simulated("1", 32, steps=32), simulated("2", 96, steps=11))
    assert (found.work.per, found.work.is_same) == ("run", True)


@pytest.mark.parametrize(
    ("counts", "are_alike"),
    [
        (((60_000, 10_000), (70_000, 100)), False),  # (50,000, 60,000] and (69,900, 70,000]
        (((50_000, 50_000), (100_000, 32)), False),
        (((60_000, 10_000), (50_100, 100)), True),
        (((60_000, 100), (60_000, 0)), True),
        (((60_000, 0), (60_001, 0)), False),
        (((60_000, 10_000), (55_000, 4_000), (52_000, 0)), True),
        (((60_000, 10_000), (55_000, 4_000), (50_500, 0)), False),  # all must agree on one number
    ],
)
def test_counts_are_alike_where_one_number_is_within_the_uncertainty_of_all(counts, are_alike):
    assert have_common_number([SampleCount(*it) for it in counts]) is are_alike


def test_what_the_last_batches_may_lack_is_in_the_error_per_sample():
    """128 batches of 32 may be 3,970 to 4,096 samples; two of 512 may be 514 to 1,024."""
    found = compared(simulated("1", 32, epochs=2, steps=64), simulated("2", 512, epochs=2, steps=1))
    assert found.work.per == "sample"
    for quantity in ("time/sample", "energy/sample"):
        ratio = found.get(quantity).ratio
        assert ratio.high / ratio.mean > 2.5
        assert ratio.low < ratio.mean / 2.5


def test_the_uncertainty_of_one_count_cancels_where_both_sides_have_it():
    found = compared(simulated("1", 32, steps=10), simulated("2", 32, steps=10, time_s=60.0))
    assert found.get("time/sample").ratio.mean == pytest.approx(0.6)
    assert found.get("time/sample").ratio.low is None


def test_more_runs_do_not_make_the_sample_count_surer():
    few, many = (
        compare_runs(
            side("a", *(simulated(f"a{i}", 32, steps=64, time_s=100 + i % 2) for i in range(n))),
            side("b", *(simulated(f"b{i}", 64, steps=2, time_s=10 + i % 2 / 10) for i in range(n))),
        ).get("time/sample").ratio
        for n in (2, 40)
    )  # fmt: skip
    assert few.high / few.mean > 1.5
    assert many.high / many.mean > 1.5


QS = ("time", "power", "edp")


def trained_in_batches(batch, steps, *, time_s):
    setting = limit(300, batch_size=str(batch))
    trials = []
    for block in range(3):
        one = trial(setting, block, time_s, 90 * time_s)
        work = {name: Work(n, time_s, one.energy) for name, n in (("step", steps), ("epoch", 1))}
        trials.append(replace(one, spans=work))
    return sweep(trials, setting)


def test_sweeps_per_sample_have_the_uncertainty_of_their_counts():
    a, b = trained_in_batches(32, 100, time_s=100.0), trained_in_batches(640, 2, time_s=40.0)
    found = compare_sweeps(a, b)
    assert found.work.per == "sample"
    ratio = found.choices[0].time.ratio
    assert ratio.high / ratio.mean > 1.5  # 1,280 samples may be 641


def test_the_number_of_samples_cancels_in_a_power_and_counts_twice_in_an_edp():
    a, b = trained_in_batches(32, 100, time_s=100.0), trained_in_batches(32, 50, time_s=9.0)
    of_setting = compare_sweeps(a, b).settings[0]
    widths = {q: np.log(of_setting.get(q).ratio.high / of_setting.get(q).ratio.mean) for q in QS}
    assert widths["power"] == pytest.approx(0, abs=1e-9)
    assert widths["edp"] == pytest.approx(2 * widths["time"], rel=1e-6)
    assert widths["time"] > 0.02  # 1,600 samples may be 1,569


def runs_of(samples=None, epochs=None, *, scale=1.0, **reported):
    def spans(time_s, energy):
        counts = {"sample": samples, "epoch": epochs}
        return {name: Work(n, time_s, energy) for name, n in counts.items() if n}

    trials = []
    for block in range(3):
        one = trial(limit(300), block, scale * (100.0 + block), scale * (9000.0 + block))
        trials.append(
            type(one)(**{**vars(one), "spans": spans(one.time_s, one.energy)}),
        )
    made_of = sweep(trials, limit(300))
    return type(made_of)(**{**vars(made_of), **reported})


def test_sweeps_of_other_numbers_of_samples_are_compared_per_sample():
    found = compare_sweeps(runs_of(100_000), runs_of(32_000, scale=0.4))
    (setting,) = found.settings
    assert found.a.per == found.b.per == "sample"
    assert setting.get("energy").ratio.mean == pytest.approx(0.4 / 0.32)
    assert setting.get("energy").verdict is CompareOutcome.MORE
    assert setting.get("power").ratio.mean == pytest.approx(1)
    assert found.choices[0].energy.ratio.mean == pytest.approx(0.4 / 0.32)


def test_sweeps_of_other_numbers_of_epochs_are_compared_per_epoch():
    found = compare_sweeps(runs_of(epochs=2), runs_of(epochs=1, scale=0.5))
    assert found.a.per == "epoch"
    assert found.settings[0].get("energy").ratio.mean == pytest.approx(1)


def test_sweeps_that_do_not_tell_their_work_say_so():
    assert work_codes(compare_sweeps(runs_of(), runs_of())) == [CompareWarningCode.WORK_NOT_KNOWN]
    assert work_codes(compare_sweeps(runs_of(9), runs_of(9))) == []


def test_the_same_command_did_the_same_work_however_long_it_took():
    asked = {"command": ["python", "until_converged.py"]}
    found = compare_sweeps(runs_of(epochs=2, asked=asked), runs_of(epochs=3, asked=asked))
    assert found.a.per == "run"
    assert work_codes(found) == []


def validated(run_id, *times_s, **changed):
    run = made(run_id, **changed)
    spans = tuple(
        replace(run.result.run, span=Span("validation", at, round(s * S), round((s + 1) * S)))
        for at, s in enumerate(times_s)
    )
    return replace(run, result=replace(run.result, spans=(*run.result.spans, *spans)))


def test_epochs_with_their_validation_are_not_compared_with_epochs_without():
    within, outside = validated("1", 40), validated("2", 120, time_s=110.0)
    found = compared(within, outside)
    reason = "the validations lie within epochs in A, outside epochs in B"
    assert found.get("energy/epoch").reason == reason
    assert found.get("time/epoch").verdict is CompareOutcome.NOT_COMPARABLE
    assert CompareWarningCode.DIFFERENT_EPOCHS in [it.code for it in found.warnings]
    assert found.get("energy").ratio is not None
    assert ("validations", ("within epochs",), ("outside epochs",)) in [
        (it.what, it.a, it.b) for it in found.differences
    ]


def test_epochs_that_all_contain_their_validation_are_compared():
    found = compared(validated("1", 40), validated("2", 30))
    assert found.get("time/epoch").ratio is not None
    assert CompareWarningCode.DIFFERENT_EPOCHS not in [it.code for it in found.warnings]


def test_epochs_that_were_broken_off_are_told_of():
    run = made("2")
    run.result.details["spans"]["epoch"]["unfinished"] = 1
    (warning,) = [
        it for it in compared(made("1"), run).warnings if it.code is CompareWarningCode.UNFINISHED
    ]
    assert warning.message == "B has unfinished epochs: 1 of 2"


def test_another_number_of_steps_of_one_batch_size_is_other_work():
    """Half the data with the same batch size."""
    size = command("--batch-size", "32")
    half = {"energies": {"gpu0": joules(10_000.0)}, "time_s": 50.0}
    found = compared(made("1", steps=16, **size), made("2", steps=8, **half, **size))
    assert (found.work.per, found.work.is_same, found.work.unit) == ("step", False, "step")
    assert (found.work.a, found.work.b) == ((32,), (16,))
    assert work_codes(found) == [CompareWarningCode.DIFFERENT_WORK]
    assert found.get("energy/step").ratio.mean == pytest.approx(1)
    reason = "an epoch has 16 steps in A, 8 in B, at the same batch size"
    assert found.get("energy/epoch").reason == reason


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [
        ({}, {"energies": {"gpu0": joules(10_000.0), "gpu1": joules(10_000.0)}}),
        ({}, command("--batch-size", "32", "--accumulate_grad_batches=2")),
        ({}, command()),
    ],
    ids=["GPUs", "accumulation", "not stated"],
)
def test_steps_that_may_be_of_another_size_say_nothing_of_the_work(of_a, of_b):
    size = command("--batch-size", "32")
    found = compared(
        made("1", steps=16, **{**size, **of_a}), made("2", steps=8, **{**size, **of_b})
    )
    assert (found.work.unit, found.work.is_same) == ("epoch", True)
    assert found.get("time/step").ratio is None


def test_epochs_of_as_many_steps_are_compared_per_epoch():
    size = command("--batch-size", "32")
    found = compared(made("1", steps=16, **size), made("2", epochs=3, steps=16, **size))
    assert (found.work.per, found.work.unit) == ("epoch", "epoch")


def test_epochs_on_one_side_only_leave_the_work_unknown():
    found = compared(made("1", epochs=2), made("2", epochs=0))
    assert (found.work.per, found.work.is_same) == ("run", None)
    assert work_codes(found) == [CompareWarningCode.WORK_NOT_KNOWN]
    assert "A has 2 epochs, B none" in found.warnings[-1].message
    assert work_codes(compared(made("1", epochs=0), made("2", epochs=0))) == []


def with_warning(run, code, message="of it", device=None):
    warning = QualityWarning(code, message, "a hint", device)
    return replace(run, result=replace(run.result, warnings=(warning,)))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (WarningCode.DAMAGED, "marks/1.marks is damaged: it has 3 of 5 bytes"),
        (WarningCode.SPANS_LOST, "spans in 1.marks were lost"),
    ],
)
@pytest.mark.parametrize("which", ["A", "B"])
def test_with_damaged_marks_the_work_is_not_known(code, message, which):
    runs = {"A": made("1", steps=16), "B": made("2", steps=16)}
    assert compared(*runs.values()).work.is_same is True
    runs[which] = with_warning(runs[which], code, message)
    found = compared(*runs.values())
    assert (found.work.per, found.work.is_same) == ("run", None)
    assert work_codes(found) == [CompareWarningCode.WORK_NOT_KNOWN]
    assert f"marks of {which} are damaged" in found.warnings[-1].message


@pytest.mark.parametrize("code", sorted(DOUBTFUL))
def test_warnings_that_put_figures_in_doubt_are_repeated(code):
    damaged = with_warning(made("2"), code)
    for a, b, name in ((made("1"), damaged, "B"), (damaged, made("1"), "A")):
        (caution,) = [
            it for it in compared(a, b).warnings if it.code is CompareWarningCode.RUN_WARNING
        ]
        assert caution.message == f"figures of {name} may be wrong: 2, {code.value}: of it"
        assert caution.hint == "a hint"


@pytest.mark.parametrize(("device", "times"), [("gpu0", 1), ("node1/gpu0", 1), ("cpu0", 0)])
def test_a_shared_gpu_is_told_of_and_a_shared_cpu_is_not(device, times):
    shared = with_warning(made("2"), WarningCode.OTHER_PROCESSES, device=device)
    codes = [it.code for it in compared(made("1"), shared).warnings]
    assert codes.count(CompareWarningCode.RUN_WARNING) == times


def test_a_damaged_run_among_the_trials_of_a_sweep_is_told_of():
    sound = [trial(limit(w), i, 10.0, 1_000.0 + w, run=f"r{i}") for i in (0, 1) for w in (200, 300)]
    damaged = [replace(sound[0], warnings=("file_damaged", "no_marks")), *sound[1:]]
    assert SweepWarningCode.RUN_WARNING not in sweep_codes(sound)
    assert SweepWarningCode.RUN_WARNING in sweep_codes(damaged)
    whole, other = sweep(sound, limit(300)), sweep(damaged, limit(300))
    found = compare_sweeps(whole, replace(other, id="other"), (), View())
    (caution,) = [it for it in found.warnings if it.code is CompareWarningCode.RUN_WARNING]
    assert "figures of B may be wrong: 1 of its runs" in caution.message
    assert "file_damaged" in caution.message
    assert "no_marks" not in caution.message


def sweep_codes(trials):
    return [it.code for it in evaluate(sweep(trials, limit(300)), (), View()).warnings]

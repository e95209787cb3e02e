"""Loops on real torch: each case of scripts/torch_cases.py, by the spans it left."""

import sys
from collections import Counter

from tests.helpers.hooked_programs import assert_between, untimed

# Epochs, validations and steps of each.
MARKED = {
    "persistent_workers": (2, 2, 6),
    "new_loader_each_epoch": (3, 0, 9),
    "pickled_loader": (1, 0, 3),
    "optimizer_each_epoch": (2, 0, 6),
    "two_optimizers": (1, 0, 3),
    "accumulated": (2, 0, 4),
    "scaler_skips": (1, 0, 2),
    "lbfgs": (0, 0, 2),
    "broken_off": (2, 0, 6),
    "zipped_and_cycled": (2, 0, 6),
    "looked_into": (1, 0, 3),
    "by_hand": (0, 0, 3),
    "compiled_model": (1, 0, 3),
    "compiled_optimizer": (0, 0, 0),
    "failing_data": (1, 0, 1),
}


def test_loops_leave_their_spans_and_notice_nothing(execute):
    done = execute("torch_cases.py")
    assert done.exit_code == 0, done.stderr
    cases = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("case ")]
    seen = {}
    for name, *times in cases:
        begin_ns, end_ns = map(int, times)
        within = [span for span in done.spans if begin_ns <= span.start_ns < end_ns]
        assert all(span.end_ns <= end_ns and span.closed for span in within), name
        counted = Counter(span.name for span in within)
        seen[name] = (counted["epoch"], counted["validation"], counted["step"])
    assert seen == MARKED
    assert len(list((done.run / "marks").glob("*.marks"))) == 1  # a loader's workers write nothing

    bare = execute("torch_cases.py", hooks=False)
    assert not bare.spans
    assert untimed(bare.stdout) == untimed(done.stdout)


def test_epochs_and_validations_are_where_the_program_says(execute):
    done = execute("plain.py")
    assert (done.exit_code, done.stderr) == (0, "")
    assert_between(done.named("epoch"), done.said("epoch"))
    assert_between(done.named("validation"), done.said("validation"))
    assert done.indices("epoch") == done.indices("validation") == [0, 1]
    assert done.indices("step") == list(range(16))
    (training,) = done.named("training")
    assert training.start_ns == done.named("epoch")[0].start_ns
    assert training.end_ns == done.named("validation")[-1].end_ns


def test_the_same_weights_with_and_without_hooks(execute):
    hooked, bare = execute("plain.py"), execute("plain.py", hooks=False)
    assert "weights" in bare.stdout
    assert untimed(hooked.stdout) == untimed(bare.stdout)


def test_what_trains_nothing_leaves_nothing(execute):
    done = execute(sys.executable, "-c", "import torch; print(torch.ones(2).sum().item())")
    assert (done.stdout, done.stderr) == ("2.0\n", "")
    assert list((done.run / "marks").glob("*.marks")) == []

"""Every process of a command: launchers, ranks, forks."""

import sys
from pathlib import Path

from tests.helpers.hooked_programs import SCRIPTS, assert_between

TOOLS = Path(sys.executable).parent


def test_the_ranks_of_torchrun_are_one_training(execute):
    launch = [TOOLS / "torchrun", "--standalone", "--nproc-per-node=2"]
    done = execute(*launch, SCRIPTS / "distributed.py")
    assert done.exit_code == 0, done.stderr
    assert len(list((done.run / "marks").glob("*.marks"))) == 2
    (training,) = done.named("training")
    said = done.said("epoch")
    assert len(said) == 4
    for span in done.named("epoch"):
        announced_ns, first_ns, last_ns, over_ns = zip(
            *(times for epoch, *times in said if epoch == span.index), strict=True
        )
        # From the first rank that begins to the last one that ends.
        assert min(announced_ns) <= span.start_ns <= min(first_ns)
        assert max(last_ns) <= span.end_ns <= max(over_ns)
    assert done.indices("epoch") == [0, 1]
    assert done.indices("step") == list(range(8))
    assert training.closed


def test_a_loop_on_accelerate(execute):
    options = ["--cpu", "--num_processes=1", "--num_machines=1", "--mixed_precision=no"]
    launch = [TOOLS / "accelerate", "launch", *options, "--dynamo_backend=no"]
    done = execute(*launch, SCRIPTS / "accelerated.py")
    assert done.exit_code == 0, done.stderr
    assert_between(done.named("epoch"), done.said("epoch"))
    # Its loaders fetch one batch ahead: the last one's work belongs to the validation too.
    assert_between(done.named("validation"), done.said("validation"))
    assert done.indices("step") == list(range(8))


def test_limited_epochs_on_accelerate_are_whole_and_one_that_fails_is_not(execute):
    done = execute("accelerated_limited.py")
    assert done.exit_code == 1
    assert [span.closed for span in done.named("epoch")] == [True, True, False]


def test_in_a_notebook_a_cell_that_failed_cuts_no_epoch_of_a_later_one(execute):
    done = execute("notebook.py")
    assert "ZeroDivisionError" in done.stdout
    assert [span.closed for span in done.named("epoch")] == [True, True, True]
    assert done.indices("step") == list(range(9))


def test_processes_that_the_program_starts(execute):
    done = execute("processes.py")
    assert done.exit_code == 0, done.stderr
    epochs = {}
    for line in done.stdout.splitlines():
        name, pid, end_ns = line.split()
        own = [span for span in done.spans if span.pid == int(pid)]
        epochs[name] = [span.index for span in own if span.name == "epoch"]
        (training,) = [span for span in own if span.name == "training"]
        assert training.closed
        assert training.index == 0
        assert training.end_ns <= int(end_ns)
    assert epochs == {"parent": [0], "fork": [0, 1], "spawn": [0, 1, 2], "forkserver": [0, 1, 2, 3]}


def test_a_killed_training_keeps_what_it_marked(execute):
    done = execute("killed.py")
    assert done.exit_code == -9
    epoch, last = done.named("epoch")
    assert epoch.closed
    assert not last.closed
    assert len(done.named("step")) == 5
    assert last.end_ns == done.named("step")[-1].end_ns
    assert not done.named("training")[0].closed

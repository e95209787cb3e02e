"""What a loop's events mean: loaders, batches and updates by a clock that the test turns."""

import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.hooks.plain_loop import PlainLoop


class Written:
    """Marks as a list, in place of a file; the writer has tests of its own."""

    def __init__(self):
        self.spans = []
        self.cut = []

    def begin(self, name, index, *, t_ns, guessed):
        assert guessed
        self.spans.append([name, index, t_ns, None])
        return len(self.spans) - 1

    def end(self, token, t_ns, *, cut=False):
        self.spans[token][3] = t_ns
        if cut:
            self.cut.append(tuple(self.spans[token][:2]))

    def whole(self, name, start_ns, end_ns, index, *, guessed):
        assert guessed
        self.spans.append([name, index, start_ns, end_ns])


class Thing:
    """An iterator, an optimiser or a weight: only its identity matters."""


class Optimizer:
    def __init__(self, *weights):
        self.weights = weights or (Thing(),)


class Program:
    """A program in slow motion: each event takes one tick."""

    def __init__(self, kind=PlainLoop):
        self.t, self.told, self.trainings = 0, False, 0
        self.marks = Written()
        self.loop = kind(
            self.marks, self._next, lambda: self.told, lambda of: of.weights, lambda: self.t
        )
        self.adam = Optimizer()

    def _next(self):
        self.trainings += 1
        return self.trainings - 1

    def tick(self):
        self.t += 1
        return self.t

    def begin(self, iterator=None):
        self.tick()
        return self.loop.pass_begins(iterator)

    def batch(self, *passes):
        for fed in passes:
            self.tick()
            self.loop.batch(fed)

    def update(self, *optimizers):
        for optimizer in optimizers or (self.adam,):
            self.loop.update_begins()
            self.tick()
            self.loop.update_ends(optimizer)

    def end(self, *passes):
        for ended in passes:
            self.tick()
            self.loop.pass_ends(ended)

    def epoch(self, batches=2, *optimizers):
        training = self.begin()
        for _ in range(batches):
            self.batch(training)
            self.update(*optimizers)
        self.end(training)

    def validate(self, batches=2):
        held_out = self.begin()
        self.batch(*[held_out] * batches)
        self.end(held_out)

    def spans(self, name):
        self.loop.end_training()
        return [(index, start, end) for n, index, start, end in self.marks.spans if n == name]


@pytest.fixture
def program():
    return Program()


def test_an_epoch_is_one_pass_over_the_loader(program):
    program.epoch()
    program.epoch()
    assert program.spans("epoch") == [(0, 1, 6), (1, 7, 12)]
    assert program.spans("step") == [(0, 1, 3), (1, 3, 5), (2, 7, 9), (3, 9, 11)]
    assert program.spans("training") == [(0, 1, 12)]
    assert program.spans("validation") == []


def test_a_pass_with_no_update_is_a_validation(program):
    program.epoch()
    program.validate()
    program.epoch()
    assert program.spans("validation") == [(0, 7, 10)]
    assert program.spans("epoch") == [(0, 1, 6), (1, 11, 16)]
    assert program.spans("training") == [(0, 1, 16)]


def test_a_validation_within_an_epoch_belongs_to_no_step(program):
    training = program.begin()
    program.batch(training)
    program.update()
    program.validate()
    program.batch(training)
    program.update()
    program.end(training)
    assert program.spans("epoch") == [(0, 1, 10)]
    assert program.spans("validation") == [(0, 4, 7)]
    assert program.spans("step") == [(0, 1, 3), (1, 7, 9)]


def test_looking_at_data_before_a_training_is_nothing(program):
    program.validate()
    program.begin()
    assert program.marks.spans == []
    assert program.spans("training") == []


def test_gradients_accumulated_over_batches_are_one_step(program):
    training = program.begin()
    for _ in range(2):
        program.batch(training, training)
        program.update()
    program.end(training)
    assert program.spans("step") == [(0, 1, 4), (1, 4, 7)]


def test_two_optimisers_in_turns_are_one_step(program):
    generator, critic = Optimizer(), Optimizer()
    program.epoch(3, critic, generator)
    assert len(program.spans("step")) == 3
    assert len(program.spans("training")) == 1


def test_the_optimiser_that_updates_most_sets_the_pace(program):
    generator, critic = Optimizer(), Optimizer()
    program.epoch(4, generator, critic, critic, critic)
    assert len(program.spans("step")) == 1 + 2 + 3 * 3  # the generator's first, then the critic's


def test_one_optimiser_for_each_weight_is_one_step(program):
    program.epoch(3, *(Optimizer() for _ in range(50)))
    assert len(program.spans("step")) == 3


def test_steps_without_a_loader_have_no_epochs(program):
    for _ in range(3):
        program.tick()
        program.update()
    assert program.spans("step") == [(0, 1, 2), (1, 2, 4), (2, 4, 6)]
    assert program.spans("epoch") == []
    assert program.spans("training") == [(0, 1, 6)]


def test_a_loop_that_breaks_off_ends_its_epoch_with_the_last_update(program):
    for _ in range(2):
        iterator = Thing()
        training = program.begin(iterator)
        program.batch(training)
        program.update()
        program.batch(training)
        del iterator
        gc.collect()
        program.tick()
    assert program.spans("epoch") == [(0, 1, 3), (1, 6, 8)]
    assert program.spans("validation") == []


def test_an_iterator_that_is_kept_after_a_break_is_over_when_another_feeds(program):
    kept = []
    for _ in range(2):
        kept.append(Thing())
        training = program.begin(kept[-1])
        program.batch(training)
        program.update()
    assert program.spans("epoch") == [(0, 1, 3), (1, 4, 6)]


def test_a_validation_that_breaks_off_at_the_end_is_kept(program):
    program.epoch()
    iterator = Thing()
    held_out = program.begin(iterator)
    program.batch(held_out, held_out)
    del iterator
    gc.collect()
    assert program.spans("validation") == [(0, 7, 9)]
    assert program.spans("training") == [(0, 1, 9)]


def test_a_validation_that_breaks_off_ends_when_its_iterator_goes(program):
    program.epoch()
    iterator = Thing()
    held_out = program.begin(iterator)
    program.batch(held_out, held_out)
    program.tick()
    del iterator
    gc.collect()
    program.tick()
    program.epoch()
    assert program.spans("validation") == [(0, 7, 10)]


def test_one_batch_taken_to_look_at_is_no_validation(program):
    program.epoch()
    iterator = Thing()
    program.batch(program.begin(iterator))
    del iterator
    gc.collect()
    program.epoch()
    assert program.spans("validation") == []
    assert len(program.spans("epoch")) == 2


def test_an_iterator_that_was_looked_into_before_does_not_feed(program):
    sample = Thing()
    program.batch(program.begin(sample))
    program.epoch()
    program.epoch()
    assert program.spans("epoch") == [(0, 3, 8), (1, 9, 14)]


def test_of_loaders_read_together_the_outer_one_makes_the_epoch(program):
    for _ in range(2):
        labelled, unlabelled = program.begin(), program.begin()
        for _ in range(2):
            program.batch(labelled, unlabelled)
            program.update()
        program.end(labelled)
        program.loop.pass_abandoned(unlabelled)
    assert program.spans("epoch") == [(0, 1, 9), (1, 10, 18)]
    assert program.spans("validation") == []


@pytest.mark.parametrize("length", [1, 2, 3, 5])
def test_a_second_loader_that_cycles_makes_no_epochs(program, length):
    second = None
    for _ in range(3):
        first = program.begin()
        for _ in range(4):
            program.batch(first)
            if second is None or second.batches == length:
                if second is not None:
                    program.end(second)
                second = program.begin()
            program.batch(second)
            program.update()
        program.end(first)
    assert [index for index, *_ in program.spans("epoch")] == [0, 1, 2]
    assert program.spans("validation") == []


def test_tasks_in_turns_are_one_epoch(program):
    tasks = [program.begin(), program.begin()]
    for turn in range(6):
        program.batch(tasks[turn % 2])
        program.update()
    program.end(*tasks)
    assert program.spans("epoch") == [(0, 1, 15)]
    assert len(program.spans("step")) == 6


@pytest.mark.parametrize("batches", [2, 5])
def test_a_loop_one_batch_ahead_has_its_last_update_in_the_epoch(program, batches):
    for _ in range(2):
        training = program.begin()
        program.batch(training)
        for _ in range(batches - 1):
            program.batch(training)
            program.update()
        program.end(training)
        program.update()
    length = 2 * batches + 2
    epochs = [(0, 1, length), (1, length + 1, 2 * length)]
    assert program.spans("epoch") == epochs
    assert len(program.spans("step")) == 2 * batches


def test_a_loader_that_was_open_all_along_may_feed_after_the_last_update(program):
    later, training = program.begin(), program.begin()
    program.batch(training)
    for _ in range(3):
        program.batch(training)
        program.update()
    program.end(training)
    program.update()
    program.batch(later)
    program.update()
    program.end(later)
    assert [index for index, *_ in program.spans("epoch")] == [0, 1]


def test_batches_from_a_cycle_that_remembers_them_end_the_epochs(program):
    program.epoch()
    program.update()
    program.update()
    assert program.spans("epoch") == [(0, 1, 6)]
    assert len(program.spans("step")) == 4


def test_a_closure_that_reads_the_loader_within_an_update_is_a_step(program):
    for _ in range(2):
        program.loop.update_begins()
        program.validate()
        program.loop.update_ends(program.adam)
    assert program.spans("validation") == program.spans("epoch") == []
    assert len(program.spans("step")) == 2


def test_an_update_that_failed_is_none(program):
    training = program.begin()
    program.batch(training)
    program.loop.update_begins()
    program.batch(training)
    program.update()
    program.end(training)
    program.epoch()
    assert len(program.spans("step")) == 3
    assert len(program.spans("epoch")) == 2


def test_other_weights_in_a_new_pass_are_another_training(program):
    for _ in range(2):
        optimizer = Optimizer()
        program.epoch(2, optimizer)
        program.epoch(2, optimizer)
    assert program.spans("training") == [(0, 1, 12), (1, 13, 24)]
    assert [index for index, *_ in program.spans("epoch")] == [0, 1, 0, 1]
    assert [index for index, *_ in program.spans("step")] == [0, 1, 2, 3] * 2


def test_a_new_optimiser_of_the_same_weights_goes_on_with_the_training(program):
    head, body = Thing(), Thing()
    program.epoch(2, Optimizer(head))
    program.epoch(2, Optimizer(body, head))
    program.epoch(2, Optimizer(head))
    assert [index for index, *_ in program.spans("epoch")] == [0, 1, 2]
    assert len(program.spans("training")) == 1


def test_without_a_loader_a_training_ends_when_its_optimisers_are_gone(program):
    for _ in range(2):
        program.update(Optimizer())
        program.validate()
    assert len(program.spans("training")) == 2
    assert program.spans("validation") == []


def test_what_a_trainer_tells_is_not_guessed_as_well(program):
    program.told = True
    assert program.begin() is None
    program.update()
    assert program.marks.spans == []
    program.told = False
    program.epoch()
    assert len(program.spans("epoch")) == 1


def test_nothing_of_the_parent_is_in_a_fork(program):
    training = program.begin()
    program.batch(training)
    program.update()
    program.loop.forget()
    program.marks.spans.clear()
    program.epoch()
    assert len(program.spans("epoch")) == len(program.spans("training")) == 1


class NeverSteady(PlainLoop):
    """Finds out everything anew at every update."""

    _steady = property(lambda _: False, lambda *_: None)


EVENTS = st.tuples(
    st.sampled_from(["begin", *["step"] * 4, "batch", "update", "end", "drop", "told"]),
    st.integers(0, 2),
)


def play(program, events):
    """Loaders and optimisers, three of each; a step is a batch and the first one's update."""
    passes, iterators = {}, {}
    optimizers = [program.adam, Optimizer(), Optimizer()]
    for event, which in events:
        if event == "begin":
            iterators[which] = Thing()
            passes[which] = program.begin(iterators[which])
        if event in {"batch", "step"} and which in passes:
            program.batch(passes[which])
        if event == "step":
            program.update()
        elif event == "update":
            program.update(optimizers[which])
        elif event == "end" and which in passes:
            program.end(passes.pop(which))
        elif event == "drop" and which in iterators:
            program.tick()
            del iterators[which]
            passes.pop(which, None)
        elif event == "told":
            program.loop.end_training()
            program.told = True
            program.update(optimizers[which])
            program.told = False
    program.loop.end_training()
    return program.marks.spans


@settings(max_examples=500)
@given(st.lists(EVENTS, max_size=60))
def test_a_steady_loop_is_marked_as_one_that_is_looked_at_anew(events):
    assert play(Program(), events) == play(Program(NeverSteady), events)


def broken_off(program, batches):
    """An epoch whose iterator is gone before its loader was read to the end."""
    iterator = Thing()
    training = program.begin(iterator)
    for _ in range(batches):
        program.batch(training)
        program.update()
    del iterator


def test_an_epoch_that_was_broken_off_sooner_than_others_is_cut():
    program = Program()
    program.epoch(4)
    broken_off(program, 2)
    program.loop.end_training()
    assert program.marks.cut == [("epoch", 1)]


def test_epochs_that_all_stop_at_the_same_batch_are_whole():
    program = Program()
    for _ in range(3):
        broken_off(program, 2)
    program.loop.end_training()
    assert program.marks.cut == []


def fail_unhandled(monkeypatch):
    """What Python and IPython leave behind after an error that nobody handled."""
    error = KeyboardInterrupt()
    monkeypatch.setattr("sys.last_type", type(error), raising=False)
    monkeypatch.setattr("sys.last_value", error, raising=False)


def test_an_epoch_in_which_the_program_failed_is_cut(monkeypatch):
    program = Program()
    training = program.begin()
    program.batch(training)
    program.update()
    fail_unhandled(monkeypatch)
    program.loop.end_training()
    assert program.marks.cut == [("epoch", 0)]


def test_an_error_before_a_training_cuts_none_of_its_epochs(monkeypatch):
    """As in a notebook, where the last error is known until the next one."""
    fail_unhandled(monkeypatch)
    program = Program()
    for _ in range(3):
        broken_off(program, 2)
    program.loop.end_training()
    assert program.marks.cut == []


def test_of_a_training_after_an_error_the_epoch_that_fails_is_cut(monkeypatch):
    fail_unhandled(monkeypatch)
    program = Program()
    broken_off(program, 2)
    broken_off(program, 2)
    fail_unhandled(monkeypatch)
    broken_off(program, 2)
    program.loop.end_training()
    assert program.marks.cut == [("epoch", 1)]


def handle(error, handler):
    try:
        raise error
    except type(error):
        handler()


def test_a_training_that_handles_an_error_has_whole_epochs():
    """Such as one with smaller batches, after the memory was too small."""
    program = Program()

    def train():
        for _ in range(3):
            broken_off(program, 2)
        program.loop.end_training()

    handle(MemoryError(), train)
    assert program.marks.cut == []


def test_an_epoch_whose_error_is_being_handled_is_cut():
    program = Program()

    def train():
        broken_off(program, 2)
        handle(ValueError(), program.epoch)

    handle(MemoryError(), train)
    program.loop.end_training()
    assert program.marks.cut == [("epoch", 0)]

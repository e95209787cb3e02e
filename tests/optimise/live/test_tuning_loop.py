"""The tuner's loop: what it does with refused settings, faults, lost guardians and the end."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from joulewise.data.sweeps import Setting
from joulewise.data.tuning import (
    SavedShare,
    Saving,
    SettingSteps,
    StepEstimate,
    StepSource,
    Tuning,
    TuningEnd,
    TuningRestart,
    TuningState,
)
from joulewise.errors import DeviceError, HeldError, JoulewiseError
from joulewise.optimise.live import TuningCandidate, setting_lease
from joulewise.optimise.live.setting_lease import SettingLease
from joulewise.optimise.live.tuner_process import TuningLoop
from joulewise.optimise.live.tuning_record import find_saving
from joulewise.units import NS_PER_S

BEFORE = Setting.of({"power_limit_w": 300.0})
CHOSEN = Setting.of({"power_limit_w": 200.0})


@dataclass
class ScriptedController:
    """Wants one candidate after the other; its state and reason are set by tests."""

    wanted: int | None = None
    state: TuningState = TuningState.EXPLORING
    reason: str = "it is looking for the best setting"
    chosen: Setting | None = None
    changes: tuple = ()
    refused: list = field(default_factory=list)
    in_force: list = field(default_factory=list)
    energies: list = field(default_factory=list)
    pending: list = field(default_factory=list)
    steps: list = field(default_factory=list)
    anew: list = field(default_factory=list)
    epochs: tuple | None = None
    early_end: TuningEnd | None = None
    policy: object = field(
        default_factory=lambda: SimpleNamespace(
            candidates=[TuningCandidate(watts) for watts in (300.0, 200.0, 100.0)], reference=0
        )
    )

    def add_steps(self, steps):
        self.steps += steps

    def pending_blocks(self):
        return tuple(self.pending)

    def add_energy(self, block, energy_j):
        self.pending.remove(block)
        self.energies.append(energy_j)

    def begin_anew(self, _now_ns, reason):
        self.anew.append(reason)

    def set_in_force(self, index, _at_ns):
        self.in_force.append(index)

    def set_epochs(self, done, total, _now_ns):
        self.epochs = (done, total)

    def refuse(self, index, _at_ns, why):
        self.refused.append((index, why))
        self.wanted = 0

    def end(self, now_ns, reason="", *, is_early=False):
        self.state, self.reason = TuningState.ENDED, reason or self.reason
        self.early_end = TuningEnd(now_ns / NS_PER_S, reason) if is_early else None

    def update(self, _now_ns):
        wanted = None if self.state is TuningState.ENDED else self.wanted
        return SimpleNamespace(index=wanted, state=self.state)

    def tuning(self):
        return Tuning(
            "edp",
            ("power_limit_w",),
            self.state,
            self.chosen is not None,
            self.reason,
            BEFORE,
            chosen=self.chosen,
            changes=self.changes,
            early_end=self.early_end,
        )


@dataclass
class RecordedSettings:
    """Remembers what is set; ``error`` is raised by the next change."""

    values: list = field(default_factory=list)
    error: JoulewiseError | None = None
    gone: JoulewiseError | None = None
    close_error: JoulewiseError | None = None
    closed: int = 0

    def set(self, candidate):
        if self.error:
            raise self.error
        self.values.append(candidate.power_limit_w)

    def clear(self):
        self.values.append(None)

    def close(self):
        self.closed += 1
        if self.close_error:
            raise self.close_error

    def guardian_error(self):
        return self.gone


@dataclass
class Rig:
    controller: ScriptedController
    settings: RecordedSettings
    steps: SimpleNamespace
    said: list
    saved: list
    loop: TuningLoop
    faults: list

    def update(self, at_s):
        self.loop.update(round(at_s * NS_PER_S))


@pytest.fixture
def rig():
    return make_rig(ScriptedController())


def make_rig(controller):
    settings, said, saved, faults = RecordedSettings(), [], [], []
    steps = SimpleNamespace(
        due=[],
        lost="",
        source=StepSource.MARKS,
        is_inferred=False,
        note="",
        poll=lambda: steps.due,
        has_lost_rank=lambda _: steps.lost,
    )
    energies = SimpleNamespace(
        covered_until_ns=lambda: 10 * NS_PER_S,
        energies=lambda windows: ([float(end - start) for start, end in windows], None),
    )
    loop = TuningLoop(
        controller,
        settings,
        steps,
        energies,
        say=said.append,
        save=lambda tuning, _is_last: saved.append(tuning),
        fault=lambda _now_ns: faults[-1] if faults else "",
        epochs=lambda: (1, 9),
    )
    return Rig(controller, settings, steps, said, saved, loop, faults)


def test_what_is_wanted_is_set_once_and_let_go(rig):
    for at_s, wanted in enumerate((None, 1, 1, 2, None), 1):
        rig.controller.wanted = wanted
        rig.update(at_s)
    assert rig.settings.values == [200.0, 100.0, None]
    assert rig.controller.in_force == [1, 2, None]
    assert rig.controller.epochs == (1, 9)


def test_energies_are_told_once_they_are_covered(rig):
    early = SimpleNamespace(end_ns=4 * NS_PER_S, windows_ns=((0, 3), (5, 7)))
    late = SimpleNamespace(end_ns=11 * NS_PER_S, windows_ns=((8, 9),))
    rig.controller.pending = [early, late]
    rig.update(1)
    assert (rig.controller.energies, rig.controller.pending) == ([5.0], [late])


def test_steps_of_another_source_begin_anew(rig):
    rig.steps.source = StepSource.POWER  # the first that are known
    rig.steps.due = ["a wave"]
    rig.update(1)
    assert not rig.controller.anew
    rig.steps.source, rig.steps.due = StepSource.MARKS, ["a step"]
    rig.update(2)
    rig.update(3)
    assert rig.controller.anew == ["its steps are known by the marks of the program now"]


def test_a_refused_value_is_left_out_and_too_many_end_it(rig):
    rig.controller.wanted = 1
    rig.settings.error = DeviceError("gpu0 refuses 200 W", "")
    rig.controller.refuse = lambda *args: rig.controller.refused.append(args[0])
    rig.update(1)
    assert rig.controller.refused == [1, 1, 1, 1]
    assert rig.loop.is_over
    assert rig.controller.reason == "gpu0 refuses 200 W"
    assert rig.settings.closed == 1


def test_another_holder_ends_it_at_once(rig):
    rig.controller.wanted = 1
    rig.settings.error = HeldError("gpu0's power limit is held by another", "")
    rig.update(1)
    assert rig.loop.is_over
    assert not rig.controller.refused


def test_a_setting_in_force_is_not_taken_for_refused(monkeypatch):
    """Where only the lease of the one before it could not be released, the tuning ends."""

    class StuckLease:
        def release(self):
            raise DeviceError("gpu0 did not answer", "")

    monkeypatch.setattr(setting_lease, "lease", lambda *_, **__: StuckLease())
    settings = SettingLease(())
    settings.set(TuningCandidate(200.0))
    with pytest.raises(JoulewiseError, match="gpu0 did not answer") as raised:
        settings.set(TuningCandidate(100.0))
    controller = ScriptedController(wanted=1)
    controller.policy.candidates[1] = TuningCandidate(100.0)
    loop = make_rig(controller).loop
    loop._on_refused(1, raised.value)
    assert not controller.refused
    assert (loop.is_over, controller.reason) == (True, "gpu0 did not answer")


@pytest.mark.parametrize("what", ["fault", "rank", "guardian"])
def test_a_fault_ends_it_with_its_reason_and_puts_back(rig, what):
    rig.controller.wanted = 1
    rig.update(1)
    if what == "fault":
        rig.faults.append("it broke")
    rig.steps.lost = "it broke" if what == "rank" else ""
    rig.settings.gone = JoulewiseError("it broke", "") if what == "guardian" else None
    rig.update(2)
    rig.update(3)
    assert rig.said == ["tuning ended: it broke"]
    assert rig.settings.closed >= 1
    assert rig.saved[-1].state is TuningState.ENDED
    assert rig.saved[-1].early_end == TuningEnd(2.0, "it broke", is_restored=True)


def test_what_it_does_is_said_once(rig):
    rig.steps.due = [object()]
    rig.update(1)
    for at_s in (2, 3):
        rig.controller.state, rig.controller.chosen = TuningState.HOLDING, CHOSEN
        rig.controller.reason = "it is the best"
        rig.update(at_s)
    rig.controller.changes = (TuningRestart(5.0, "the time of a step has changed"),)
    rig.controller.state, rig.controller.reason = TuningState.EXPLORING, "it explores again"
    rig.update(4)
    assert rig.said == [
        "tuning: holding 200 W: it is the best",
        "tuning: exploring again: the time of a step has changed",
    ]


@pytest.mark.parametrize(
    ("energy", "time", "said"),
    [
        (0.2, -0.012, "saves 20.0 ± 1.0 % of the energy and takes 1.2 ± 1.0 % longer"),
        (-0.03, 0.012, "adds 3.0 ± 1.0 % of the energy and takes 1.2 ± 1.0 % less time"),
    ],
)
def test_a_faster_choice_takes_less_time(rig, energy, time, said):
    saving = Saving(SavedShare(energy, 0.01), SavedShare(time, 0.01), "trials", 0)
    made = rig.controller.tuning
    rig.controller.tuning = lambda: replace(made(), saving=saving)
    rig.update(1)
    rig.controller.state, rig.controller.chosen = TuningState.HOLDING, CHOSEN
    rig.update(3)
    assert said in rig.said[-1]


def test_while_a_setting_is_held_its_state_is_saved_every_five_seconds(rig):
    for at_s in range(1, 11):
        rig.update(at_s)
    assert len(rig.saved) == 10
    rig.controller.state = TuningState.HOLDING
    for at_s in range(11, 31):
        rig.update(at_s)
    assert len(rig.saved) == 14
    rig.controller.state = TuningState.EXPLORING
    rig.update(31)
    assert len(rig.saved) == 15


def test_without_steps_it_says_so_once_and_at_the_end(rig):
    for at_s in (1, 130, 140):
        rig.update(at_s)
    rig.loop.end(150 * NS_PER_S)
    assert len(rig.said) == 1
    assert "no steps" in rig.said[0]
    assert rig.saved[-1].reason == "the program marked no steps"
    assert rig.saved[-1].early_end is None  # the command has ended


def test_what_cannot_be_put_back_is_known(rig):
    rig.settings.close_error = DeviceError("gpu0 was not restored", "run `joulewise restore`")
    rig.update(1)
    rig.loop.end(2 * NS_PER_S)
    assert rig.loop.unrestored == ("gpu0 was not restored; run `joulewise restore`",)
    assert rig.saved[-1].notes == rig.loop.unrestored


def test_a_full_disk_does_not_end_it(rig):
    def fail(*_):
        raise OSError

    rig.loop._save = fail
    rig.update(1)
    assert not rig.loop.is_over


def test_a_saving_by_the_steps_that_were_tried():
    def steps_at(setting, time_s, energy_j, half=0.01):
        values = (StepEstimate(v, v * (1 - half), v * (1 + half)) for v in (time_s, energy_j))
        return SettingSteps(setting, 20, *values)

    known = ScriptedController(chosen=CHOSEN).tuning()
    tried = (steps_at(BEFORE, 0.1, 20.0), steps_at(CHOSEN, 0.11, 16.0))
    saving = find_saving(replace(known, tried=tried))
    assert (saving.energy.value, saving.time.value) == pytest.approx((0.2, -0.1))
    assert saving.energy.error == pytest.approx(0.8 * 0.01 * 2**0.5, rel=0.01)
    assert find_saving(known) is None
    assert find_saving(replace(known, tried=tried[:1])) is None
    assert find_saving(replace(known, tried=tried, chosen=BEFORE)) is None
    without = replace(tried[0], step_energy_j=StepEstimate(20.0))
    assert find_saving(replace(known, tried=(without, tried[1]))) is None

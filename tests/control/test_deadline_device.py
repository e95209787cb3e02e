"""A driver that hangs keeps nobody, and what it does late is not forgotten."""

import threading
from functools import partial

import pytest

from joulewise.control.deadline_device import DeadlineDevice
from joulewise.control.guardian import Guardian
from joulewise.control.holds import DeviceRequest, RestoreResult
from joulewise.data import Quantity, SensorInfo, Source, Unavailable
from joulewise.errors import DeviceError
from tests.helpers.failing_gpus import HOLDER, LIMIT, SM, Board
from tests.helpers.processes import DEADLINE_S, eventually

ANNA = object()


class Stuck(Board):
    """Its driver returns when it is ``let_go``."""

    def __init__(self, *given):
        self.free = threading.Event()
        self.free.set()
        self.calls = 0
        super().__init__(*given)

    def _get(self, control):
        self._wait()
        return super()._get(control)

    def _set(self, info, value):
        self._wait()
        super()._set(info, value)

    def _read(self, _quantity):
        self._wait()

    def _wait(self):
        self.calls += 1
        self.free.wait()


@pytest.fixture
def board():
    made = Stuck("gpu0", 240.0)
    yield made
    made.free.set()


@pytest.fixture
def prompt(board):
    made = DeadlineDevice(board, read_deadline_s=DEADLINE_S, write_deadline_s=DEADLINE_S)
    yield made
    board.free.set()
    made.close()


def hang(board, prompt):
    board.free.clear()
    prompt._reads._deadline_s = prompt._writes._deadline_s = 0.05


def let_go(board, prompt):
    board.free.set()
    prompt._writes._last_answer.exception(DEADLINE_S)
    prompt._writes._deadline_s = DEADLINE_S


def test_what_answers_in_time_is_as_it_was(board, prompt):
    prompt.set(LIMIT, 200)
    assert prompt.get(LIMIT) == board.get(LIMIT) == 200
    board.refuses = {LIMIT}
    with pytest.raises(DeviceError, match="gpu0 refuses"):
        prompt.set(LIMIT, 150)


def test_what_hangs_is_shown_and_not_requested_again_until_it_returns(board, prompt):
    hang(board, prompt)
    result = prompt.get(LIMIT)
    assert isinstance(result, Unavailable)
    assert result.reason == "gpu0's driver did not answer within 0.05 s"
    with pytest.raises(DeviceError, match="gpu0's driver still hangs"):
        prompt.set(LIMIT, 150)
    assert board.calls == 1
    let_go(board, prompt)
    assert prompt.get(LIMIT) == 240


def test_one_that_hangs_does_not_keep_the_others_and_is_restored(tmp_path, board, prompt):
    other = Board("gpu1", 260.0)
    guardian = Guardian(tmp_path, [other, prompt], lambda _: None, patience_s=0)
    guardian.lease(ANNA, HOLDER, [DeviceRequest(key, {LIMIT: 150}) for key in ("gpu1", "gpu0")])
    hang(board, prompt)
    ends = {outcome.key: outcome.end for outcome in guardian.drop(ANNA)}
    assert ends == {"gpu0": RestoreResult.FAILED, "gpu1": RestoreResult.RESTORED}
    assert not guardian.retry()
    let_go(board, prompt)
    assert guardian.retry()
    assert board.values[LIMIT] == 240


def test_a_check_that_hangs_keeps_no_setting(tmp_path, board, prompt):
    board.sensors = {quantity: SensorInfo(quantity, Source.MEASURED) for quantity in Quantity}
    board._get, board._set = partial(Board._get, board), partial(Board._set, board)
    hang(board, prompt)
    assert isinstance(prompt.read(Quantity.POWER), Unavailable)
    prompt._writes._deadline_s = DEADLINE_S
    guardian = Guardian(tmp_path, [prompt], lambda _: None, patience_s=0)
    guardian.lease(ANNA, HOLDER, [DeviceRequest("gpu0", {LIMIT: 150})])
    guardian.retry()
    assert guardian.drop(ANNA)[0].end is RestoreResult.RESTORED


@pytest.mark.parametrize(("control", "value"), [(LIMIT, 150), (SM, 1000)])
def test_what_is_set_late_goes_back(tmp_path, board, prompt, control, value):
    before = board.values[control]
    guardian = Guardian(tmp_path, [prompt], lambda _: None, patience_s=0)
    board._get = partial(Board._get, board)  # only the setter hangs
    hang(board, prompt)
    with pytest.raises(DeviceError, match="did not answer"):
        guardian.lease(ANNA, HOLDER, [DeviceRequest("gpu0", {control: value})])
    assert board.values[control] == before
    let_go(board, prompt)
    assert board.values[control] == value
    assert guardian.retry()
    assert board.values[control] == before


def test_who_closes_it_is_not_stored_and_its_threads_end(prompt):
    prompt.get(LIMIT)
    before = threading.active_count()
    prompt.close()
    eventually(lambda: threading.active_count() < before)
    stuck = DeadlineDevice(other := Stuck("gpu1"))
    hang(other, stuck)
    stuck.get(LIMIT)
    stuck.close()
    other.free.set()

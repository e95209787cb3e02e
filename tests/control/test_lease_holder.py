"""Leases as a program holds them: threads, forks, exits, and a guardian that is killed."""

import json
import subprocess
import sys

from tests.helpers.processes import JOULEWISE

PRELUDE = """
import gc, json, os, signal, sys, threading, time
from pathlib import Path
import pynvml
from joulewise import control
from joulewise.errors import JoulewiseError

pynvml.nvmlInit()
STATE = Path(os.environ["JOULEWISE_STATE"])

def limits():
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(2)]
    return [pynvml.nvmlDeviceGetPowerManagementLimit(handle) // 1000 for handle in handles]

def guardians():
    return [int(path.name.split("-")[0]) for path in STATE.glob("leases/*.journal")]

def kill_guardian():
    (pid,) = guardians()
    os.kill(pid, signal.SIGKILL)
    return pid

def eventually(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)

def in_child(what):
    pid = os.fork()
    if not pid:
        try:
            what()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

for index, watts in enumerate((280, 260)):
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, watts * 1000)
"""


def tells(code):
    """What a program with two simulated GPUs, at 280 and 260 W, prints as JSON."""
    simulation = [*JOULEWISE, "sim", "--gpu", "v100x2", "--as-root", "--"]
    sim = [*simulation, sys.executable, "-c", PRELUDE + code]
    done = subprocess.run(sim, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_back_at_the_end_of_the_block():
    payload = tells("""
with control.lease(["gpu0", "gpu1"], power_limit_w=200):
    inside = limits()
print(json.dumps([inside, limits()]))
""")
    assert payload == [[200, 200], [280, 260]]


def test_a_guardian_that_is_killed_is_followed_by_one_that_puts_things_back():
    payload = tells("""
one, two = (control.lease(key, power_limit_w=200) for key in ("gpu0", "gpu1"))
kill_guardian()
outcomes = one.release()
after = limits()
late = two.release()
with control.lease("gpu0", power_limit_w=150):
    again = limits()
print(json.dumps([
    sorted(outcome.key for outcome in outcomes), after, late, one.notes, two.notes, again, limits()
]))
""")
    keys, after, late, *notes, again, end = payload
    assert (keys, after, late) == (["gpu0", "gpu1"], [280, 260], [])
    assert all(len(each) == 1 and "was killed" in each[0] for each in notes)
    assert (again, end) == ([150, 260], [280, 260])


def test_a_lease_from_a_killed_guardian_is_an_error_that_shows_what_became_of_the_others():
    payload = tells("""
control.lease("gpu0", power_limit_w=200)
kill_guardian()
try:
    control.lease("gpu1", power_limit_w=200)
except JoulewiseError as error:
    said = [error.message, error.hint]
print(json.dumps([said, limits()]))
""")
    (message, hint), after = payload
    assert "restored them" in message
    assert hint == "take the leases again"
    assert after == [280, 260]


def test_a_child_neither_ends_its_parents_leases_nor_outlives_them():
    payload = tells("""
lease = control.lease("gpu0", power_limit_w=200)
in_child(lease.release)
in_child(lambda: lease.__exit__(None, None, None))
in_child(gc.collect)
after_children = limits()

def take_another():
    with control.lease("gpu1", power_limit_w=150):
        assert limits() == [200, 150]

taken = in_child(take_another)
sleeper = os.fork()
if not sleeper:
    signal.pause()
eventually(lambda: len(guardians()) == 1)  # the other child's has ended
lease.release()
eventually(lambda: not guardians())  # the line is closed, though the child is still there
os.kill(sleeper, signal.SIGKILL)
print(json.dumps([after_children, taken, limits()]))
""")
    assert payload == [[200, 260], 0, [280, 260]]


def test_a_child_is_not_stopped_by_a_lock_that_a_thread_held():
    payload = tells("""
from joulewise.control import lease as module
lease = control.lease("gpu0", power_limit_w=200)
line = lease._connection
with line._lock:
    ended = in_child(lease.release)
lease.release()
print(json.dumps([ended, limits()]))
""")
    assert payload == [0, [280, 260]]


def test_threads_share_the_line():
    payload = tells("""
wrong = []

def work(key):
    for watts in (200, 180, 160):
        with control.lease(key, power_limit_w=watts) as lease:
            if lease.enforced[key]["power_limit_w"] != watts:
                wrong.append(key)

threads = [threading.Thread(target=work, args=[f"gpu{i % 2}"]) for i in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps([wrong, limits()]))
""")
    assert payload == [[], [280, 260]]


def test_who_forgets_a_lease_has_it_put_back_at_the_end():
    payload = tells("""
import subprocess
code = "from joulewise import control; control.lease('gpu0', power_limit_w=150)"
subprocess.run([sys.executable, "-c", code], check=True)
eventually(lambda: limits() == [280, 260])
print(json.dumps(limits()))
""")
    assert payload == [280, 260]


def test_an_error_in_the_block_is_the_one_that_is_raised():
    payload = tells("""
try:
    with control.lease("gpu0", power_limit_w=200):
        os.environ["SLURM_JOB_ID"] = "1"  # so that there is no other guardian to be had
        kill_guardian()
        raise KeyError("mine")
except KeyError as error:
    print(json.dumps(error.args))
""")
    assert payload == ["mine"]


def test_a_device_that_is_named_twice():
    payload = tells("""
try:
    control.lease(["gpu0", "gpu0"], power_limit_w=200)
except JoulewiseError as error:
    print(json.dumps([error.message, error.hint, limits()]))
""")
    assert payload == ["a device is named twice", "name each of them once", [280, 260]]

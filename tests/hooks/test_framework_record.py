"""What a process leaves of the frameworks it imported."""

import signal
import sys

import pytest
import torch

from joulewise.hooks.frameworks import cuda_version, cudnn_version
from joulewise.record.environment import read_framework_uses
from joulewise.store.spans import read_spans
from tests.helpers.hooked_programs import run_program
from tests.hooks.test_keras2 import python_of


def run(folder, script, python=sys.executable, **options):
    return run_program(folder, python, "-c", script, **options)


def test_the_version_and_how_long_it_was_used(tmp_path):
    done = run(tmp_path, "import torch; sum(range(10**7))")
    (use,) = read_framework_uses(done.run)
    of_build = {"version": torch.__version__, "cuda": torch.version.cuda}  # None of a CPU's build
    result = {name: use.frameworks["torch"].get(name) for name in of_build}
    assert (list(use.frameworks), result) == (["torch"], of_build)
    assert 0 < use.cpu_s <= use.time_s * 1.5
    assert not read_spans(done.run).warnings
    assert (done.stdout, done.stderr) == ("", "")


def test_what_is_not_imported_is_not_asked_for(tmp_path):
    done = run(tmp_path, "import json")
    assert list((done.run / "marks").iterdir()) == []
    assert read_framework_uses(done.run) == []
    show = "import torch, sys; print('keras' in sys.modules, 'torch.utils.data' in sys.modules)"
    assert run(tmp_path, show).stdout == run(tmp_path, show, hooks=False).stdout


def test_a_killed_process_leaves_what_it_had(tmp_path):
    done = run(tmp_path, "import torch, os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert done.exit_code == -signal.SIGKILL
    (use,) = read_framework_uses(done.run)
    assert use.frameworks["torch"]["version"] == torch.__version__
    assert (use.time_s, use.cpu_s) == (None, None)


WORKERS = """
import torch
from multiprocessing import get_context

if __name__ == "__main__":
    workers = [get_context(way).Process(target=print) for way in ("fork", "spawn")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
"""


def test_workers_leave_nothing_of_their_own(tmp_path):
    script = tmp_path / "workers.py"
    script.write_text(WORKERS)
    done = run_program(tmp_path, sys.executable, script)
    assert (done.exit_code, done.stdout) == (0, "\n\n"), done.stderr
    assert len(read_framework_uses(done.run)) == 1


def test_tensorflow_tells_too(tmp_path):
    done = run(tmp_path, "import tf_keras", python_of("tf-keras"))
    assert done.exit_code == 0, done.stderr
    (use,) = read_framework_uses(done.run)
    assert use.frameworks["tensorflow"] == {"version": "2.21.0"}  # built without CUDA
    assert use.frameworks["tf_keras"] == {"version": "2.21.0"}


MADE_UP_TORCH = """
class version: cuda, hip = "12.6", None
class backends:
    class cudnn:
        @staticmethod
        def version(): return 91002
__version__ = "9.9"
"""


def test_cuda_and_cudnn_are_those_of_the_framework(tmp_path):
    (tmp_path / "torch.py").write_text(MADE_UP_TORCH)
    done = run(tmp_path, "import torch", environ={"PYTHONPATH": str(tmp_path)})
    (use,) = read_framework_uses(done.run)
    assert use.frameworks == {"torch": {"version": "9.9", "cuda": "12.6", "cudnn": "9.10.2"}}


@pytest.mark.parametrize("source", ["", "__version__ = 3", "__version__ = '1'; version = 1 / 2"])
def test_a_framework_that_has_changed_does_no_harm(tmp_path, source):
    (tmp_path / "torch.py").write_text(source)
    done = run(tmp_path, "import torch; print('fine')", environ={"PYTHONPATH": str(tmp_path)})
    assert (done.exit_code, done.stdout, done.stderr) == (0, "fine\n", "")


def test_numbers_are_written_as_nvidia_writes_them():
    assert [cudnn_version(number) for number in (90100, 91002, 8902, 7605)] == [
        "9.1.0",
        "9.10.2",
        "8.9.2",
        "7.6.5",
    ]
    assert [cuda_version(number) for number in (12040, 11080)] == ["12.4", "11.8"]

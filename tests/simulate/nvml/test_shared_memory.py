"""The shared memory as Python sees it, and that C sees the same."""

import errno
import os
import shutil
import stat
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulewise.errors import SimulationError, UsageError
from joulewise.simulate.boards import load_board, make_unit
from joulewise.simulate.model import ControlSettings
from joulewise.simulate.nvml import shared_memory as shared_module
from joulewise.simulate.nvml.faults import KINDS, LIBRARY_ABSENT, NO_LATENCY, InjectedFault
from joulewise.simulate.nvml.shared_memory import CONSTANTS, GPU, TYPES, SharedGpuMemory, shim_path
from joulewise.simulate.timeline import PIECE, Timeline

HEADERS = shared_module._HERE / "shim"
RING = CONSTANTS["RING"]


def create(folder, *keys, faults=(), **options):
    units = [make_unit(load_board(key), seed) for seed, key in enumerate(keys or ("v100",))]
    return SharedGpuMemory.create(
        units, latency=NO_LATENCY, faults=faults, start_ns=0, folder=folder, **options
    )


def pieces_at(*times):
    pieces = np.zeros(len(times), PIECE)
    pieces["t_ns"] = times
    pieces["energy_j"] = times
    return Timeline(pieces, int(times[-1]))


def ring_of(shared, gpu=0):
    block = shared._gpus[gpu]
    numbers = np.arange(int(block["first"]), int(block["end"]))
    return block["ring"][numbers % RING]["t_ns"].tolist()


def test_the_compiler_lays_it_out_as_python_does(tmp_path):
    fields = [(struct, name) for struct, kind in TYPES.items() for name in kind.names]
    prints = "".join(
        f'printf("%zu %zu\\n", offsetof(struct {struct}, {name}), '
        f"sizeof ((struct {struct} *)0)->{name});\n"
        for struct, name in fields
    )
    source = tmp_path / "layout.c"
    source.write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include "layout.h"\n'
        f"int main(void) {{\n{prints}}}\n"
    )
    compiler = shutil.which(os.environ.get("CC", "cc"))
    assert compiler, "the tests need a C compiler"
    command = [compiler, "-std=c11", "-I", HEADERS, source, "-o", tmp_path / "layout"]
    subprocess.run(command, check=True)
    done = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True)
    in_c = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    in_python = [
        (TYPES[struct].fields[name][1], TYPES[struct].fields[name][0].itemsize)
        for struct, name in fields
    ]
    assert len(in_python) > 80
    assert dict(zip(fields, in_c, strict=True)) == dict(zip(fields, in_python, strict=True))


def test_a_piece_is_what_the_timeline_says():
    assert {name: PIECE.fields[name][:2] for name in PIECE.names} == {
        name: TYPES["jw_piece"].fields[name][:2] for name in TYPES["jw_piece"].names
    }


def test_every_kind_of_fault_has_its_number_in_c():
    for number, kind in enumerate(KINDS, 1):
        if kind != LIBRARY_ABSENT:
            assert CONSTANTS[f"FAULT_{kind.upper().replace('-', '_')}"] == number


def test_the_ring_remembers_fifteen_seconds_at_five_hundred_pieces_a_second():
    assert RING >= 15 * 500
    assert RING & (RING - 1) == 0


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 9_000), st.integers(1, 20_000)), min_size=1, max_size=8))
def test_publishing_replaces_from_the_first_piece_on_with_the_first_that_fit(
    tmp_path_factory, chunks
):
    shared = create(tmp_path_factory.mktemp("ring"))
    expected: list[int] = []
    try:
        for back, count in chunks:
            start = max(0, (expected[-1] if expected else 0) - back)
            times = list(range(start, start + count))
            shared.publish(0, pieces_at(*times))
            expected = ([t for t in expected if t < start] + times[:RING])[-RING:]
            assert ring_of(shared) == expected
            assert shared._gpus["sequence"][0] % 2 == 0
    finally:
        shared.close()


@pytest.mark.parametrize(
    ("write", "field"),
    [
        (lambda shared: shared.publish(0, pieces_at(1)), "end"),
        (lambda shared: shared.set_processes(0, [(1, 1)]), "processes"),
        (lambda shared: shared.reset(0, 1.0), "counter_base_j"),
    ],
)
def test_what_is_written_stays_between_two_fences(tmp_path, write, field):
    """On x86 nothing would show it: there, stores never overtake each other."""
    shared = create(tmp_path)
    seen = []
    shared._fence = lambda: seen.append([int(shared._gpus[n][0]) % 2 for n in ("sequence", field)])
    write(shared)
    shared._fence()
    assert seen == [[1, 0], [1, 1], [0, 1]]
    shared.close()


def test_an_empty_timeline_changes_nothing(tmp_path):
    shared = create(tmp_path)
    shared.publish(0, pieces_at(1, 2))
    shared.publish(0, Timeline(np.zeros(0, PIECE), 5))
    assert ring_of(shared) == [1, 2]
    shared.close()


def test_every_gpu_has_its_own_pieces(tmp_path):
    shared = create(tmp_path, "v100", "a100")
    shared.publish(1, pieces_at(7))
    assert (ring_of(shared, 0), ring_of(shared, 1)) == ([], [7])
    shared.close()


def test_controls_begin_at_the_default_and_go_back_there(tmp_path):
    shared = create(tmp_path, "a100")
    assert shared.controls(0) == ControlSettings(limit_w=400.0)
    client = SharedGpuMemory.open(shared.path)
    client._gpus["limit_mw"][0] = 250_000
    client._gpus["sm_lock"][0] = (900 << 32) | 1200
    client._gpus["memory_lock"][0] = (1215 << 32) | 1215
    assert shared.controls(0) == ControlSettings(250.0, (900.0, 1200.0), (1215.0, 1215.0))
    client.close()
    shared.reset(0, 1234.5)
    assert shared.controls(0) == ControlSettings(limit_w=400.0)
    assert shared._gpus["counter_base_j"][0] == 1234.5
    shared.close()


def test_application_clocks_are_a_ceiling_and_a_lock_overrides_them(tmp_path):
    shared = create(tmp_path, "v100")
    clocks = load_board("v100").clocks
    shared._gpus["application_clocks"][0] = (877 << 32) | 1005
    assert shared.controls(0) == ControlSettings(300.0, (clocks.sm_min_mhz, 1005.0), (877.0, 877.0))
    shared._gpus["sm_lock"][0] = (1200 << 32) | 1300
    assert shared.controls(0).sm_lock_mhz == (1200.0, 1300.0)
    shared.close()


def test_any_user_may_open_it_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        shared = create(tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(Path(shared.path).stat().st_mode) == 0o666
    shared.close()


def test_only_its_maker_removes_it(tmp_path):
    shared = create(tmp_path)
    SharedGpuMemory.open(shared.path).close()
    assert Path(shared.path).exists()
    shared.close()
    assert not list(tmp_path.iterdir())


def test_a_full_shared_memory_is_reported_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(SimulationError, match="No space left on device") as caught:
        create(tmp_path)
    assert "df -h" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_missing_shared_memory_is_reported(tmp_path):
    with pytest.raises(SimulationError, match="No such file or directory"):
        create(tmp_path / "missing")


def test_too_many_gpus_are_refused(tmp_path):
    with pytest.raises(UsageError, match="65 GPUs"):
        create(tmp_path, *["laptop"] * 65)


def test_too_many_faults_are_refused(tmp_path):
    with pytest.raises(UsageError, match="33 faults"):
        create(tmp_path, faults=[InjectedFault("denied")] * 33)
    assert not list(tmp_path.iterdir())


def test_more_processes_than_there_is_room_for_are_cut(tmp_path):
    shared = create(tmp_path)
    shared.set_processes(0, [(pid, pid) for pid in range(1, 100)])
    assert shared._gpus["processes"][0] == CONSTANTS["PROCESSES"]
    assert shared._gpus["process"][0][-1].tolist() == (64, 64)
    shared.close()


def test_gpus_of_one_kind_have_different_identities(tmp_path):
    shared = create(tmp_path, *["v100"] * 8)
    for name in ("uuid", "serial", "bus_id"):
        assert len(set(shared._gpus[name].tolist())) == 8
    shared.close()


def test_a_gpus_block_is_small_enough_for_any_container():
    assert 64 * GPU.itemsize < 64 << 20  # what a container has by default


def test_a_missing_library_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_module, "_HERE", tmp_path / "a" / "b" / "c")
    with pytest.raises(SimulationError, match="no C compiler") as caught:
        shim_path()
    assert "pip install" in caught.value.hint
    assert "gcc" in caught.value.hint

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulewise.devices.cuda_visible import GpuIdentity, MigDevice, VisibleGpus, cuda_visible_gpus

A100 = GpuIdentity(0, "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "A100", "00000000:07:00.0", 9.7)
TWIN = GpuIdentity(1, "GPU-8ab4c0de-0000-4106-c12f-20bd9faed9f6", "A100", "00000000:0F:00.0", 9.7)
THIRD = GpuIdentity(2, "GPU-47000000-0000-4106-c12f-20bd9faed9f6", "A100", "00000000:47:00.0", 9.7)
GPUS = (A100, TWIN, THIRD)

OLD = GpuIdentity(0, "GPU-aa", "Quadro P400", "00000000:01:00.0", 0.3)
FAST = GpuIdentity(1, "GPU-bb", "RTX 6000", "00000000:02:00.0", 9.0)

SLICED = GpuIdentity(
    1,
    "GPU-8ab4c0de-0000-4106-c12f-20bd9faed9f6",
    "A100",
    "00000000:0F:00.0",
    slices=(MigDevice("MIG-11aa", 1, 0), MigDevice("MIG-11bb", 2, 0), MigDevice("MIG-22cc", 2, 1)),
)


def see(listed: str | None, gpus=GPUS, order: str | None = None) -> VisibleGpus:
    environ = {"CUDA_VISIBLE_DEVICES": listed, "CUDA_DEVICE_ORDER": order}
    return cuda_visible_gpus(
        {name: value for name, value in environ.items() if value is not None}, gpus
    )


def test_without_the_variable_all_are_visible():
    assert see(None) == VisibleGpus((0, 1, 2))


@pytest.mark.parametrize(
    ("listed", "indices"),
    [
        ("2,1", (2, 1)),
        (" 1 , 0 ", (1, 0)),
        ("+1,-0", (1, 0)),
        ("1gpu2,2ampere", (1, 2)),
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", (0,)),
        ("GPU-47,GPU-8ab", (2, 1)),
    ],
)
def test_the_list_selects_and_orders(listed, indices):
    assert see(listed) == VisibleGpus(indices)


@pytest.mark.parametrize(
    ("listed", "indices"),
    [
        ("0,2,-1,1", (0, 2)),
        ("1,7,0", (1,)),
        ("1,,0", (1,)),
        ("0,two,1", (0,)),
        ("0,GPU-47", (0,)),
        ("GPU-47,0", (2,)),
        ("GPU-47,GPU-dead,GPU-8932", (2,)),
        ("GPU-47,GPU-8", (2,)),
        ("GPU-47,MIG-11aa", (2,)),
    ],
)
def test_the_list_ends_before_the_first_entry_that_names_nothing(listed, indices):
    shown = see(listed)
    assert shown.indices == indices
    assert listed in shown.reason
    assert "what follows" in shown.reason


@pytest.mark.parametrize(
    "listed",
    [
        "",
        "  ",
        "-1",
        "NoDevFiles",
        "none",
        "3",
        "GPU-",
        "GPU-8",
        "GPU-dead",
        "MIG-11aa",
        "9" * 5000,
    ],
)
def test_nothing_valid_hides_all_and_says_why(listed):
    shown = see(listed)
    assert shown.indices == ()
    assert "CUDA_VISIBLE_DEVICES" in shown.reason
    assert "every GPU" in shown.reason


@pytest.mark.parametrize("listed", ["0,1,0", "1,+1", "GPU-47,GPU-8932,GPU-470"])
def test_naming_a_gpu_twice_hides_all(listed):
    shown = see(listed)
    assert shown.indices == ()
    assert "twice" in shown.reason


def test_a_repeat_after_the_end_of_the_list_is_not_read():
    assert see("0,-1,0").indices == (0,)


def test_what_is_invalid_is_told_apart_by_its_kind():
    assert "'7'" in see("0,7").reason


def test_numbers_in_other_scripts_are_no_indices():
    assert see("\N{ARABIC-INDIC DIGIT ONE}").indices == ()


@pytest.mark.parametrize("order", [None, "FASTEST_FIRST", "nonsense"])
def test_by_default_the_fastest_is_first_where_boards_differ(order):
    shown = see(None, (OLD, FAST), order)
    assert shown.indices == (1, 0)
    assert all("guess" in shown.notes[index] for index in (0, 1))
    picked = see("0", (OLD, FAST), order)
    assert picked.indices == (1,)
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in picked.notes[1]


def test_a_uuid_needs_no_guess():
    assert see("GPU-aa", (OLD, FAST)) == VisibleGpus((0,))


def test_in_bus_order_nothing_is_guessed():
    assert see("0", (OLD, FAST), "PCI_BUS_ID") == VisibleGpus((0,))


def test_bus_order_is_by_bus_and_not_by_index():
    swapped = (
        GpuIdentity(0, "GPU-a", "T4", "00000000:B0:00.0"),
        GpuIdentity(1, "GPU-b", "T4", "00000000:0a:00.0"),
    )
    assert see(None, swapped, "PCI_BUS_ID").indices == (1, 0)
    assert see(None, swapped).indices == (1, 0)


def test_a_gpu_without_a_bus_id_keeps_its_index():
    lost = GpuIdentity(0, "")
    assert see(None, (lost, TWIN, THIRD)) == VisibleGpus((0, 1, 2))
    assert see("0", (lost, TWIN, THIRD)) == VisibleGpus((0,))


@pytest.mark.parametrize(
    "name", ["MIG-11a", "MIG-11aa", "MIG-GPU-8ab4/1/0", f"MIG-{TWIN.uuid}/1/0"]
)
def test_a_slice_is_its_whole_gpu_and_says_so(name):
    shown = see(name, (A100, SLICED))
    assert shown.indices == (1,)
    assert "MIG-11aa" in shown.notes[1]
    assert "whole GPU" in shown.notes[1]


def test_two_slices_of_a_gpu_are_one_gpu():
    shown = see("MIG-22,MIG-11aa", (A100, SLICED))
    assert shown.indices == (1,)
    assert "MIG-22cc" in shown.notes[1]
    assert "MIG-11aa" in shown.notes[1]


@pytest.mark.parametrize(
    "name", ["MIG-11", "MIG-33", "MIG-GPU-8ab4/3/0", "MIG-GPU-8ab4/1", "MIG-GPU-8932/1/0"]
)
def test_a_slice_that_is_not_there_is_invalid(name):
    assert see(name, (A100, SLICED)).indices == ()


@pytest.mark.parametrize("listed", [None, "1", "GPU-8ab"])
def test_a_gpu_in_mig_mode_says_so_however_it_is_named(listed):
    assert "MIG" in see(listed, (A100, SLICED)).notes[1]


@given(st.lists(st.integers(-2, 5), max_size=6))
def test_indices_show_the_longest_valid_beginning_or_nothing(wanted):
    valid = []
    for index in wanted:
        if not 0 <= index < len(GPUS):
            break
        valid.append(index)
    expected = tuple(valid) if len(set(valid)) == len(valid) else ()
    assert see(",".join(map(str, wanted))).indices == expected


@given(st.text(max_size=20).filter(lambda text: "\0" not in text))
def test_any_text_is_accepted(text):
    shown = see(text, (A100, SLICED))
    assert set(shown.indices) <= {0, 1}
    assert shown.indices or shown.reason

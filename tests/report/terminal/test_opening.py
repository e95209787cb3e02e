"""The line before a command starts has what is measured, in no more room than it needs."""

from pathlib import Path

import pytest

from joulewise.report.terminal.opening import opening
from joulewise.session.request import Ready

RUN = "20261116-003512-7f3a"
V100, XEON = "Tesla V100-SXM2-16GB", "Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz"


def said(*devices, rate_hz=10.0, **more):
    return opening(Ready(Path(RUN), tuple(devices), rate_hz, **more))


def test_what_is_alike_is_one():
    gpus = [(f"gpu{index}", V100, "measured") for index in range(8)]
    assert said(*gpus, ("gpu8", V100, "")) == (
        f"8 x {V100} (measured), gpu8 {V100} (cannot be read); 10 Hz; run {RUN}"
    )
    assert said() == f"no device that can be read; 10 Hz; run {RUN}"


def test_what_is_not_heeded_is_said():
    line = said(("gpu0", V100, "measured"), joined=True, ignored_options=("--rate",))
    assert line.endswith(f"joining run {RUN}, without its own --rate")


def test_a_name_of_a_cpu_gives_way_to_that_of_a_gpu():
    assert said(("gpu0", V100, "measured"), ("cpu0", XEON, "modelled")).startswith(
        f"gpu0 {V100} (measured), cpu0 {XEON} (modelled);"
    )
    ram = ("dram0", "memory", "assumed")
    assert said(("gpu0", V100, "measured"), ("cpu0", XEON, "modelled"), ram).startswith(
        f"gpu0 {V100} (measured), cpu0 Intel(R) Xeon(R) Pl… (modelled), dram0 memory (assumed);"
    )


@pytest.mark.parametrize("kinds", [1, 2, 3, 9])
def test_any_number_of_kinds_has_room_in_a_hundred_columns(kinds):
    names = [f"NVIDIA GeForce RTX 30{n}0 Ti Laptop GPU" for n in range(kinds)]
    gpus = [(f"gpu{n}", name, "measured") for n, name in enumerate(names)]
    line = said(*gpus, ("cpu0", XEON, "modelled"), ("dram0", "memory", "assumed"))
    devices, _, rest = line.partition(";")
    assert len(devices) <= 100
    assert devices.startswith("gpu0 NVIDIA")
    assert rest == f" 10 Hz; run {RUN}"
    assert "more" in devices or "dram0 memory" in devices


@pytest.mark.parametrize(
    ("rate_hz", "text"),
    [(20 / 3, "6.67 Hz"), (2.5, "2.5 Hz"), (1000, "1000 Hz"), (0.01, "0.01 Hz")],
)
def test_a_rate_has_the_digits_that_matter(rate_hz, text):
    assert f"; {text};" in said(rate_hz=rate_hz)

"""The log of what was turned."""

import os

from joulewise.control.log import LOG, open_log


def test_each_line_says_when_and_who(tmp_path):
    log = open_log(tmp_path / "state", "guardian")
    log("one\nof two lines")
    log("two")
    one, two = (tmp_path / "state" / LOG).read_text().splitlines()
    assert one.endswith(f" guardian[{os.getpid()}] one of two lines")
    assert two.endswith(" two")


def test_it_does_not_grow_for_ever(tmp_path):
    log = open_log(tmp_path, "guardian")
    (tmp_path / LOG).write_text("x" * (1 << 21))
    log("new")
    assert (tmp_path / LOG).read_text().endswith("new\n")
    assert (tmp_path / f"{LOG}.1").stat().st_size == 1 << 21
    for number in range(20):
        (tmp_path / LOG).write_text(str(number) * (1 << 20))
        log("newer")
    kept = sorted(each.name for each in tmp_path.iterdir())
    assert kept == [LOG, *(f"{LOG}.{number}" for number in range(1, 9))]
    assert [(tmp_path / name).read_text()[:2] for name in kept[1:3]] == ["19", "18"]


def test_it_is_not_for_others_to_write_nor_to_lead_elsewhere(tmp_path):
    before = os.umask(0)
    try:
        open_log(tmp_path / "state", "guardian")("one")
    finally:
        os.umask(before)
    assert (tmp_path / "state" / LOG).stat().st_mode & 0o022 == 0
    target = tmp_path / "somebody's"
    (tmp_path / LOG).symlink_to(target)
    open_log(tmp_path, "guardian")("two")
    assert not target.exists()


def test_a_state_folder_that_was_removed_is_not_made_again_for_a_line(tmp_path):
    log = open_log(tmp_path / "state", "guardian")
    (tmp_path / "state").rmdir()
    log("one")
    assert not (tmp_path / "state").exists()

"""Following a stream while it is written."""

import random
from array import array

import numpy as np
import pytest

from joulewise.store.arrow_stream import Batch, message, schema
from joulewise.store.trace import StreamFollower

COLUMNS = ("t_ns", "energy_j", "power_w")
EVERYTHING = 1 << 40


def batch(first, rows, *, gap=False):
    watts = array("f", [float(first + i) for i in range(rows)])
    if gap:
        watts[0] = float("nan")
    return message(
        Batch(COLUMNS, [array("q", range(first, first + rows)), array("d", [0.5] * rows), watts])
    )


@pytest.fixture
def header():
    return schema(COLUMNS).serialize().to_pybytes()


def times(follower):
    return [t for rows in follower.poll() for t in rows["t_ns"].tolist()]


def test_each_row_once_however_it_is_cut(tmp_path, header):
    whole = header + b"".join(batch(100 * i, 1 + i % 90, gap=i % 3 == 0) for i in range(40))
    path = tmp_path / "gpu0.arrows"
    follower = StreamFollower(path, EVERYTHING)
    assert times(follower) == []
    found, cuts = [], random.Random(5)
    with path.open("wb", buffering=0) as file:
        at = 0
        while at < len(whole):
            size = cuts.randint(1, 700)
            file.write(whole[at : at + size])
            at += size
            found += times(follower)
    assert found == [100 * i + j for i in range(40) for j in range(1 + i % 90)]


def test_what_could_not_be_read_is_nan(tmp_path, header):
    path = tmp_path / "gpu0.arrows"
    path.write_bytes(header + batch(0, 3, gap=True))
    (rows,) = StreamFollower(path, EVERYTHING).poll()
    assert np.isnan(rows["power_w"]).tolist() == [True, False, False]


@pytest.mark.parametrize("last_b", [0, 1, 500, 5_000, 50_000])
def test_begins_near_the_end_with_a_whole_batch(tmp_path, header, last_b):
    path = tmp_path / "gpu0.arrows"
    path.write_bytes(header + b"".join(batch(100 * i, 90, gap=i % 2 == 0) for i in range(100)))
    found = times(StreamFollower(path, last_b))
    assert found[0] % 100 == 0
    assert found[-1] == 9989
    assert len(found) <= max(4 * 90, 90 * last_b / len(batch(0, 90)))


def test_a_value_that_looks_like_a_message_start_is_ignored(tmp_path, header):
    looks = batch(7, 3)
    ints = np.frombuffer(looks[: len(looks) // 8 * 8], np.int64)
    hiding = message(
        Batch(
            COLUMNS,
            [
                array("q", ints.tolist()),
                array("d", [0.0] * len(ints)),
                array("f", [0.0] * len(ints)),
            ],
        )
    )
    path = tmp_path / "gpu0.arrows"
    path.write_bytes(header + batch(0, 5) + hiding + batch(50, 5))
    assert times(StreamFollower(path, len(hiding) + len(batch(50, 5)) - 8)) == [50, 51, 52, 53, 54]


def test_half_a_batch_at_the_end_is_waited_for(tmp_path, header):
    path, last = tmp_path / "gpu0.arrows", batch(50, 5)
    path.write_bytes(header + batch(0, 5) + last[:-9])
    follower = StreamFollower(path, 8)
    times(follower)
    with path.open("ab") as file:
        file.write(last[-9:])
    assert times(follower)[-5:] == [50, 51, 52, 53, 54]


def test_only_what_is_new_is_read(tmp_path, header, monkeypatch):
    import pyarrow as pa

    path = tmp_path / "gpu0.arrows"
    path.write_bytes(header + b"".join(batch(100 * i, 90) for i in range(500)))
    follower = StreamFollower(path, 10_000)
    read = []
    one = pa.ipc.read_message
    monkeypatch.setattr(pa.ipc, "read_message", lambda source: read.append(1) or one(source))
    times(follower)
    assert len(read) < 20
    for _ in range(3):
        assert times(follower) == []
    read.clear()
    with path.open("ab") as file:
        file.write(batch(0, 1))
    assert times(follower) == [0]
    assert len(read) <= 2


def test_a_stream_that_is_packed_meanwhile(tmp_path, header):
    path = tmp_path / "gpu0.arrows"
    path.write_bytes(header + batch(0, 5))
    follower = StreamFollower(path, EVERYTHING)
    assert len(times(follower)) == 5
    path.unlink()
    assert times(follower) == []

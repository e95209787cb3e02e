"""Lines between processes, however they are cut up on their way."""

import json
import socket

import pytest

from joulewise.process import json_lines as wires
from joulewise.process.json_lines import JsonSocket


@pytest.fixture
def line():
    ours, theirs = socket.socketpair()
    yield JsonSocket(ours), theirs
    ours.close()
    theirs.close()


@pytest.mark.parametrize("chunk_b", [1, 7, 1 << 16])
def test_messages_come_whole_and_in_order_whatever_the_chunks(chunk_b, line, monkeypatch):
    monkeypatch.setattr(wires, "_CHUNK_B", chunk_b)
    ours, theirs = line
    sent = [{"kind": "a", "text": "é\n" * 9}, {"kind": "b"}, {"kind": "c", "n": [1, 2]}]
    theirs.sendall(b"".join(json.dumps(each).encode() + b"\n" for each in sent) + b'{"kind": "cut')
    theirs.close()
    came = []
    while not ours.closed:
        came += ours.receive(timeout_s=60)
    assert came == sent


class Chunk(bytes):
    """Counts what it is added to."""

    copied_b = 0

    def __radd__(self, before):
        Chunk.copied_b += len(before)
        return bytes(before) + bytes(self)


def test_a_long_message_is_joined_once(line, monkeypatch):
    """Joined anew with each of its chunks, a result of some megabytes would take minutes."""
    ours, theirs = line
    text = json.dumps({"kind": "result", "text": "x" * 10_000}).encode() + b"\n"
    chunks = iter([Chunk(text[at : at + 100]) for at in range(0, len(text), 100)])

    class Connection:
        def recv(self, _size):
            return next(chunks)

    monkeypatch.setattr(ours, "_connection", Connection())
    monkeypatch.setattr(ours, "_wait", lambda _timeout_s: True)
    (message,) = ours.receive(timeout_s=None)
    assert len(message["text"]) == 10_000
    assert Chunk.copied_b <= len(text)
    del theirs

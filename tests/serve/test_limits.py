"""Clients that are slow, loud, many or broken."""

import socket
import threading
from contextlib import ExitStack
from http.server import ThreadingHTTPServer

import pytest

from joulewise.serve.server import HEAD_B, _Head, plain_text
from tests.helpers.processes import DEADLINE_S, eventually
from tests.helpers.view_servers import answer_of, served


def test_an_endless_request_line_is_refused(view):
    answer = view.raw(b"GET /" + b"a" * (HEAD_B - 5))
    assert answer.status == 431


def test_endless_headers_are_refused(view):
    start = f"GET {view.base} HTTP/1.1\r\n".encode()
    line = b"X: " + b"a" * 1000 + b"\r\n"
    assert view.raw((start + line * 20)[:HEAD_B]).status == 431


@pytest.mark.parametrize(
    "request_line", [b"GET", b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9 x", b"GET  /  HTTP/1.1"]
)
def test_invalid_http_gets_a_plain_answer(view, request_line):
    answer = view.raw(request_line + b"\r\n\r\n")
    assert 400 <= answer.status < 600
    assert b"Traceback" not in answer.content


def test_a_silent_client_is_disconnected(store):
    with served(store, head_s=0.1) as view, view.connect() as slow:
        slow.sendall(b"GET /")
        assert slow.recv(1) == b""
        assert view.get().status == 200


def test_a_slow_client_gets_no_extra_time():
    clock = [0.0]
    ours, its = socket.socketpair()
    with ours, its, _Head(its, 10.0, lambda: clock[0]) as head:
        ours.sendall(b"GET /")
        for clock[0] in (0.0, 4.0, 8.0):
            assert head.read(1)
        clock[0] = 12.0
        with pytest.raises(TimeoutError):
            head.read(1)


def test_connections_are_limited(store):
    arrived, go_on = threading.Semaphore(0), threading.Event()

    def answer(_):
        arrived.release()
        go_on.wait(DEADLINE_S)
        return plain_text("done", 200)

    with served(store, answer, at_once=2) as view:

        def held():
            connection = view.connect()
            connection.sendall(
                f"GET {view.base} HTTP/1.1\r\nHost: localhost:{view.port}\r\n\r\n".encode()
            )
            assert arrived.acquire(timeout=DEADLINE_S)
            return connection

        waiting = [held(), held()]
        assert view.get().status == 503
        go_on.set()
        for connection in waiting:
            assert answer_of(connection).status == 200
            connection.close()
        assert eventually(lambda: view.get().status == 200)


def test_a_connection_without_a_thread_is_not_idle(store, monkeypatch):
    """Were it evicted later, that would free nothing, and the next one would be refused."""
    with_a_thread = ThreadingHTTPServer.process_request

    def fails_once(*_):
        monkeypatch.setattr(ThreadingHTTPServer, "process_request", with_a_thread)
        raise RuntimeError("can't start new thread")

    with served(store, lambda _: plain_text("done", 200), at_once=1) as view:
        monkeypatch.setattr(ThreadingHTTPServer, "process_request", fails_once)
        with view.connect() as refused:
            assert refused.recv(1) == b""
        with view.connect() as idle:
            assert view.get().status == 200
            assert idle.recv(1) == b""  # it had to go


def test_a_client_that_disconnects_is_not_reported(view, capfd):
    with view.connect() as connection:
        connection.sendall(f"GET {view.base} HTTP/1.1\r\n".encode())
    assert view.get().status == 200
    assert capfd.readouterr().err == ""


def test_a_bug_is_reported_without_a_traceback(store):
    def answer(_):
        raise ZeroDivisionError("of a secret")

    with served(store, answer) as view:
        answer = view.get()
    assert answer.status == 500
    assert answer.text.startswith("unexpected ZeroDivisionError")
    assert "secret" not in answer.text


def test_idle_connections_are_evicted(store):
    with served(store, lambda _: plain_text("done", 200), at_once=4) as view, ExitStack() as stack:
        idle = [stack.enter_context(view.connect()) for _ in range(400)]
        assert view.get().status == 200
        assert threading.active_count() < 100
        assert idle[0].recv(1) == b""  # the oldest had to go

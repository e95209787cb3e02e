"""A real server on loopback, asked over real sockets."""

import html
import re
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass

from joulewise.serve.server import ViewServer
from joulewise.serve.site import Site
from tests.helpers.processes import DEADLINE_S


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict
    content: bytes

    @property
    def text(self):
        return self.content.decode()

    @property
    def words(self):
        """What a reader sees: without tags, and white space as single blanks."""
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", self.text)).split())


@dataclass(frozen=True)
class View:
    server: ViewServer

    @property
    def port(self):
        return self.server.server_port

    @property
    def base(self):
        return f"/{self.server.secret}/"

    def get(self, inside="", method="GET", **headers):
        """An address below the secret one."""
        return self.ask(self.base + inside, method, **headers)

    def ask(self, target, method="GET", **headers):
        """Any address; a header of None is left out."""
        result = {"Host": f"127.0.0.1:{self.port}", **headers}
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in result.items() if value]
        head = "\r\n".join([f"{method} {target} HTTP/1.1", *lines, "", ""])
        return self.raw(head.encode())

    def raw(self, data):
        with self.connect() as connection:
            connection.sendall(data)
            return answer_of(connection)

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), DEADLINE_S)


def answer_of(connection):
    whole = b""
    while part := connection.recv(1 << 16):
        whole += part
    head, _, content = whole.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    return Answer(int(first.split()[1]), headers, content)


@contextmanager
def served(store, answer=None, **options):
    site = Site(store, "joulewise")
    server = ViewServer("127.0.0.1", 0, answer or site.answer, **options)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield View(server)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

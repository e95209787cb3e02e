"""Who is answered, and who is not."""

import re
from pathlib import Path

import pytest

from joulewise.errors import UsageError
from joulewise.serve.server import HttpRequest, listening, refusal

RUN = "20261101-120000-aaaa"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_every_loopback_name_is_accepted(view, host):
    assert view.get(Host=f"{host}:{view.port}").status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:{port}",
        "127.0.0.1.evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost:{port}@evil.example",
        "192.168.0.1:{port}",
        "[::]:{port}",
        None,
    ],
)
def test_another_host_name_is_refused(view, host):
    answer = view.get(Host=host and host.format(port=view.port))
    assert answer.status == 421
    assert view.server.secret not in answer.text


def test_the_default_port_may_be_left_out():
    request = HttpRequest("/secret/", ["127.0.0.1"])
    assert refusal(request, 80, "secret") is None
    assert refusal(request, 8080, "secret").status == 421


def test_two_host_headers_are_refused(view):
    own = f"Host: 127.0.0.1:{view.port}\r\n"
    assert view.raw(f"GET {view.base} HTTP/1.1\r\n{own}{own}\r\n".encode()).status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
def test_other_methods_are_refused(view, method):
    answer = view.get(method=method)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET, HEAD"


def test_head_sends_headers_only(view, make_run):
    make_run(RUN)
    whole, head = view.get(), view.get(method="HEAD")
    assert (head.status, head.content) == (200, b"")
    assert head.headers["Content-Length"] == str(len(whole.content))


@pytest.mark.parametrize("target", ["/", "/favicon.ico", "/wrong/", "/é/", "*", "http://evil/"])
def test_without_the_secret_nothing_is_answered(view, make_run, target):
    make_run(RUN, name="mine")
    answer = view.ask(target)
    assert answer.status == 403
    assert "mine" not in answer.text


def test_a_truncated_secret_is_refused(view):
    assert view.ask(view.base[:-2] + "/").status == 403


def test_each_server_has_its_own_secret(view):
    with listening("127.0.0.1", 0, lambda _: None) as other:
        assert other.secret != view.server.secret
        assert len(other.secret) >= 32


def test_the_address_without_a_final_slash_redirects(view):
    answer = view.ask(view.base[:-1] + "?/run/x")
    assert (answer.status, answer.headers["Location"]) == (308, view.base)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "something-new"])
@pytest.mark.parametrize("inside", ["", "run/x", "now/x", "static/view.js"])
def test_requests_from_other_pages_are_refused(view, site, inside):
    headers = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "script"}
    assert view.get(inside, **headers).status == 403


def test_a_link_to_the_first_page_is_answered(view):
    headers = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert view.get(Sec_Fetch_Dest="document", **headers).status == 200
    assert view.get(Sec_Fetch_Dest="iframe", **headers).status == 403
    assert view.get("run/x", Sec_Fetch_Dest="document", **headers).status == 403
    assert view.get("?filter=/run/x", Sec_Fetch_Dest="document", **headers).status == 200


@pytest.mark.parametrize("site", ["none", "same-origin"])
def test_requests_from_own_pages_are_answered(view, site):
    assert view.get("static/view.js", Sec_Fetch_Site=site).status == 200


def test_every_response_has_security_headers(view, make_run):
    make_run(RUN)
    answers = [view.get(), view.get(f"run/{RUN}"), view.get("run/none"), view.ask("/")]
    for answer in answers:
        headers = answer.headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert not [name for name in headers if name.lower().startswith("access-control-")]
        assert headers["Server"] == "joulewise"
    for own in (answers[0], answers[2]):
        assert "unsafe" not in own.headers["Content-Security-Policy"]
        assert "default-src 'none'" in own.headers["Content-Security-Policy"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", "", "127.1"])
def test_other_hosts_are_not_bound(host):
    with pytest.raises(UsageError) as error:
        listening(host, 0, lambda _: None)
    assert "ssh -t -L " in error.value.hint


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("localhost", "127.0.0.1")]
)
def test_listens_on_loopback_alone(host, shown):
    with listening(host, 0, lambda _: None) as server:
        assert server.url.startswith(f"http://{shown}:{server.server_port}/")
        assert server.server_address[0] == shown.strip("[]")
        port = f"{server.server_port:04X}"
        listed = "".join(Path(f"/proc/net/{kind}").read_text() for kind in ("tcp", "tcp6"))
        addresses = re.findall(rf"([0-9A-F]+):{port} [0-9A-F]+:0000 0A", listed)
        assert addresses in (["0100007F"], ["00000000000000000000000001000000"])


def test_a_port_in_use_is_a_usage_error():
    with listening("127.0.0.1", 0, lambda _: None) as server:
        port = server.server_port
        with pytest.raises(UsageError) as error:
            listening("127.0.0.1", port, lambda _: None)
    assert error.value.message.startswith(f"cannot listen on port {port} of 127.0.0.1: ")

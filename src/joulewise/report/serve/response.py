"""What is sent back, and what every answer tells the browser to keep to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

_OWN: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# A report is a file that has a stricter policy of its own, which names its scripts by their
# hashes; this is what cannot be said from within.
REPORT: Final = "connect-src 'none'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
_HTML: Final = "text/html; charset=utf-8"


@dataclass(frozen=True)
class Response:
    content: bytes
    kind: str = _HTML
    status: HTTPStatus = HTTPStatus.OK
    policy: str = _OWN
    location: str = ""

    @property
    def headers(self) -> Mapping[str, str]:
        return {
            **({"Location": self.location} if self.location else {}),
            "Content-Type": self.kind,
            "Content-Length": str(len(self.content)),
            "Content-Security-Policy": self.policy,
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
            "Connection": "close",
        }


def html(text: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(text.encode(errors="replace"), status=status)


def as_json(told: Any) -> Response:
    return Response(json.dumps(told, allow_nan=False).encode(), "application/json")


def plain_text(text: str, status: HTTPStatus) -> Response:
    return Response(f"{text}\n".encode(errors="replace"), "text/plain; charset=utf-8", status)


def elsewhere(location: str) -> Response:
    return Response(b"", status=HTTPStatus.PERMANENT_REDIRECT, location=location)

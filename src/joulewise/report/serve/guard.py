"""Which requests are answered at all.

Loopback is shared by all users of a machine, and by every page in the user's browser. What is
answered names us as its host (no other name was made to lead here), comes from no other page, and
has the secret that only the printed address has.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTP_PORT
from typing import Final, NamedTuple

LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
"""All that is ever listened on."""

_NAMES: Final = ("127.0.0.1", "[::1]", "localhost")
_FROM_NO_OTHER_PAGE: Final = {None, "none", "same-origin"}


class Refusal(NamedTuple):
    status: HTTPStatus
    reason: str


class Asked(NamedTuple):
    """What a request says of itself; the ``fetch_`` headers only browsers send."""

    target: str
    hosts: Sequence[str]
    fetch_site: str | None = None
    fetch_mode: str | None = None
    fetch_dest: str | None = None


def refusal(asked: Asked, port: int, secret: str) -> Refusal | None:
    """Why it is not answered, None where it is."""
    # Of the usual port browsers say nothing.
    ours = {f"{n}:{port}" for n in _NAMES} | ({*_NAMES} if port == HTTP_PORT else set())
    if len(asked.hosts) != 1 or asked.hosts[0].lower() not in ours:
        return Refusal(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"this is 127.0.0.1:{port}, and is asked for by no other name or port",
        )
    first, inside = parted(asked.target)
    if not hmac.compare_digest(first.encode(errors="replace"), secret.encode()):
        return Refusal(
            HTTPStatus.FORBIDDEN, "open the address that joulewise view printed, all of it"
        )
    if asked.fetch_site not in _FROM_NO_OTHER_PAGE and not _opens_start(asked, inside):
        return Refusal(HTTPStatus.FORBIDDEN, "another page asks for this")
    return None


def parted(target: str) -> tuple[str, str | None]:
    """The secret, and the address below it with its query; None where not even a slash follows."""
    path, asks, query = target.partition("?")
    first, slash, rest = path.removeprefix("/").partition("/")
    return first, f"{rest}{asks}{query}" if slash else None


def _opens_start(asked: Asked, inside: str | None) -> bool:
    """A link to the first page may be followed from elsewhere, such as a terminal in a browser."""
    is_start = not inside or inside.startswith("?")
    return is_start and (asked.fetch_mode, asked.fetch_dest) == ("navigate", "document")

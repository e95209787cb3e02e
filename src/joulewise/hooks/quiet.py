"""How the hooks touch a program: what they do may fail, and nobody hears of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

WATCHED = "__joulewise_watched__"


def quietly(watcher: Callable[..., Any]) -> Callable[..., Any]:
    """The same, but None where it fails."""

    @functools.wraps(watcher)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return watcher(*args, **kwargs)
        except Exception:  # noqa: BLE001 - an error of ours is no business of the program
            return None

    return call


def around(
    holder: Any,
    name: str,
    before: Callable[..., Any] | None = None,
    after: Callable[..., Any] | None = None,
) -> None:
    """Has the watchers called with a function's arguments, before it and when it is over.

    The function itself is called as ever, and its result and its exceptions pass. One that has
    watchers gets no more of them: the same class is met under several names.
    """
    function = getattr(holder, name)
    if getattr(function, WATCHED, False):
        return
    before, after = (watcher and quietly(watcher) for watcher in (before, after))

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        finally:
            if after is not None:
                after(*args, **kwargs)

    setattr(call, WATCHED, True)
    setattr(holder, name, call)

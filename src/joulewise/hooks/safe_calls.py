"""Wrappers with which hooks watch functions of a program, and never raise into it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

WATCHED = "__joulewise_watched__"


def ignoring_errors(watcher: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function, but one that returns None where it would raise."""

    @functools.wraps(watcher)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return watcher(*args, **kwargs)
        except Exception:  # noqa: BLE001 - an error of a hook must not reach the program
            return None

    return call


def wrap(
    holder: Any,
    name: str,
    before: Callable[..., Any] | None = None,
    after: Callable[..., Any] | None = None,
) -> None:
    """Have watchers called with the arguments of a function, before it and when it has ended.

    The function's result and exceptions pass unchanged. A function that is wrapped already stays
    as it is: the same class is found under several names.
    """
    function = getattr(holder, name)
    if getattr(function, WATCHED, False):
        return
    before, after = (watcher and ignoring_errors(watcher) for watcher in (before, after))

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

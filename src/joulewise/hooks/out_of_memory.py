"""Notes that the program ended by an error for lack of memory, beside its marks.

When an error ends a program, Python keeps it in ``sys.last_value`` before it prints it. That is
looked at when the interpreter exits, so that nothing is changed that the program could see. Other
errors are not noted. The file ``<pid>-<time>.memory`` has one line: the error's name and message.
"""

from __future__ import annotations

import atexit
import os
import sys
import time

SUFFIX = ".memory"
# What frameworks and allocators write: torch ("CUDA out of memory", OutOfMemoryError), TensorFlow
# and JAX (RESOURCE_EXHAUSTED, ResourceExhaustedError), cuDNN and cuBLAS (ALLOC_FAILED), Python
# (MemoryError, "Cannot allocate memory") and C++ (bad_alloc).
_WORDS = (
    r"out of memory|OutOfMemoryError|RESOURCE_EXHAUSTED|ResourceExhaustedError"
    r"|(CUDNN|CUBLAS)_STATUS_ALLOC_FAILED|\bMemoryError\b|Cannot allocate memory|std::bad_alloc"
)
_MOST_LETTERS = 500  # of a message (chosen): torch's says in 300 how much was free


def find_words(text: str) -> str:
    """What in a text says that memory was short; empty where nothing does."""
    import re  # here, as every Python loads this module, and few of them end by an error

    found = re.search(_WORDS, text, re.IGNORECASE)
    return found[0] if found else ""


def watch() -> None:
    """Look for such an error when this interpreter exits."""
    atexit.register(_note)


def _note() -> None:
    try:
        error = getattr(sys, "last_value", None)
        if error is None:
            return
        kind = type(error)
        text = " ".join(f"{kind.__module__}.{kind.__qualname__}: {error}".split())[:_MOST_LETTERS]
        folder = os.environ.get("JOULEWISE_MARKS", "")
        if folder and find_words(text):
            stem = f"{os.getpid()}-{time.monotonic_ns()}"
            path = f"{folder}/{stem}{SUFFIX}"
            with open(path, "w", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - light
                file.write(text + "\n")
    except Exception:  # noqa: BLE001 - an error of ours must not reach the program
        return

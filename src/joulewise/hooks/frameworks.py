"""Which frameworks a process imported, their versions, and how long it worked with them.

A process that imports one leaves ``<pid>-<time>.frameworks.json`` beside its marks: when it is
imported, so that it is there should the process be killed, and once more at the end::

    {"pid": 4711, "imported_ns": 811…, "end_ns": 893…, "cpu_s": 71.5,
     "frameworks": {"torch": {"version": "2.13.0", "cuda": "12.6", "cudnn": "9.10.2"}}}

Times are of CLOCK_MONOTONIC; ``cpu_s`` is the CPU time since the import, of the process and the
children it has waited for. ``end_ns`` and ``cpu_s`` are null until the process ends by itself.
Only modules that the program itself has imported are asked.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .safe_calls import ignoring_errors

# Those that bring their own kernels, on whose import this is loaded (import_hook.py), and what is
# built on them.
NAMED = (
    "torch", "tensorflow", "jax", "keras", "tf_keras", "lightning", "pytorch_lightning",
    "transformers", "accelerate", "flax",
)  # fmt: skip


class FrameworkRecord:
    """The record of this process; each fork that ends by itself writes one of its own."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._start()
        atexit.register(ignoring_errors(self.write), ended=True)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._start)

    def _start(self) -> None:
        self._imported_ns = time.monotonic_ns()
        self._cpu_s = _cpu_s()

    def write(self, *, ended: bool = False) -> None:
        """Replace the file as a whole; workers of multiprocessing write none."""
        if _is_worker():
            return
        end_ns = time.monotonic_ns() if ended else None
        cpu_s = round(_cpu_s() - self._cpu_s, 3) if ended else None
        _write(self._folder, self._imported_ns, end_ns, cpu_s, versions(ended=ended))


def write_versions(folder: str) -> None:
    """Write the versions that are loaded now, at the end of a ``joulewise.measure`` block."""
    loaded = versions()
    if loaded:
        _write(folder, time.monotonic_ns(), None, None, loaded)


def _write(
    folder: str,
    imported_ns: int,
    end_ns: int | None,
    cpu_s: float | None,
    loaded: dict[str, dict[str, str]],
) -> None:
    content = {
        "pid": os.getpid(),
        "imported_ns": imported_ns,
        "end_ns": end_ns,
        "cpu_s": cpu_s,
        "frameworks": loaded,
    }
    path = Path(folder, f"{os.getpid()}-{imported_ns}.frameworks.json")
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content), encoding="utf-8")
    part.replace(path)


def _is_worker() -> bool:
    processes = sys.modules.get("multiprocessing.process")
    if processes is None:
        return False
    # A spawned process imports the program's modules before it knows its parent.
    is_spawned = getattr(processes.current_process(), "_inheriting", False)
    return is_spawned or processes.parent_process() is not None


def versions(*, ended: bool = True) -> dict[str, dict[str, str]]:
    """The version of each framework that is loaded, and those of its CUDA, cuDNN and HIP.

    cuDNN's is read only when the process has ``ended``, since reading it may load the library.
    """
    found: dict[str, dict[str, str]] = {}
    for name in NAMED:
        module = sys.modules.get(name)
        version = getattr(module, "__version__", None)
        if isinstance(version, str):
            libraries = ignoring_errors(_LIBRARIES.get(name, _nothing))(module, ended) or {}
            known = {key: str(value) for key, value in libraries.items() if value}
            found[name] = {"version": str(version), **known}
    return found


def _nothing(_module: Any, _ended: bool) -> dict[str, Any]:
    return {}


def _of_torch(torch: Any, ended: bool) -> dict[str, Any]:
    cudnn = torch.backends.cudnn.version() if ended and torch.version.cuda else None
    hip = getattr(torch.version, "hip", None)
    return {"cuda": torch.version.cuda, "cudnn": cudnn and cudnn_version(cudnn), "hip": hip}


def _of_tensorflow(tensorflow: Any, _ended: bool) -> dict[str, Any]:
    build = tensorflow.sysconfig.get_build_info()
    return {"cuda": build.get("cuda_version"), "cudnn": build.get("cudnn_version")}


def _of_jax(_jax: Any, ended: bool) -> dict[str, Any]:
    libraries = getattr(sys.modules.get("jax._src.lib"), "cuda_versions", None)
    if libraries is None or not ended:
        return {}
    return {
        "cuda": cuda_version(libraries.cuda_runtime_get_version()),
        "cudnn": cudnn_version(libraries.cudnn_get_version()),
    }


_LIBRARIES: dict[str, Callable[[Any, bool], dict[str, Any]]] = {
    "torch": _of_torch,
    "tensorflow": _of_tensorflow,
    "jax": _of_jax,
}


def cuda_version(number: int) -> str:
    """12040 as 12.4 (cudaRuntimeGetVersion: 1000 x major + 10 x minor)."""
    return f"{number // 1000}.{number % 1000 // 10}"


def cudnn_version(number: int) -> str:
    """90100 as 9.1.0; up to version 8 majors were thousands, and 8902 is 8.9.2."""
    major = 10_000 if number >= 90_000 else 1_000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def _cpu_s() -> float:
    return sum(os.times()[:4])


_record: list[FrameworkRecord] = []


def note_import(_module: Any) -> None:
    """Record that a framework was imported: its version, and its use from now on."""
    if not _record:
        _record.append(FrameworkRecord(os.environ.get("JOULEWISE_MARKS", "")))
    _record[0].write()

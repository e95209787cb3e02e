"""Faults to inject, such as ``gpu0:lost@5s``, and the latency of the simulated NVML's calls.

A call takes as long as a driver's, by class of call. The throughput of the PCIe link is counted
over 20 ms while the caller waits. Since the driver is shared, that call also waits for other users,
by a contention that changes slowly, so that consecutive calls wait alike. It is constant in slots
of time and the same on all GPUs of a machine::

    slot = t / SLOT_NS
    wait = rint(pcie_wait_ns * max(0, 1 + SPREAD * z(seed, slot, channel 4)))

with ``z`` as in ``sensor.py``; the shim has the same formula.

The mean wait and ``SPREAD`` are fitted. A loop over eight V100s that polls utilisation, clocks,
performance state, power, temperature and throughput both ways ran at 2.045 Hz with a coefficient
of variation of 15.5 % (Grzelka). Sixteen waits of 20 ms alone would give 3.0 Hz and 0.5 %.
``benchmarks/naive_loop.py`` runs that loop.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from joulewise.errors import UsageError
from joulewise.simulate.sensor import noise
from joulewise.units import MJ_PER_J, NS_PER_S, parse_amount

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

LIBRARY_ABSENT: Final = "library-absent"
KINDS: Final = (
    "lost",
    "call",
    "counter-reset",
    "counter-backwards",
    "counter-unsupported",
    "stuck",
    "stale",
    "limit-refused",
    "denied",
    "slow",
    LIBRARY_ABSENT,
)
GRAMMAR: Final = "gpuN|gpu*:KIND[=VALUE][,call=NAME][,code=N][@START[-END]]"

_GPU: Final = re.compile(r"gpu([0-9]{1,3}|\*)")
_CALL: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_CODE: Final = re.compile(r"[1-9][0-9]{0,2}")
_LARGEST: Final = 1e9  # seconds or joules: as nanoseconds and millijoules they fit 64 bits
_NOT_SUPPORTED: Final = 3  # NVML_ERROR_NOT_SUPPORTED, where `limit-refused` names no code
_BACKWARDS_J: Final = 100  # chosen: half a second of a V100 at work, where none is given
_STALE_MAX_NS: Final = 10 * NS_PER_S  # the shared memory holds 15 s of pieces


@dataclass(frozen=True)
class InjectedFault:
    """A fault, from ``start_ns`` after the start of the simulation to ``end_ns`` (None: no end).

    ``gpu`` is None for every GPU (and for calls that concern none). ``amount`` is ns for ``stale``
    and ``slow``, mJ for ``counter-backwards``. ``code`` is the NVML code to answer with, ``call``
    the function that fails or is slow.
    """

    kind: str
    gpu: int | None = None
    start_ns: int = 0
    end_ns: int | None = None
    amount: int = 0
    code: int = 0
    call: str = ""


def parse_faults(text: str) -> tuple[InjectedFault, ...]:
    """The faults in ``text``, separated by semicolons; UsageError quotes what is wrong."""
    if not text.strip():
        raise _error(text, text, "a fault")
    return tuple(_parse_fault(part.strip()) for part in text.split(";") if part.strip())


def _parse_fault(text: str) -> InjectedFault:
    if text == LIBRARY_ABSENT:
        return InjectedFault(LIBRARY_ABSENT)
    target, colon, rest = text.partition(":")
    gpu = _GPU.fullmatch(target.strip())
    if not gpu:
        raise _error(target, text, "a GPU such as gpu0 or gpu*")
    if not colon:
        raise _error(text, text, "complete: the kind of fault is missing")
    description, at, period = rest.partition("@")
    start_ns, end_ns = _parse_period(period, text) if at else (0, None)
    words = dict(_split(word) for word in description.split(","))
    kind = description.split(",")[0].partition("=")[0].strip()
    if kind == LIBRARY_ABSENT:
        raise _error(kind, text, "a fault of one GPU: write it without a GPU")
    if kind not in KINDS:
        raise _error(kind, text, "a kind of fault: " + ", ".join(KINDS))
    allowed = {kind, *_OPTIONS.get(kind, ())}
    for word in words:
        if word not in allowed:
            raise _error(word, text, f"an option of {kind}: {', '.join(sorted(allowed))}")
    return InjectedFault(
        kind,
        None if gpu[1] == "*" else int(gpu[1]),
        start_ns,
        end_ns,
        _parse_amount(kind, words[kind], text),
        _parse_code(kind, words.get("code"), text),
        _parse_call(kind, words.get("call"), text),
    )


_OPTIONS: Final = {"call": ("code",), "slow": ("call",), "limit-refused": ("code",)}


def _split(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name.strip(), value.strip()


def _parse_period(text: str, whole: str) -> tuple[int, int | None]:
    start, dash, end = text.partition("-")
    start_ns = _parse_time_ns(start, whole)
    if not dash:
        return start_ns, None
    end_ns = _parse_time_ns(end, whole)
    if end_ns <= start_ns:
        raise _error(text, whole, "an end after its start")
    return start_ns, end_ns


def _parse_time_ns(text: str, whole: str) -> int:
    return round(_parse(text, whole, "time", "s", "a time such as 5s or 500ms") * NS_PER_S)


def _parse(text: str, whole: str, kind: str, default_unit: str, accepted: str) -> float:
    try:
        value = parse_amount(text, kind, default_unit=default_unit).value
    except ValueError:
        raise _error(text, whole, accepted) from None
    if value >= _LARGEST:
        raise _error(text, whole, accepted)
    return value


def _parse_amount(kind: str, value: str, whole: str) -> int:
    if kind in {"stale", "slow"}:
        if not value:
            raise _error(kind, whole, f"complete: it needs a time, such as {kind}=500ms")
        amount = _parse_time_ns(value, whole)
        if kind == "stale" and amount > _STALE_MAX_NS:
            raise _error(value, whole, "at most 10s, which is as long as the simulation remembers")
        return amount
    if kind == "counter-backwards":
        text = value or f"{_BACKWARDS_J}J"
        return round(_parse(text, whole, "energy", "", "an energy such as 100J") * MJ_PER_J)
    if value and kind != "call":
        raise _error(value, whole, f"{kind} without a value")
    return 0


def _parse_code(kind: str, value: str | None, whole: str) -> int:
    if value is None:
        if kind == "call":
            raise _error(whole, whole, "complete: it needs a code to answer with, such as code=15")
        return _NOT_SUPPORTED if kind == "limit-refused" else 0
    if not _CODE.fullmatch(value):
        raise _error(value, whole, "an NVML code from 1 to 999")
    return int(value)


def _parse_call(kind: str, value: str | None, whole: str) -> str:
    if value is None and kind != "call":
        return ""
    if not value or not _CALL.fullmatch(value):
        raise _error(value or kind, whole, "a call such as call=GetPowerUsage")
    calls = _known_calls()
    if _short_name(value) not in calls:
        near = get_close_matches(_short_name(value), calls, n=1, cutoff=0.0)
        raise _error(value, whole, f"a function of NVML: did you mean {near[0]}?")
    return value


@cache
def _known_calls() -> tuple[str, ...]:
    """The functions that the simulated library has, by its own sources."""
    sources = (Path(__file__).parent / "shim").glob("*.[ch]")
    words = {w for f in sources for w in re.findall(r"\bnvml[A-Z]\w+", f.read_text("utf-8"))}
    return tuple(sorted({_short_name(word) for word in words if not word.endswith("_t")}))


def _short_name(call: str) -> str:
    return re.sub(r"^(nvml)?(Device)?|_v[0-9]+$", "", call)


def _error(part: str, whole: str, expected: str) -> UsageError:
    return UsageError(
        f"fault '{whole}': '{part.strip()}' is not {expected}",
        f"write {GRAMMAR}; separate several faults by ';'",
    )


SLOT_NS: Final = 2 * NS_PER_S
"""Chosen: a few loops of half a second, so that the calls of one loop mostly share a slot."""
# Coefficient of variation of the contention, fitted (see above). Doubled, the loop's rate would
# vary by about 30 % instead of 15.5 %.
SPREAD: Final = 0.44
_CONTENTION_CHANNEL: Final = 4  # of sensor.noise; 0 to 3 are the sensor's


@dataclass(frozen=True)
class Latency:
    """How long a call takes, by class; ``pcie_wait_ns`` is the mean wait besides ``pcie_ns``.

    ``pcie_ns`` is NVML's counting time (its documentation), ``pcie_wait_ns`` fitted (see above),
    the rest are chosen: the order of magnitude of a driver's calls.
    """

    identity_ns: int = 2_000
    read_ns: int = 20_000
    scan_ns: int = 200_000
    set_ns: int = 1_000_000
    pcie_ns: int = 20_000_000
    pcie_wait_ns: int = 11_200_000


NO_LATENCY: Final = Latency(0, 0, 0, 0, 0, 0)


def pcie_wait_ns(latency: Latency, seed: int, t_ns: ArrayLike) -> NDArray[np.int64]:
    """How long (ns) a throughput call at each moment waits for the driver."""
    slots = np.atleast_1d(np.asarray(t_ns, np.int64) // SLOT_NS)
    contention = np.maximum(0.0, 1.0 + SPREAD * noise(seed, slots, _CONTENTION_CHANNEL))
    return np.asarray(np.rint(latency.pcie_wait_ns * contention).astype(np.int64))

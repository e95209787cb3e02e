"""``layout.h`` as numpy types, so that both sides of the shared memory read one declaration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import numpy as np

_SOURCE: Final = (Path(__file__).parent / "shim" / "layout.h").read_text(encoding="utf-8")
_FIELD: Final = re.compile(r"^ +(?:_Atomic )?(?:struct )?(\w+) (\w+)(?:\[(\w+)\])?;$", re.MULTILINE)
_STRUCT: Final = re.compile(r"^struct (\w+) \{\n(.*?)^\};$", re.MULTILINE | re.DOTALL)
_PLAIN: Final[dict[str, Any]] = {
    "int64_t": np.int64,
    "uint64_t": np.uint64,
    "uint32_t": np.uint32,
    "double": np.float64,
    "float": np.float32,
}

CONSTANTS: Final = {
    name.removeprefix("JW_"): int(value, 0)
    for name, value in re.findall(r"^#define (JW_\w+) (\w+)$", _SOURCE, re.MULTILINE)
}


def _parse() -> dict[str, np.dtype[Any]]:
    types: dict[str, np.dtype[Any]] = {}
    for struct, body in _STRUCT.findall(_SOURCE):
        fields: list[Any] = []
        for kind, name, length in _FIELD.findall(body):
            size = CONSTANTS.get(length.removeprefix("JW_")) or int(length or 0)
            if kind == "char":
                fields.append((name, f"S{size}"))
            else:
                plain = types.get(kind) or np.dtype(_PLAIN[kind])
                fields.append((name, plain, (size,)) if size else (name, plain))
        types[struct] = np.dtype(fields, align=True)
    return types


TYPES: Final = _parse()
HEADER: Final = TYPES["jw_header"]
GPU: Final = TYPES["jw_gpu"]

"""The driver's own samples, taken out of its buffer in one piece."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from typing import Any

import pynvml

from joulewise.devices.nvidia.sensors import sample_format


def read_samples(handle: Any, kind: int, since_us: int) -> Iterator[tuple[int, float]]:
    """Time (microseconds, of the driver's clock) and value of each, oldest first.

    nvidia-ml-py has the same call, and makes an object of each sample: that takes three times as
    long as all the rest.
    """
    count, value_type = ctypes.c_uint(), ctypes.c_uint()
    arguments = (handle, kind, ctypes.c_ulonglong(since_us), ctypes.byref(value_type))
    call = _function()
    _check(call(*arguments, ctypes.byref(count), None))
    buffer = ctypes.create_string_buffer(count.value * ctypes.sizeof(pynvml.c_nvmlSample_t))
    _check(call(*arguments, ctypes.byref(count), buffer))
    form = struct.Struct(sample_format(value_type.value))
    return form.iter_unpack(memoryview(buffer)[: count.value * form.size])


def _function() -> Any:
    try:
        return pynvml.nvmlLib.nvmlDeviceGetSamples
    except AttributeError:  # not there, or NVML is closed
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None


def _check(code: int) -> None:
    if code != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(code)

from __future__ import annotations

import inspect

import pynvml
import pytest

from joulewise import errors
from joulewise.data import Unavailable
from joulewise.devices.nvidia.nvml_library import fault

CODES = sorted(
    value
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(value, int)
)
UNKNOWN = [-1, 31, 500, 1000]
OURS = [cls for _, cls in inspect.getmembers(errors, inspect.isclass)]


@pytest.mark.parametrize("code", [*CODES, *UNKNOWN])
def test_every_code_is_one_of_our_errors_with_a_hint(code):
    error = fault(code, 3).exception("gpu3 was not set")
    assert type(error) in OURS
    assert isinstance(error, errors.DeviceError | errors.OutOfRangeError)
    assert error.message.startswith("gpu3 was not set: ")
    assert error.hint
    assert "\n" not in error.message + error.hint


@pytest.mark.parametrize("code", [*CODES, *UNKNOWN])
def test_every_code_is_a_reason_why_nothing_could_be_read(code):
    unavailable = fault(code, 3).unavailable()
    assert isinstance(unavailable, Unavailable)
    assert unavailable.reason
    assert "-i N" not in unavailable.fix


def test_every_code_of_nvidia_ml_py_is_known():
    assert [code for code in CODES if "not documented" in fault(code).reason] == []


@pytest.mark.parametrize("code", UNKNOWN)
def test_an_unknown_code_is_named(code):
    assert str(code) in fault(code).reason


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (pynvml.NVML_ERROR_GPU_IS_LOST, errors.DeviceLostError),
        (pynvml.NVML_ERROR_RESET_REQUIRED, errors.DeviceLostError),
        (pynvml.NVML_ERROR_NOT_SUPPORTED, errors.NotSupportedError),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, errors.NotSupportedError),
        (pynvml.NVML_ERROR_NO_PERMISSION, errors.PermissionDeniedError),
        (pynvml.NVML_ERROR_OPERATING_SYSTEM, errors.PermissionDeniedError),
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, errors.DriverMissingError),
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, errors.DriverMissingError),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, errors.DriverMissingError),
        (pynvml.NVML_ERROR_FREQ_NOT_SUPPORTED, errors.OutOfRangeError),
        (pynvml.NVML_ERROR_TIMEOUT, errors.DeviceError),
    ],
)
def test_the_kind_of_error_is_what_a_caller_would_catch(code, error):
    assert fault(code).error is error


def test_the_hint_names_the_gpu_where_there_is_one():
    assert "--gpu-reset -i 3" in fault(pynvml.NVML_ERROR_GPU_IS_LOST, 3).fix
    assert "--gpu-reset`" in fault(pynvml.NVML_ERROR_GPU_IS_LOST).fix

"""Builds the simulated ``libnvidia-ml.so.1``; all else is in pyproject.toml.

The library is plain C with nothing of Python in it, so one build serves every Python; where it
cannot be built, joulewise installs without it and ``joulewise sim`` says what is missing.
"""

from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

SOURCES = Path("src/joulewise/simulate/nvml")
LIBRARY = "libnvidia-ml.so.1"


class BuildShim(build_ext):
    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split(".")[:-1], LIBRARY))

    def run(self) -> None:
        (SOURCES / "lib").mkdir(exist_ok=True)
        super().run()


class AnyPython(bdist_wheel):
    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


setup(
    cmdclass={"build_ext": BuildShim, "bdist_wheel": AnyPython},
    ext_modules=[
        Extension(
            "joulewise.simulate.nvml.lib.nvml",
            sources=sorted(str(path) for path in SOURCES.glob("shim/*.c")),
            depends=sorted(str(path) for path in SOURCES.glob("shim/*.h")),
            # No contraction: the same sum must have the same bits as in Python.
            extra_compile_args=["-std=c11", "-fvisibility=hidden", "-ffp-contract=off"],
            extra_link_args=[f"-Wl,-soname,{LIBRARY}"],
            libraries=["m", "pthread"],
            optional=True,
        )
    ],
)

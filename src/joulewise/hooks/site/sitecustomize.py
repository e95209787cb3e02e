"""Loads the hooks, and then the sitecustomize that would have been found without this one.

Every Python that the command starts runs this file, however old: it is valid in Python 2.7, and
does nothing before Python 3.8.
"""
# ruff: noqa: ANN202, BLE001, PTH100, PTH112, PTH118, PTH120, S110, SIM105, UP036
# mypy: ignore-errors
# (It must be valid in Python 2.7, and never raise.)

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
HOOKS = "_joulewise_hooks"


def _load_hooks():
    if sys.version_info < (3, 8) or HOOKS in sys.modules:
        return
    if not os.path.isdir(os.environ.get("JOULEWISE_MARKS", "")):
        return  # another file system (a container), or a run that is over
    from importlib.util import module_from_spec, spec_from_file_location

    folder = os.path.dirname(HERE)
    # Under a name of its own: the program may have another joulewise, or none.
    spec = spec_from_file_location(
        HOOKS, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    hooks = sys.modules[HOOKS] = module_from_spec(spec)
    spec.loader.exec_module(hooks)
    from _joulewise_hooks.import_hook import wait
    from _joulewise_hooks.out_of_memory import watch

    wait()
    watch()


def _load_next():
    """Load the next sitecustomize on the path in place of this one; an ImportError without one."""
    sys.path[:] = [entry for entry in sys.path if entry != HERE]
    if sys.version_info < (3, 4):
        import imp

        imp.load_module("sitecustomize", *imp.find_module("sitecustomize", sys.path))
        return
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
    module = sys.modules["sitecustomize"] = module_from_spec(spec)
    spec.loader.exec_module(module)


try:
    _load_hooks()
except Exception:
    pass
_load_next()

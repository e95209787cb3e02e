"""Loads hooks when frameworks are imported; costs one lookup in a set for each other import."""

from __future__ import annotations

import sys
from importlib.util import LazyLoader

TYPE_CHECKING = False
if TYPE_CHECKING:  # at run time `typing` would cost every interpreter more than all the rest
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

# The module whose import loads a hook, and the hook: a file beside this one, and its function.
HOOKS = {
    "torch": ("torch_hooks", "watch_optimizers"),
    "torch.utils.data.dataloader": ("torch_hooks", "watch_loaders"),
    "accelerate.data_loader": ("torch_hooks", "watch_accelerate"),
    # Keras 3
    "keras.src.callbacks.callback_list": ("keras_fit", "watch_callbacks"),
    "keras.src.models.model": ("keras_fit", "watch_fit"),
    # Keras 2: as tf_keras, and as tensorflow.keras of TensorFlow 2.16 and later
    "tf_keras.src.callbacks": ("keras_fit", "watch_callbacks"),
    "tf_keras.src.engine.training": ("keras_fit", "watch_fit"),
    "tf_keras.src.engine.training_v1": ("keras_fit", "watch_fit"),
    # as TensorFlow 2.13 to 2.15 brought it; the first is in Keras 3, too, with the same class
    "keras.src.callbacks": ("keras_fit", "watch_callbacks"),
    "keras.src.engine.training": ("keras_fit", "watch_fit"),
    "keras.src.engine.training_v1": ("keras_fit", "watch_fit"),
    # as TensorFlow 2.6 to 2.12 did, and by itself before; its callbacks.callbacks is Keras 2.3's
    "keras.callbacks": ("keras_fit", "watch_callbacks"),
    "keras.callbacks.callbacks": ("keras_fit", "watch_callbacks"),
    "keras.engine.training": ("keras_fit", "watch_fit"),
    "keras.engine.training_v1": ("keras_fit", "watch_fit"),
    # inside of TensorFlow 2.0 to 2.5
    "tensorflow.python.keras.callbacks": ("keras_fit", "watch_callbacks"),
    "tensorflow.python.keras.engine.training": ("keras_fit", "watch_fit"),
    "tensorflow.python.keras.engine.training_v1": ("keras_fit", "watch_fit"),
    "lightning.pytorch.trainer.call": ("lightning_fit", "watch_callbacks"),
    "lightning.pytorch.trainer.trainer": ("lightning_fit", "watch_fit"),
    "pytorch_lightning.trainer.call": ("lightning_fit", "watch_callbacks"),
    "pytorch_lightning.trainer.trainer": ("lightning_fit", "watch_fit"),
    "transformers.trainer_callback": ("hugging_face", "watch_callbacks"),
    "transformers.trainer": ("hugging_face", "watch_trainer"),
}

# Frameworks whose import and versions are recorded, whether or not a hook marks what they do.
FRAMEWORKS = ("torch", "tensorflow", "jax")


def wait() -> None:
    """Load the hooks of frameworks that are imported already, and of others when they are."""
    waiting = {*HOOKS, *FRAMEWORKS}
    for name in (*HOOKS, *FRAMEWORKS):
        if name in waiting and name in sys.modules:
            _hook(waiting, sys.modules[name])
    sys.meta_path.insert(0, _Finder(waiting))


class _Finder:
    """A finder on ``sys.meta_path`` that passes on what other finders find, and watches it load."""

    def __init__(self, waiting: set[str]) -> None:
        self._waiting = waiting

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self._waiting:
            return None
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self._watch(spec.loader)
                return spec
        return None

    def _watch(self, loader: Any) -> None:
        if isinstance(loader, LazyLoader):
            loader = loader.loader  # type: ignore[attr-defined]
        try:
            load = loader.exec_module

            # Set on this one loader, and only until the module is loaded.
            def exec_module(module: ModuleType) -> None:
                loader.__dict__.pop("exec_module", None)
                load(module)
                _hook(self._waiting, module)
                if not self._waiting and self in sys.meta_path:
                    sys.meta_path.remove(self)

            loader.exec_module = exec_module
        except Exception:  # noqa: BLE001, S110 - a loader that cannot be watched
            pass


def _hook(waiting: set[str], module: ModuleType) -> None:
    name = module.__name__
    if name not in waiting:
        return
    waiting.discard(name)
    if name in HOOKS:
        _call(*HOOKS[name], module)
    if name in FRAMEWORKS:
        _call("frameworks", "note_import", module)


def _call(file: str, function: str, module: ModuleType) -> None:
    try:
        hooks = __import__(f"{__package__}.{file}", fromlist=[function])
        getattr(hooks, function)(module)
    except Exception:  # noqa: BLE001, S110 - another version of the framework: no marks
        pass

"""Keras 2, as tf_keras and as tensorflow.keras: the real ones, in an environment of their own."""

import pytest

from tests.helpers.hooked_programs import SCRIPTS, assert_around, run_program
from tests.helpers.paths import PEERS


def python_of(peer):
    python = PEERS / peer / "bin" / "python"
    assert python.exists(), "run script/peers once"
    return python


def seen(done):
    """Of each training its epochs, their totals, its steps with theirs, and its validations."""
    trainings = []
    for training in done.named("training"):
        inside = [
            span
            for span in done.spans
            if training.start_ns <= span.start_ns < training.end_ns and span is not training
        ]
        assert all(span.end_ns <= training.end_ns for span in inside)
        epochs, steps, validations = (
            [span for span in inside if span.name == name]
            for name in ("epoch", "step", "validation")
        )
        trainings.append(
            (
                [(span.index, span.total) for span in epochs],
                [span.index for span in steps],
                {span.total for span in steps},
                len(validations),
            )
        )
    return trainings


def fits(folder, python, *arguments, module=""):
    # TensorFlow 2.16 and later has Keras 3 for its own unless it is told.
    legacy = {"TF_USE_LEGACY_KERAS": "1"} if module.startswith("tf_keras") else {}
    environ = {"KERAS_BACKEND": "tensorflow", **legacy}
    done = run_program(folder, python, SCRIPTS / "keras2_fits.py", *arguments, environ=environ)
    assert f"class {module}" in done.stdout, done.stderr
    return done


def check(done):
    assert done.exit_code == 0, done.stderr
    assert "the data ran out" in done.stdout
    assert seen(done) == [
        ([(0, 3), (1, 3), (2, 3)], list(range(12)), {12}, 3),
        ([(3, 5), (4, 5)], list(range(8)), {8}, 0),
        ([(0, 2)], [0, 1], {8}, 0),
        ([(0, 1)], [0, 1, 2, 3], {4}, 0),
    ]
    assert done.indices("training") == [0, 1, 2, 3]
    cut = [(span.name, span.index) for span in done.spans if not span.closed]
    assert cut == [("epoch", 0)]  # of the third training, which the data ran out in
    assert_around(done.named("epoch")[:5], done.said("epoch"))


@pytest.mark.parametrize(
    ("flavour", "method", "mode"),
    [
        ("tf_keras", "fit", "eager"),
        ("tf_keras", "fit_generator", "graph"),
        ("tensorflow.keras", "fit", "graph"),
        ("tensorflow.keras", "fit_generator", "eager"),
    ],
)
def test_every_fit_is_marked_once(tmp_path, flavour, method, mode):
    python = python_of("tf-keras")
    check(fits(tmp_path, python, flavour, method, mode, module="tf_keras.src.engine.training"))


def test_keras_3_on_tensorflow_is_marked_once(tmp_path):
    done = run_program(
        tmp_path,
        python_of("tf-keras"),
        SCRIPTS / "keras_cnn.py",
        environ={"KERAS_BACKEND": "tensorflow"},
    )
    assert done.exit_code == 0, done.stderr
    assert done.indices("training") == [0]
    assert done.indices("epoch") == done.indices("validation") == [0, 1, 2]
    assert done.indices("step") == list(range(12))


@pytest.mark.parametrize("peer", ["keras-2.15", "keras-2.3"])
@pytest.mark.parametrize("flavour", ["keras", "tensorflow.keras"])
@pytest.mark.parametrize("method", ["fit", "fit_generator"])
@pytest.mark.parametrize("mode", ["eager", "graph"])
def test_older_ones_are_marked_once(tmp_path, peer, flavour, method, mode):
    if not (PEERS / peer).exists():
        pytest.skip(f"script/peers {peer} makes it, with the Python that it needs")
    check(fits(tmp_path, python_of(peer), flavour, method, mode))

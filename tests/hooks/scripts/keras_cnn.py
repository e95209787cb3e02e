"""A small convolutional network on images that look a little like MNIST, in Keras."""
# ruff: noqa: T201, ARG002 - a program that prints, with the arguments its framework wants

import os
import time

os.environ.setdefault("KERAS_BACKEND", "torch")
import keras
import numpy as np

keras.utils.set_random_seed(1)
images = np.random.default_rng(1).random((96, 12, 12, 1), dtype="float32")
digits = (images.mean((1, 2, 3)) > 0.5).astype("int64")
model = keras.Sequential(
    [
        keras.layers.Conv2D(4, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(2, activation="softmax"),
    ]
)
model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])


class Clock(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        print("epoch", epoch, time.monotonic_ns(), end=" ")

    def on_epoch_end(self, epoch, logs=None):
        print(time.monotonic_ns())


history = model.fit(
    images,
    digits,
    batch_size=16,
    epochs=3,
    validation_split=1 / 3,
    verbose=0,
    callbacks=[Clock()],
)
print("loss", [value.hex() for value in history.history["loss"]])
model.evaluate(images, digits, verbose=0)
model.predict(images, verbose=0)
print("weights", float(sum(abs(w).astype("float64").sum() for w in model.get_weights())).hex())

"""Keras 2: two fits, one that fails, an evaluation; `FLAVOUR fit|fit_generator eager|graph`."""
# ruff: noqa: T201, ARG002 - a program that prints, with the arguments its framework wants

import os
import sys
import time

import numpy as np

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
flavour, method, mode = sys.argv[1:]

if flavour == "keras":  # multi-backend Keras up to 2.3, or the one that TensorFlow 2.6 brought
    import keras
else:
    import tensorflow as tf

    if mode == "graph":
        tf.compat.v1.disable_eager_execution()
    if flavour == "tf_keras":
        import tf_keras as keras
    else:
        keras = tf.keras

x = np.random.RandomState(1).rand(16, 4).astype("float32")
y = (x.sum(axis=1, keepdims=True) > 2).astype("float32")


def batches():
    while True:
        for first in range(0, len(x), 4):
            yield x[first : first + 4], y[first : first + 4]


def made():
    model = keras.Sequential([keras.layers.Dense(1, input_shape=(4,))])
    model.compile(optimizer="sgd", loss="mse")
    return model


class Clock(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        print("epoch", time.monotonic_ns(), end=" ")

    def on_epoch_end(self, epoch, logs=None):
        print(time.monotonic_ns())


class Fail(keras.callbacks.Callback):
    def on_batch_begin(self, batch, logs=None):
        if batch == 2:
            raise RuntimeError("the data ran out")


def train(model, callbacks=(), **options):
    if method == "fit_generator":
        return model.fit_generator(
            batches(), steps_per_epoch=4, verbose=0, callbacks=list(callbacks), **options
        )
    return model.fit(x, y, batch_size=4, verbose=0, callbacks=list(callbacks), **options)


model = made()
train(model, [Clock()], epochs=3, validation_data=(x, y))
train(model, [Clock()], initial_epoch=3, epochs=5)
try:
    train(made(), [Fail()], epochs=2)
except RuntimeError as error:
    print(error)
train(model, epochs=1)  # with nobody to hear of its batches
model.evaluate(x, y, verbose=0)
model.predict(x, verbose=0)
print("class", keras.Model.__module__)

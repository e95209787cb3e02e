"""Keras: a training that stops early, one that fails, one that resumes, one of long executions."""
# ruff: noqa: ARG002, T201 - a program that prints, with the arguments that Keras wants

import keras
import numpy as np

x = np.ones((8, 2), "float32")


def model(**options):
    made = keras.Sequential([keras.layers.Dense(1)])
    made.compile("sgd", "mse", **options)
    return made


class Stop(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = True


class StopInTheMiddle(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = True


class Fail(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 1:
            raise RuntimeError("the data ran out")


class Nest(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        model().fit(x, x[:, :1], verbose=0)


model().fit(x, x[:, :1], batch_size=4, epochs=5, verbose=0, callbacks=[Stop()])
try:
    model().fit(x, x[:, :1], batch_size=4, epochs=2, verbose=0, callbacks=[Fail()])
except RuntimeError as error:
    print(error)
model().fit(x, x[:, :1], batch_size=4, initial_epoch=3, epochs=5, verbose=0, callbacks=[Nest()])
model().fit(x, x[:, :1], batch_size=4, epochs=5, verbose=0, callbacks=[StopInTheMiddle()])

# What a fit with steps_per_execution=3 tells, which the torch backend does not have.
callbacks = keras.callbacks.CallbackList([], model=model(), epochs=1, steps=4)
callbacks.on_train_begin()
callbacks.on_epoch_begin(0)
for first, last in [(0, 2), (3, 3)]:
    callbacks.on_train_batch_begin(first)
    callbacks.on_train_batch_end(last)
callbacks.on_epoch_end(0)
callbacks.on_train_end()

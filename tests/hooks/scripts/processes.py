"""Trainings in processes that the program starts itself, one for each start method."""
# ruff: noqa: T201 - a program that prints

import multiprocessing
import os
import time

import torch
from torch.utils.data import DataLoader, TensorDataset


def train(name, epochs):
    torch.set_num_threads(1)
    loader = DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=4)
    weights = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([weights], lr=0.1)
    for _ in range(epochs):
        for (inputs,) in loader:
            (inputs @ weights).sum().backward()
            optimizer.step()
    print(name, os.getpid(), time.monotonic_ns(), flush=True)


if __name__ == "__main__":
    train("parent", 1)
    for number, method in enumerate(["fork", "spawn", "forkserver"], start=2):
        child = multiprocessing.get_context(method).Process(target=train, args=(method, number))
        child.start()
        child.join()
        assert child.exitcode == 0

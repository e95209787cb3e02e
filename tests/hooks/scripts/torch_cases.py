"""Loops as people write them, one after the other; each says when it began and ended."""
# ruff: noqa: T201 - a program that prints

import itertools
import pickle
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(1)
data = TensorDataset(torch.randn(12, 4))
CASES = []


def case(function):
    CASES.append(function)
    return function


def parts(kind=torch.optim.SGD, **options):
    weights = torch.nn.Parameter(torch.ones(4))
    return weights, kind([weights], lr=0.01, **options)


def update(optimizer, weights, inputs):
    optimizer.zero_grad()
    (inputs @ weights).square().mean().backward()
    optimizer.step()


@case
def persistent_workers():
    loader = DataLoader(data, 4, num_workers=1, persistent_workers=True)
    held_out = DataLoader(data, 6, num_workers=1)
    weights, optimizer = parts()
    for _ in range(2):
        for (inputs,) in loader:
            update(optimizer, weights, inputs)
        for (inputs,) in held_out:
            inputs @ weights


@case
def new_loader_each_epoch():
    weights, optimizer = parts()
    for _ in range(3):
        for (inputs,) in DataLoader(data, 4):
            update(optimizer, weights, inputs)


@case
def pickled_loader():
    loader = pickle.loads(pickle.dumps(DataLoader(data, 4)))
    weights, optimizer = parts()
    for (inputs,) in loader:
        update(optimizer, weights, inputs)


@case
def optimizer_each_epoch():
    weights, optimizer = parts()
    for _ in range(2):
        for (inputs,) in DataLoader(data, 4):
            update(optimizer, weights, inputs)
        optimizer = torch.optim.SGD([weights], lr=0.001)
    torch.utils.swap_tensors(weights, torch.nn.Parameter(torch.zeros(4)))


@case
def two_optimizers():
    (one, first), (other, second) = parts(), parts(torch.optim.Adam)
    for (inputs,) in DataLoader(data, 4):
        update(first, one, inputs)
        update(second, other, inputs)


@case
def accumulated():
    weights, optimizer = parts()
    for _ in range(2):
        for number, (inputs,) in enumerate(DataLoader(data, 3), start=1):
            (inputs @ weights).square().mean().backward()
            if number % 2 == 0:
                optimizer.step()


@case
def scaler_skips():
    weights, optimizer = parts()
    scaler = torch.amp.GradScaler("cpu")
    for number, (inputs,) in enumerate(DataLoader(data, 4)):
        optimizer.zero_grad()
        loss = (inputs @ weights).square().mean() * (float("inf") if number == 0 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@case
def lbfgs():
    weights, optimizer = parts(torch.optim.LBFGS, max_iter=2)
    loader = DataLoader(data, 4)

    def closure():
        optimizer.zero_grad()
        loss = sum((inputs @ weights - 1).square().mean() for (inputs,) in loader)
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)


@case
def broken_off():
    weights, optimizer = parts()
    for _ in range(2):
        for number, (inputs,) in enumerate(DataLoader(data, 2)):
            update(optimizer, weights, inputs)
            if number == 2:
                break


@case
def zipped_and_cycled():
    weights, optimizer = parts()
    second = itertools.cycle(DataLoader(data, 12))
    for _ in range(2):
        for (inputs,), (others,) in zip(DataLoader(data, 4), second):  # noqa: B905
            update(optimizer, weights, inputs + others[:4])


@case
def looked_into():
    loader = DataLoader(data, 4)
    samples = iter(loader)
    next(samples)
    weights, optimizer = parts()
    for (inputs,) in loader:
        update(optimizer, weights, inputs)
    next(iter(loader))


@case
def by_hand():
    weights, optimizer = parts()
    for batch in data.tensors[0].split(4):
        update(optimizer, weights, batch)


@case
def compiled_model():
    weights, optimizer = parts()
    loss_of = torch.compile(
        lambda inputs: (inputs @ weights).square().mean(), fullgraph=True, backend="eager"
    )
    for (inputs,) in DataLoader(data, 4):
        optimizer.zero_grad()
        loss_of(inputs).backward()
        optimizer.step()


@case
def compiled_optimizer():
    weights, optimizer = parts(torch.optim.Adam, foreach=True)
    weights.grad = torch.ones(4)

    @torch.compile(backend="eager")
    def step():
        optimizer.step()

    for _ in DataLoader(data, 4):
        step()
    print("compiled", weights.tolist())


@case
def failing_data():
    class Broken(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return {0: torch.ones(4)}[index]

    weights, optimizer = parts()
    try:
        for inputs in DataLoader(Broken(), 1):
            update(optimizer, weights, inputs)
    except KeyError as error:
        print("raised", error)


if __name__ == "__main__":
    for function in CASES:
        begin_ns = time.monotonic_ns()
        function()
        print("case", function.__name__, begin_ns, time.monotonic_ns())

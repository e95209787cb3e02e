"""A loop of one's own with accelerate: two epochs with a validation each."""
# ruff: noqa: T201 - a program that prints

import time

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(1)
x = torch.randn(32, 8)
data = TensorDataset(x, x.sum(1, keepdim=True))
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Linear(8, 1)
model, optimizer, training, held_out = accelerator.prepare(
    model,
    torch.optim.SGD(model.parameters(), lr=0.01),
    DataLoader(data, batch_size=4),
    DataLoader(data, batch_size=16),
)
for _ in range(2):
    times = [time.monotonic_ns()]
    for inputs, targets in training:
        times.append(time.monotonic_ns())
        with accelerator.accumulate(model):
            accelerator.backward(torch.nn.functional.mse_loss(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
    print("epoch", times[0], times[1], times[-1], time.monotonic_ns())
    times = [time.monotonic_ns()]
    with torch.no_grad():
        for inputs, _ in held_out:
            times.append(time.monotonic_ns())
            model(inputs)
    print("validation", times[0], times[1], times[-1], time.monotonic_ns())

"""A loop of one's own: two epochs, each followed by a validation."""
# ruff: noqa: T201 - a program that prints

import time

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
torch.set_num_threads(1)
x = torch.randn(64, 8)
data = TensorDataset(x, x.sum(1, keepdim=True))
training, held_out = DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=16)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters())

for _ in range(2):
    times = [time.monotonic_ns()]
    for inputs, targets in training:
        times.append(time.monotonic_ns())
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    print("epoch", times[0], times[1], times[-1], time.monotonic_ns())
    times = [time.monotonic_ns()]
    with torch.no_grad():
        for inputs, targets in held_out:
            times.append(time.monotonic_ns())
            torch.nn.functional.mse_loss(model(inputs), targets)
    print("validation", times[0], times[1], times[-1], time.monotonic_ns())
print("weights", sum(p.double().sum().item() for p in model.parameters()).hex())

"""Data-parallel training, for torchrun: every rank the same two epochs."""

import os
import time

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
torch.manual_seed(1)
x = torch.randn(64, 8)
data = TensorDataset(x, x.sum(1, keepdim=True))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(2):
    sampler.set_epoch(epoch)
    times = [time.monotonic_ns()]
    for inputs, targets in loader:
        times.append(time.monotonic_ns())
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    line = f"epoch {epoch} {times[0]} {times[1]} {times[-1]} {time.monotonic_ns()}\n"
    os.write(1, line.encode())
torch.distributed.destroy_process_group()

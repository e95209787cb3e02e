"""A loop of one's own on PyTorch, until the standard input ends."""
# ruff: noqa: T201 - a program that prints

import os
import select
import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

from joulewise.simulate import gpu

print(os.getpid(), flush=True)
torch.set_num_threads(1)
model, board = torch.nn.Linear(8, 1), gpu(0)


def load(*_):
    board.step("resnet50", batch_size=16)


model.register_forward_pre_hook(load)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.ones(256, 8)), batch_size=8)
while not select.select([sys.stdin], [], [], 0)[0]:
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
print("trained", flush=True)
sys.exit(7)

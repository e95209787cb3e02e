"""Cells of a notebook: one fails, and a training with limited batches comes after it."""

from IPython.core.interactiveshell import InteractiveShell

DATA = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(32, 8), torch.randn(32, 1))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
TRAINING = """
for epoch in range(3):
    for i, (inputs, targets) in enumerate(DataLoader(data, batch_size=4)):
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
        if i == 2:
            break
"""
shell = InteractiveShell.instance()
for cell in ("1 / 0", DATA, TRAINING):
    shell.run_cell(cell)

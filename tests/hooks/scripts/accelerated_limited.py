"""A loop on accelerate with three batches in each epoch; the last one fails in its third."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
data = TensorDataset(torch.randn(32, 8), torch.randn(32, 1))
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(8, 1)
model, optimizer, training = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), lr=0.01), DataLoader(data, batch_size=4)
)
for epoch in range(3):
    for i, (inputs, targets) in enumerate(training):
        accelerator.backward(torch.nn.functional.mse_loss(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
        if i == 2 and epoch == 2:
            raise SystemError
        if i == 2:
            break

"""A small training for `joulewise job run`: a network learns which of ten sources a point is from.

    joulewise job run example --set batch_size=32,64,...,1024 --default batch_size=512
        --target 'val_acc>=0.9' --max-epochs 100
        -- python examples/recurring_training.py --batch-size {batch_size}

The data are new each time, as they are for a model that is trained again every night; --seed makes
them the same. It needs nothing but torch, and takes some seconds on one core of a CPU. With small
batches the target takes few epochs that are long, with large ones many short epochs.
"""

from __future__ import annotations

import argparse
import secrets

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import joulewise

TRAINING, VALIDATION, FEATURES, SOURCES = 6_000, 2_000, 16, 10
SPREAD = 1.45  # of the points around their source, in units of the distance between sources


def make_data(seed: int) -> tuple[TensorDataset, TensorDataset]:
    """Points around the centres of ten sources, each in two places, for training and validation."""
    random = torch.Generator().manual_seed(seed)
    centres = torch.randn(SOURCES, 2, FEATURES, generator=random) * 2
    count = TRAINING + VALIDATION
    source = torch.randint(SOURCES, (count,), generator=random)
    place = torch.randint(2, (count,), generator=random)
    points = centres[source, place] + SPREAD * torch.randn(count, FEATURES, generator=random)
    both = points[:TRAINING], source[:TRAINING]
    return TensorDataset(*both), TensorDataset(points[TRAINING:], source[TRAINING:])


def measure_accuracy(model: nn.Module, data: TensorDataset) -> float:
    points, source = data.tensors
    with torch.inference_mode():
        return (model(points).argmax(1) == source).double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--target", type=float, default=0.9)
    parser.add_argument("--lr", type=float, default=0.004)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    seed = secrets.randbelow(2**31) if given.seed is None else given.seed
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    training, validation = make_data(seed)
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, SOURCES))
    optimizer = torch.optim.SGD(model.parameters(), lr=given.lr, momentum=0.5)
    loader = DataLoader(training, batch_size=given.batch_size, shuffle=True)
    for epoch in range(given.epochs):
        with joulewise.span("epoch", epoch):
            for points, source in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(points), source).backward()
                optimizer.step()
        accuracy = measure_accuracy(model, validation)
        joulewise.log(val_acc=accuracy)
        print(f"epoch {epoch + 1}: val_acc {accuracy:.3f}", flush=True)
        if accuracy >= given.target:
            break


if __name__ == "__main__":
    main()

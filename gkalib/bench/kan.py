"""B-spline Kolmogorov–Arnold networks beside perceptrons, on small pictures: KArAt's table 8, reduced.

``python -m gkalib.bench.kan --seeds 3`` records the experiment ``kan-mlp``; chapter 9 reads it.
"""

import argparse
import math
import time
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gkalib import results
from gkalib.data import fashion_mnist, mnist
from gkalib.normalizers import BSpline, Units

DATA = {"mnist": mnist, "fashion-mnist": fashion_mnist}
TRAIN, TEST, STEPS, BATCH = 10_000, 2_000, 300, 64


def kan(*widths: int, degree: int) -> nn.Module:
    """Layers of units from 784 pixels to ten logits, a SiLU and a spline on ten points of [−4, 4] each."""
    sizes = (784, *widths, 10)
    layers = [
        Units(1, inputs, outputs, BSpline(10, degree=degree), base="silu")
        for inputs, outputs in pairwise(sizes)
    ]
    return nn.Sequential(*layers)


def mlp(*widths: int) -> nn.Module:
    """The perceptron of these widths, with SiLU."""
    sizes, layers = (784, *widths), []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.SiLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 10))


# What is built, and the peak of the learning rate: of 0.001, 0.003, 0.01 and 0.03 the best after 200 steps on
# 2,000 training pictures of Fashion-MNIST set aside, for degree 3 and for either perceptron.
ARMS: dict[str, tuple[Callable[[], nn.Module], float]] = {
    "kan-1": (lambda: kan(10, 10, degree=1), 0.003),
    "kan-3": (lambda: kan(10, 10, degree=3), 0.003),
    "mlp": (lambda: mlp(10, 10), 0.01),
    "mlp-equal": (lambda: mlp(122, 122), 0.01),
}


def pictures(name: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training pictures ``[1 1 n 784]`` at mean 0 and deviation 1, their labels, and the same held out."""
    images, labels = DATA[name]()
    order = torch.randperm(60_000, generator=torch.Generator().manual_seed(0))[:TRAIN]
    x, y = torch.from_numpy(images).flatten(1), torch.from_numpy(labels)
    train, test = x[order], x[60_000 : 60_000 + TEST]
    mean, deviation = train.mean(), train.std()
    standard = [((part - mean) / deviation)[None, None] for part in (train, test)]
    return standard[0], y[order], standard[1], y[60_000 : 60_000 + TEST]


def accuracy(model: nn.Module, x: Tensor, labels: Tensor) -> float:
    """The share of pictures whose largest logit is their label's."""
    with torch.no_grad():
        guesses = torch.cat([model(part)[0, 0].argmax(-1) for part in x.split(250, dim=2)])
    return (guesses == labels).float().mean().item()


def train(model: nn.Module, x: Tensor, labels: Tensor, *, rate: float, seed: int, steps: int = STEPS) -> None:
    """Adam with a short warm-up and a cosine to zero."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * step / steps))
    )
    for _ in range(steps):
        index = torch.randint(len(labels), (BATCH,), generator=generator)
        loss = cross_entropy(model(x[:, :, index])[0, 0], labels[index])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()


def main(arguments: Sequence[str] | None = None) -> None:
    """Train every arm on both sets and record it."""
    parser = argparse.ArgumentParser(prog="python -m gkalib.bench.kan", description=__doc__)
    parser.add_argument("arm", nargs="*", default=list(ARMS), help=f"any of {', '.join(ARMS)}; all if none")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from 0 (%(default)s)")
    options = parser.parse_args(arguments)
    data = {name: pictures(name) for name in DATA}
    for arm in options.arm:
        make, rate = ARMS[arm]
        for seed in range(options.seeds):
            start, metrics = time.perf_counter(), {}
            for name, (x, labels, test, test_labels) in data.items():
                torch.manual_seed(seed)
                model = make()
                train(model, x, labels, rate=rate, seed=seed)
                metrics[name.replace("-", "_")] = accuracy(model, test, test_labels)
                metrics["parameters"] = sum(p.numel() for p in model.parameters())
            record = results.Record(
                experiment="kan-mlp",
                arm=arm,
                scale="reduced",
                recipe={"arm": arm, "train": TRAIN, "test": TEST, "steps": STEPS, "batch": BATCH, "lr": rate},
                seed=seed,
                device="cpu",
                wall_seconds=round(time.perf_counter() - start, 1),
                metrics=metrics,
                **results.provenance("torch", "numpy"),
            )
            results.save(record)
            print(arm, seed, {name: round(value, 3) for name, value in metrics.items()}, flush=True)


if __name__ == "__main__":
    main()

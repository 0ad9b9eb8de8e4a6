"""The spline networks of KArAt's table 8 and the perceptrons of equal size."""

import csv
import re
from pathlib import Path

import torch

from gkalib.experiments import kan_mlp
from tests.need import need

ROOT = Path(__file__).resolve().parents[2]


def test_the_networks_are_those_of_the_table():
    with (ROOT / "data/results/papers/karat.csv").open(encoding="utf-8") as file:
        cells = [cell for cell in csv.DictReader(file) if cell["where"] == "Table 8, second part"]
    assert len({cell["row"] for cell in cells}) == len(kan_mlp.ROWS)
    for row, network in zip(dict.fromkeys(cell["row"] for cell in cells), kan_mlp.ROWS, strict=True):
        order, grid, low, high, *widths = map(int, re.findall(r"-?\d+", row))
        assert network == kan_mlp.Splines(order, grid, high, tuple(widths)) and low == -high
        measured = [cell["evidence"] for cell in cells if cell["row"] == row]
        assert measured == [f"study kan-mlp/{network.arm}/{name}" for name in ("mnist", "fashion_mnist")]


def test_perceptron_and_spline_network_have_equally_many_parameters():
    sizes = {name: sum(p.numel() for p in make().parameters()) for name, (make, _) in kan_mlp.ARMS.items()}
    assert sizes["kan-3"] == sum(a * b * (10 + 3 - 1 + 2) for a, b in ((784, 10), (10, 10), (10, 10)))
    assert abs(sizes["mlp-equal"] / sizes["kan-3"] - 1) < 0.01


def test_both_networks_learn():
    labels = torch.arange(25 * kan_mlp.BATCH) % 10
    x = torch.randn(10, 784)[labels][None, None]
    for name in ("kan-1", "mlp"):
        make, rate = kan_mlp.ARMS[name]
        model = make()
        kan_mlp.train(model, x, labels, rate=rate, seed=0)
        assert kan_mlp.accuracy(model, x, labels) > 0.5, name


def test_the_networks_are_trained_and_tested_on_all_pictures():
    need("fashion-mnist")
    x, labels, test, test_labels = kan_mlp.pictures("fashion-mnist")
    assert x.shape == (1, 1, 60_000, 784) and test.shape == (1, 1, 10_000, 784)
    assert labels.bincount().tolist() == [6000] * 10 and test_labels.bincount().tolist() == [1000] * 10
    assert x.mean().abs() < 1e-4 and abs(x.std() - 1) < 1e-4

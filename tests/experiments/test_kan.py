"""The spline networks of KArAt's table 8 and the perceptrons of equal size."""

import csv
import re
from pathlib import Path

import pytest
import torch

from chapters.experiments import kan

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("experiment", "rows", "where", "names"),
    [
        (kan.MLP, kan.ROWS, "Table 8, second part", ("mnist", "fashion_mnist")),
        (kan.CIFAR, kan.CIFAR_ROWS, "Table 8", ("cifar10",)),
        (kan.CIFAR_100, kan.CIFAR_ROWS, "Table 8", ("cifar100",)),
    ],
    ids=["kan-mlp", "kan-cifar", "kan-cifar100"],
)
def test_the_networks_are_those_of_the_table(experiment, rows, where, names):
    with (ROOT / "data/results/papers/karat.csv").open(encoding="utf-8") as file:
        cells = [cell for cell in csv.DictReader(file) if cell["where"] == where]
    networks, evidence = [], []
    for row in dict.fromkeys(cell["row"] for cell in cells):
        order, grid, low, high, *widths = map(int, re.findall(r"-?\d+", row))
        assert low == -high
        networks.append(kan.Splines(order, grid, high, tuple(widths)))
        stands = {cell["evidence"] for cell in cells if cell["row"] == row}
        evidence.append({one for one in stands if one.startswith(f"study {experiment.name}/")})
    assert tuple(networks) == rows
    for network, measured in zip(networks, evidence, strict=True):
        assert measured == {f"study {experiment.name}/{network.arm}/{name}" for name in names}


def test_perceptron_and_spline_network_have_equally_many_parameters():
    for arms, pixels in ((kan.ARMS, 784), (kan.CIFAR_ARMS, 3072)):
        equal, splines = (
            sum(parameter.numel() for parameter in arms[arm][0]().parameters())
            for arm in ("mlp-equal", "kan-3")
        )
        assert splines == sum(a * b * (10 + 3 - 1 + 2) for a, b in ((pixels, 10), (10, 10), (10, 10)))
        assert abs(equal / splines - 1) < 0.01


def test_a_network_for_a_hundred_classes_is_trained(monkeypatch):
    """On made-up pictures of another ten classes for each."""
    labels = torch.arange(4 * kan.BATCH) % 100
    x = torch.randn(100, kan.PIXELS)[labels][None, None]
    monkeypatch.setattr(kan, "cifar_pictures", lambda load: (x, labels, x, labels))
    metrics, _ = kan.CIFAR_100.arms["kan-1"](0)
    assert 0 <= metrics["cifar100"] <= 1
    assert metrics["parameters"] == (kan.PIXELS * 10 + 10 * 10 + 10 * 100) * (10 + 1 - 1 + 2)
    assert kan.CIFAR_100.recipe("kan-1")["data"] == "cifar100"


def test_both_networks_learn():
    labels = torch.arange(25 * kan.BATCH) % 10
    x = torch.randn(10, 784)[labels][None, None]
    for name in ("kan-1", "mlp"):
        make, rate = kan.ARMS[name]
        model = make()
        kan.train(model, x, labels, rate=rate, seed=0)
        assert kan.accuracy(model, x, labels) > 0.5, name


@pytest.mark.data("fashion_mnist")
def test_the_networks_are_trained_and_tested_on_all_pictures():
    x, labels, test, test_labels = kan.pictures("fashion-mnist")
    assert x.shape == (1, 1, 60_000, 784) and test.shape == (1, 1, 10_000, 784)
    assert labels.bincount().tolist() == [6000] * 10 and test_labels.bincount().tolist() == [1000] * 10
    assert x.mean().abs() < 1e-4 and abs(x.std() - 1) < 1e-4


@pytest.mark.data("cifar10")
def test_the_networks_on_cifar_are_trained_and_tested_on_all_pictures():
    x, labels, test, test_labels = kan.cifar_pictures()
    assert x.shape == (1, 1, 50_000, 3072) and test.shape == (1, 1, 10_000, 3072)
    assert labels.bincount().tolist() == [5000] * 10 and test_labels.bincount().tolist() == [1000] * 10
    assert x.mean().abs() < 1e-4 and abs(x.std() - 1) < 1e-4

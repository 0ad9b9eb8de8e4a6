"""Losses by rate, what is called diverged, and the cost of missing the best rate."""

import pytest

from chapters.figures import rate_sensitivity as figures
from tests.records import record

RUNS = [
    record(arm=f"gka-{name}", seed=seed, recipe={"lr": lr}, metrics={"val_loss": loss, "baseline_loss": 2.0})
    for name, lr, losses in (
        ("double", 0.02, (1.0, 3.0)),
        ("half", 0.005, (0.5, 0.7)),
        ("same", 0.01, (2.0, 2.5)),
    )
    for seed, loss in enumerate(losses)
]
RUNS += [record(arm="softmax-same", recipe={"lr": 0.01}, metrics={"val_loss": 0.1, "baseline_loss": 2.0})]


def test_losses_are_by_rate_and_of_one_arm():
    losses = figures.by_rate(RUNS, "gka")
    assert [*losses] == [0.005, 0.01, 0.02] and losses[0.02] == [1.0, 3.0]
    assert figures.by_rate(RUNS, "softmax") == {0.01: [0.1]}


def test_no_better_than_frequencies_is_diverged():
    assert figures.diverged(RUNS, "gka") == 3 and figures.diverged(RUNS, "softmax") == 0


def test_sensitivity_is_the_mean_over_rates_above_the_best():
    assert figures.sensitivity({0.1: [1.0, 3.0], 0.2: [0.5, 0.7], 0.4: [1.0]}) == pytest.approx(3.6 / 3 - 0.6)


def test_dots_are_seeds_and_lines_their_means(axes):
    figures.curves(axes, RUNS, {"gka": "blue"})
    mean, *dots = axes.lines
    assert [*mean.get_xdata()] == [0.005, 0.01, 0.02] and mean.get_ydata()[2] == 2.0
    assert [*dots[2].get_ydata()] == [1.0, 3.0] and axes.get_xscale() == "log"

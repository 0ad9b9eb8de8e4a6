"""The average of the weights: its formula and its start."""

import torch
from torch import nn

from gkalib.training.optim import weight_average
from tests.tolerance import equal


def test_it_starts_from_the_weights_after_the_first_step_and_follows_the_formula():
    model = nn.Linear(3, 2).double()
    averaged = weight_average(model, 0.9)
    assert averaged is not None
    path, expected = [], None
    for _ in range(5):
        with torch.no_grad():
            model.weight += torch.randn(2, 3, dtype=torch.float64)
        averaged.update_parameters(model)
        now = model.weight.detach().clone()
        expected = now if expected is None else 0.9 * expected + 0.1 * now
        path.append((averaged.module.weight.detach().clone(), expected))
    for actual, formula in path:
        equal(actual, formula)

"""Training within a page: what it lowers, what it keeps, and what does not disturb it."""

import pytest
import torch

from chapters.experiments.double import train_double
from gkalib.experiments import task


def trained(dtype=torch.float64, disturb=0, **options):
    learned = task("digits", train=200, test=100, patch=4)
    torch.manual_seed(0)
    model = learned.model("softmax", depth=1, dim=16).to(dtype)
    torch.manual_seed(disturb)
    return learned, model, train_double(model, learned, steps=40, peak=1e-2, **options)


def loss(learned, model):
    with torch.no_grad():
        outputs = model(learned.images.double())
    return torch.nn.functional.cross_entropy(outputs, learned.labels).item()


def test_it_learns_and_keeps_where_it_was():
    learned, model, kept = trained(every=10)
    assert len(kept) == 5
    after = loss(learned, model)
    for name, parameter in model.named_parameters():
        assert torch.equal(kept[-1][name], parameter)
    model.load_state_dict(kept[0], strict=False)
    assert after < loss(learned, model) - 0.5
    assert trained()[2] == []


def test_no_other_random_draw_changes_it():
    first, second = (trained(disturb=seed)[1] for seed in (1, 2))
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_model_in_float32_is_refused():
    with pytest.raises(ValueError, match=r"^train_double: parameters are torch.float32"):
        trained(dtype=torch.float32)

"""Accuracy counts what it says, in parts that add up, and leaves the model as it was."""

import math

import pytest
import torch
from torch import nn

from gkalib.evaluation import accuracy, accuracy_of, accuracy_sums


def scored(logits, labels):
    """The accuracy of a model whose logits are given."""
    batch = torch.zeros(len(logits), 1), torch.tensor(labels)
    return accuracy(lambda images: torch.tensor(logits), [batch])


def test_by_hand():
    logits = [[6.0, 5, 4, 3, 2, 1, 0]] * 4
    found = scored(logits, [0, 4, 5, 1])
    assert found["top1"] == 0.25
    assert found["top5"] == 0.75
    normalizer = math.log(sum(math.exp(x) for x in range(7)))
    assert found["loss"] == pytest.approx(normalizer - (6 + 2 + 1 + 5) / 4, rel=1e-6)


def test_five_guesses_are_all_where_there_are_fewer_classes():
    assert scored([[1.0, 2, 3], [3.0, 2, 1]], [0, 0])["top5"] == 1


def test_a_model_that_says_nothing_is_right_by_chance_only():
    """Equal logits count for the class of the smallest number, so ten classes give one tenth."""
    found = scored([[0.0] * 10] * 10, list(range(10)))
    assert (found["top1"], found["top5"]) == (0.1, 0.5)
    assert found["loss"] == pytest.approx(math.log(10), rel=1e-6)


def test_a_broken_model_is_never_right():
    found = scored([[math.nan] * 3, [math.nan, 0.0, 1.0]], [0, 2])
    assert found["top1"] == 0
    assert math.isnan(found["loss"])


def test_parts_add_up_and_left_out_labels_do_not_count():
    torch.manual_seed(1)
    model, images = nn.Linear(8, 12), torch.randn(30, 8)
    labels = torch.randint(12, (30,))
    whole = accuracy(model, [(images, labels)])
    padded = torch.cat([labels[20:], torch.full((5,), -1)])
    parts = accuracy_sums(model, [(images[:7], labels[:7]), (images[7:20], labels[7:20])])
    parts = parts + accuracy_sums(model, [(torch.cat([images[20:], torch.randn(5, 8)]), padded)])
    assert accuracy_of(parts) == pytest.approx(whole, rel=1e-6)
    assert 0 < whole["top1"] < whole["top5"] < 1


def test_the_model_is_measured_without_dropout_and_left_as_it_was():
    model = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.9), nn.Linear(50, 3))
    model[0].eval()
    batch = [(torch.randn(64, 4), torch.randint(3, (64,)))]
    assert accuracy(model, batch) == accuracy(model, batch)
    assert [module.training for module in model.modules()] == [True, False, True, True]
    assert all(parameter.grad is None for parameter in model.parameters())


def test_refusals():
    with pytest.raises(ValueError, match="evaluate: there are no labeled images"):
        accuracy(nn.Linear(2, 2), [])
    with pytest.raises(ValueError, match="labels from 0 to 3, and the model has 3 classes"):
        scored([[0.0] * 3] * 2, [0, 3])
    with pytest.raises(ValueError, match="labels from -2 to 1"):
        scored([[0.0] * 3] * 2, [-2, 1])

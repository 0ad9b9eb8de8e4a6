"""Accuracy and bits per byte follow their definitions, in parts that add up; a model stays as it was."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from gkalib.evaluation import (
    TASKS,
    Completion,
    accuracy,
    bits_per_byte,
    compare,
    core,
    evaluate,
    tasks,
    text_loss,
)
from gkalib.models import gpt
from tests.evaluation.toys import Words


def scored(logits, labels):
    """The accuracy of a model whose logits are given."""
    batch = torch.zeros(len(logits), 1), torch.tensor(labels)
    return accuracy(lambda images: torch.tensor(logits), [batch])


def test_accuracy_by_hand():
    logits = [[6.0, 5, 4, 3, 2, 1, 0]] * 4
    actual = scored(logits, [0, 4, 5, 1])
    assert actual["top1"] == 0.25
    assert actual["top5"] == 0.75
    normalizer = math.log(sum(math.exp(x) for x in range(7)))
    assert actual["loss"] == pytest.approx(normalizer - (6 + 2 + 1 + 5) / 4, rel=1e-6)


def test_five_guesses_are_all_where_there_are_fewer_classes():
    assert scored([[1.0, 2, 3], [3.0, 2, 1]], [0, 0])["top5"] == 1


def test_a_model_that_says_nothing_is_right_by_chance_only():
    """Equal logits count for the class of the smallest number, so ten classes give one tenth."""
    for label in range(10):
        actual = scored([[0.0] * 10], [label])
        assert (actual["top1"], actual["top5"]) == (label < 1, label < 5)
        assert actual["loss"] == pytest.approx(math.log(10), rel=1e-6)


def test_a_broken_model_is_never_right():
    actual = scored([[math.nan] * 3, [math.nan, 0.0, 1.0]], [0, 2])
    assert actual["top1"] == 0
    assert math.isnan(actual["loss"])


def in_parts(measure, batches):
    """What processes find that each measure one of the batches."""
    sums = []
    for batch in batches:
        found = measure([batch], total=lambda part: sums.append(part) or sum(sums))
    return found


def test_parts_of_images_add_up_and_left_out_labels_do_not_count():
    torch.manual_seed(1)
    model, images = nn.Linear(8, 12), torch.randn(30, 8)
    labels = torch.randint(12, (30,))
    whole = accuracy(model, [(images, labels)])
    padded = torch.cat([images[20:], torch.randn(5, 8)]), torch.cat([labels[20:], torch.full((5,), -1)])
    parts = in_parts(partial(accuracy, model), [(images[:20], labels[:20]), padded])
    assert parts == pytest.approx(whole, rel=1e-6)
    assert 0 < whole["top1"] < whole["top5"] < 1


def test_the_model_is_measured_without_dropout_and_left_as_it_was():
    model = nn.Sequential(nn.Linear(4, 50), nn.Dropout(0.9), nn.Linear(50, 3))
    model[0].eval()
    batch = [(torch.randn(64, 4), torch.randint(3, (64,)))]
    assert accuracy(model, batch) == accuracy(model, batch)
    assert [module.training for module in model.modules()] == [True, False, True, True]
    assert all(parameter.grad is None for parameter in model.parameters())


def even(choices, vocabulary=8):
    """A model that finds the first ``choices`` tokens equally probable and the others impossible."""
    logits = torch.full((vocabulary,), -torch.inf)
    logits[:choices] = 0
    return lambda ids: logits.expand(*ids.shape, -1)


@pytest.mark.parametrize(("choices", "length"), [(2, 1), (8, 4)])
def test_a_coin_for_each_byte_is_one_bit_per_byte_and_longer_tokens_cost_less(choices, length):
    labels = torch.randint(2, (3, 5))
    bits = bits_per_byte(even(choices), [(labels, labels)], np.full(8, length))
    assert bits == pytest.approx(math.log2(choices) / length, abs=1e-7)


def test_special_and_left_out_tokens_are_in_neither_sum():
    """A special token and an ignored one would cost infinitely many bits here."""
    labels = torch.tensor([[0, 1, 7, -1], [1, 7, 7, 0]])
    lengths = np.array([1, 1, 1, 1, 1, 1, 1, 0])
    sums = []
    actual = text_loss(
        even(2), [(labels.clamp(0), labels)], lengths, total=lambda part: sums.append(part) or part
    )
    assert sums[0][:2].tolist() == pytest.approx([4 * math.log(2), 4]) and sums[0][3] == 7
    assert actual == {"bpb": pytest.approx(1, abs=1e-7), "loss": math.inf}


def test_parts_add_up_and_the_loss_is_the_mean_of_the_tokens():
    torch.manual_seed(0)
    model = gpt("gpa-dickens", vocab_size=11, context=6, dim=16, depth=1, num_heads=2)
    ids = torch.randint(11, (5, 7))
    inputs, labels, lengths = ids[:, :-1], ids[:, 1:], np.arange(11) % 4
    measure = partial(text_loss, model, byte_lengths=lengths)
    actual = in_parts(measure, [(inputs[:2], labels[:2]), (inputs[2:], labels[2:])])
    logits = model(inputs).detach().flatten(0, 1)
    nats = torch.nn.functional.cross_entropy(logits, labels.flatten(), reduction="none")
    size = torch.tensor(lengths)[labels.flatten()]
    assert actual["loss"] == pytest.approx(nats.mean().item(), rel=1e-5)
    assert actual["bpb"] == pytest.approx(float(nats[size > 0].sum() / size.sum() / math.log(2)), rel=1e-5)
    assert actual["bpb"] == pytest.approx(bits_per_byte(model, [(inputs, labels)], torch.tensor(lengths)))


SEVENS = [(torch.full((1, 3), 7),) * 2]


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (lambda: accuracy(nn.Linear(2, 2), []), "evaluate: there are no labeled images"),
        (lambda: scored([[0.0] * 3] * 2, [0, 3]), "labels from 0 to 3, and the model has 3 classes"),
        (lambda: scored([[0.0] * 3] * 2, [-2, 1]), "labels from -2 to 1"),
        (lambda: bits_per_byte(even(8), SEVENS, np.zeros(8)), "evaluate: there are no bytes"),
        (lambda: bits_per_byte(even(8), SEVENS, np.ones(6)), "7 to 7; the model has 8 tokens, .* of 6"),
        (lambda: compare([True, False], [True, False, True]), "the same questions, .*: 2 and 3 answers"),
        (lambda: compare([True], [False]), "at least two: 1 and 1 answers"),
        (lambda: core([]), "evaluate: CORE is a mean over tasks"),
        (lambda: TASKS["winograd"].items(0), "evaluate: limit must be at least 1"),
        (
            lambda: tasks.drawn(3 * [Completion("a", "b")], 0, 3),
            "3 examples .* from 2 other questions",
        ),
        (lambda: evaluate(even(2), Words(), ["mmlu"]), "no task 'mmlu'. Known: hellaswag_zeroshot, copa"),
        (
            lambda: evaluate(even(2), Words(), share=(0, 2)),
            "process 0 of 2 cannot share the questions",
        ),
        (
            lambda: evaluate(even(2), Words(), share=(2, 2)),
            "process 2 of 2 cannot share the questions",
        ),
    ],
)
def test_what_cannot_be_measured_says_why(measure, message):
    with pytest.raises(ValueError, match=message):
        measure()

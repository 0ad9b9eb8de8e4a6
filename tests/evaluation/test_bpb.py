"""Bits per byte follow their definition, whatever the tokens are."""

import math

import numpy as np
import pytest
import torch

from gkalib.evaluation import bit_sums, bits_of, bits_per_byte
from gkalib.models import gpt


def even(choices, vocabulary=8):
    """A model that finds the first ``choices`` tokens equally probable and the others impossible."""
    logits = torch.full((vocabulary,), -torch.inf)
    logits[:choices] = 0
    return lambda ids: logits.expand(*ids.shape, -1)


def test_a_coin_for_each_byte_is_one_bit_per_byte():
    labels = torch.randint(2, (3, 5))
    assert bits_per_byte(even(2), [(labels, labels)], np.ones(8)) == pytest.approx(1, abs=1e-7)


def test_longer_tokens_cost_less():
    labels = torch.zeros(1, 6, dtype=torch.long)
    lengths = np.full(8, 4)
    assert bits_per_byte(even(8), [(labels, labels)], lengths) == pytest.approx(3 / 4, abs=1e-7)


def test_special_and_left_out_tokens_are_in_neither_sum():
    """A special token and an ignored one would cost infinitely many bits here."""
    labels = torch.tensor([[0, 1, 7, -1], [1, 7, 7, 0]])
    lengths = np.array([1, 1, 1, 1, 1, 1, 1, 0])
    found = bit_sums(even(2), [(labels.clamp(0), labels)], lengths)
    assert found[:2].tolist() == pytest.approx([4 * math.log(2), 4])
    assert bits_of(found)["bpb"] == pytest.approx(1, abs=1e-7)
    assert bits_of(found)["loss"] == math.inf
    assert found[3] == 7


def test_parts_add_up_and_the_loss_is_the_mean_of_the_tokens():
    torch.manual_seed(0)
    model = gpt("gpa-dickens", vocab_size=11, context=6, dim=16, depth=1, num_heads=2)
    ids = torch.randint(11, (5, 7))
    inputs, labels, lengths = ids[:, :-1], ids[:, 1:], np.arange(11) % 4
    parts = bit_sums(model, [(inputs[:2], labels[:2])], lengths)
    parts = parts + bit_sums(model, [(inputs[2:], labels[2:])], lengths)
    found = bits_of(parts)
    logits = model(inputs).detach().flatten(0, 1)
    nats = torch.nn.functional.cross_entropy(logits, labels.flatten(), reduction="none")
    size = torch.tensor(lengths)[labels.flatten()]
    assert found["loss"] == pytest.approx(nats.mean().item(), rel=1e-5)
    assert found["bpb"] == pytest.approx(float(nats[size > 0].sum() / size.sum() / math.log(2)), rel=1e-5)
    assert found["bpb"] == pytest.approx(bits_per_byte(model, [(inputs, labels)], torch.tensor(lengths)))


def test_refusals():
    labels = torch.full((1, 3), 7)
    with pytest.raises(ValueError, match="evaluate: there are no bytes"):
        bits_per_byte(even(8), [(labels, labels)], np.zeros(8))
    with pytest.raises(ValueError, match=r"labels from 7 to 7; the model has 8 tokens, .* byte lengths of 6"):
        bits_per_byte(even(8), [(labels, labels)], np.ones(6))

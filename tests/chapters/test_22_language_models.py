"""The labeled equations of chapter 22 that no test of the library holds."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from gkalib.data import state_of_the_union
from gkalib.data.tokenizers import train_bpe
from gkalib.evaluation import bits_per_byte, text_loss
from gkalib.training.optim import TrainState, optimizer_step, optimizers
from tests.tolerance import equal
from tests.training.runs import text_run


class _Table(nn.Module):
    """Any distribution of the next token given the last one."""

    def __init__(self, size: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(size, size))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table[ids]


def test_bits_per_byte_times_bytes_per_token_is_the_loss():
    text = state_of_the_union()[:3000]
    tokenizer = train_bpe([text], 400)
    ids = torch.from_numpy(tokenizer.encode(text))[None]
    found = text_loss(_Table(400), [(ids[:, :-1], ids[:, 1:])], tokenizer.byte_lengths())
    lengths = tokenizer.byte_lengths()[ids[0, 1:]]
    assert found["loss"] == pytest.approx(math.log(2) * found["bpb"] * lengths.mean())


def test_all_ways_to_cut_a_text_together_are_no_less_probable_than_one():
    """Bits per byte of no cut are below those of the text."""
    pieces = [b"a", b"b", b"ab", b"ba", b"aba"]
    begin, lengths, text = 5, np.array([*map(len, pieces), 0]), b"ababa"
    model = _Table(6)
    model.table.data[:, begin] = -math.inf  # nothing but the text is ever spelled
    chances = model.table.detach().double().softmax(-1)
    total, each = 0.0, []

    def cut(place: int, before: list[int], probability: float) -> None:
        nonlocal total
        if place == len(text):
            total += probability
            ids = torch.tensor([before])
            each.append(bits_per_byte(model, [(ids[:, :-1], ids[:, 1:])], lengths))
        for number, piece in enumerate(pieces):
            if text.startswith(piece, place):
                chance = chances[before[-1], number].item()
                cut(place + len(piece), [*before, number], probability * chance)

    cut(0, [begin], 1.0)
    assert len(each) > 5
    assert -math.log2(total) / len(text) < min(each)
    assert sum(2 ** (-len(text) * one) for one in each) == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("length", [0.5, 1.0, 40.0])
def test_clipping_shortens_a_long_gradient_and_leaves_a_short_one(length):
    run = text_run(clip=2.0)
    model = run.build().double()
    parameters = list(model.parameters())
    drawn = [torch.randn_like(parameter) for parameter in parameters]
    norm = torch.cat([one.flatten() for one in drawn]).norm()
    for parameter, one in zip(parameters, drawn, strict=True):
        parameter.grad = one * length / norm
    found = optimizer_step(TrainState(run, model, optimizers(run, model)))
    assert found.item() == pytest.approx(length)
    for parameter, one in zip(parameters, drawn, strict=True):
        torch.testing.assert_close(parameter.grad, one / norm * min(length, 2.0), rtol=1e-5, atol=0)


def test_a_step_of_adamw_is_the_formula():
    run = text_run(lr=0.01, betas=(0.8, 0.95), eps=1e-6, weight_decay=0.3)
    model = run.build().double()
    (adamw,) = optimizers(run, model)
    theta = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    first = {name: torch.zeros_like(value) for name, value in theta.items()}
    second = {name: torch.zeros_like(value) for name, value in theta.items()}
    for step in range(1, 4):
        for name, parameter in model.named_parameters():
            parameter.grad = g = torch.randn_like(parameter)
            first[name] = 0.8 * first[name] + 0.2 * g
            second[name] = 0.95 * second[name] + 0.05 * g**2
            mean, square = first[name] / (1 - 0.8**step), second[name] / (1 - 0.95**step)
            decay = 0.3 if parameter.ndim == 2 else 0.0
            theta[name] = (1 - 0.01 * decay) * theta[name] - 0.01 * mean / (square.sqrt() + 1e-6)
        adamw.step()
        for name, parameter in model.named_parameters():
            equal(parameter.detach(), theta[name])


def test_decay_alone_pulls_by_a_product_over_the_steps():
    run = text_run(lr=0.1, weight_decay=0.2)
    weight = nn.Linear(3, 3).double()
    (adamw,) = optimizers(run, weight)
    before = weight.weight.detach().clone()
    for _ in range(7):
        weight.weight.grad = torch.zeros_like(weight.weight)
        weight.bias.grad = torch.zeros_like(weight.bias)
        adamw.step()
    equal(weight.weight.detach(), before * (1 - 0.1 * 0.2) ** 7)

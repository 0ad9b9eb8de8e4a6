"""The figures of a look carry the numbers that they are named for."""

import numpy as np
import pytest
import torch

from gkalib import gpt, vit
from gkalib.models import GPTConfig, ViTConfig
from gkalib.viz import class_row, layers, maps, received, rollout, sheets
from gkalib.viz.rows import banks_of

SMALL = ViTConfig(image_size=16, patch_size=4, dim=16, depth=2, num_heads=2, num_classes=3)
PICTURE = np.linspace(0, 1, 64).reshape(8, 8)


@pytest.fixture
def looked():
    model = vit(SMALL, attention="gka")
    return model, [layer.weights for layer in layers(model, torch.randn(1, 3, 16, 16))]


def drawn(figure, place: int, image: int = -1) -> np.ndarray:
    return np.asarray(figure.axes[place].images[image].get_array())


def test_rollout_stands_beside_the_picture(looked):
    model, weights = looked
    figure = sheets.rollouts(PICTURE, model, weights)
    assert len(figure.axes) == 4
    np.testing.assert_array_equal(drawn(figure, 0), PICTURE)
    for place, discard in enumerate((0.0, 0.5, 0.9), start=1):
        flow = class_row(model, rollout(weights, discard=discard))[0].view(4, 4)
        np.testing.assert_allclose(drawn(figure, place), flow)


def test_maps_of_class_token_and_patches(looked):
    model, weights = looked
    figure = sheets.class_maps(PICTURE, model, weights[1])
    np.testing.assert_allclose(drawn(figure, 1), weights[1][0, 1, 0, 1:].view(4, 4))
    found = sheets.patch_rows(model, weights[0])
    assert [place for place, _ in found.values()] == [(1, 1), (2, 2), (3, 3), (1, 3)]
    np.testing.assert_allclose(found["upper right"][1], weights[0][0].mean(0)[1 + 7, 1:].view(4, 4))
    figure = sheets.patch_maps(PICTURE, model, weights[0])
    np.testing.assert_allclose(drawn(figure, 3), found["upper right"][1])
    np.testing.assert_allclose(drawn(figure, 7), found["upper right"][1])


def test_a_row_a_layer_and_matrices_without_diagonal(looked):
    model, weights = looked
    figure = sheets.evolution(PICTURE, model, weights)
    assert len(figure.axes) == 6
    np.testing.assert_allclose(drawn(figure, 3), weights[1][0].mean(0))
    figure = sheets.matrices(weights[0])
    np.testing.assert_allclose(drawn(figure, 1), maps.off_diagonal(weights[0][0, 1]))


def test_bandwidths_twice():
    figure = sheets.sigmas(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_array_equal(drawn(figure, 0), [[1, 3], [2, 4]])
    assert [line.get_ydata().tolist() for line in figure.axes[1].lines] == [[1, 3], [2, 4]]


def test_a_text_has_rows_sinks_and_banks():
    config = GPTConfig(vocab_size=9, context=8, dim=16, depth=2, num_heads=2, positions="none")
    model = gpt(config, attention="gpa")
    weights = [layer.weights for layer in layers(model, torch.randint(9, (1, 8)))]
    figure = sheets.last_rows(list("abcdefgh"), weights)
    np.testing.assert_allclose(drawn(figure, 0)[3], weights[1][0, 1, -1])
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == list("abcdefgh")
    figure = sheets.sinks(weights)
    np.testing.assert_allclose(figure.axes[1].lines[0].get_ydata(), received(weights[1])[0, 0])
    figure = sheets.banks(banks_of(model), 8)
    expected = model.blocks[1].attn.bank.lag_table(8)[1].tolist()
    np.testing.assert_allclose(figure.axes[1].lines[1].get_ydata(), expected, rtol=1e-6)

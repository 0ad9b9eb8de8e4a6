"""A look as a table: every number is the one that its row names."""

import numpy as np
import pytest
import torch

from gkalib import gpt, vit
from gkalib.models import GPTConfig, ViTConfig
from gkalib.viz import class_row, layers, magnitudes, neighbors, received, rollout
from gkalib.viz.rows import picture_rows, text_rows

SMALL = ViTConfig(image_size=24, patch_size=4, dim=16, depth=2, num_heads=2, num_classes=3, registers=1)


def table(rows: list[dict], figure: str, **where: object) -> dict[tuple, float]:
    """The numbers of a figure by row and column."""
    chosen = [row for row in rows if row["figure"] == figure]
    chosen = [row for row in chosen if all(row[name] == value for name, value in where.items())]
    return {(row["row"], row["column"]): float(row["value"]) for row in chosen}


def square(found: dict[tuple, float]) -> np.ndarray:
    side = round(len(found) ** 0.5)
    return np.array([[found[row, column] for column in range(side)] for row in range(side)])


def test_a_pictures_maps_come_back_from_the_table():
    model, image = vit(SMALL), torch.randn(1, 3, 24, 24)
    found = layers(model, image)
    rows = picture_rows(model, found)
    assert {tuple(row) for row in rows} == {("figure", "layer", "head", "row", "column", "value")}
    weights = [layer.weights for layer in found]
    for name, given in (
        ("rollout_50", {"discard": 0.5}),
        ("rollout_row_90", {"discard": 0.9, "per": "row"}),
        ("rollout_00", {}),
    ):
        expected = class_row(model, rollout(weights, **given))[0].view(6, 6)
        np.testing.assert_allclose(square(table(rows, name)), expected, rtol=1e-3)
    expected = weights[1][0, 1, 1, 2:].view(6, 6)
    np.testing.assert_allclose(square(table(rows, "class", layer=1, head=1)), expected, rtol=1e-3)
    # The lower right of a grid of six is the patch in row 4, column 4: token 2 + 4 · 6 + 4.
    expected = weights[0][0].mean(0)[30, 2:].view(6, 6)
    np.testing.assert_allclose(square(table(rows, "patch_lower_right", layer=0)), expected, rtol=1e-3)
    (value,) = table(rows, "neighbors", layer=1, head=0).values()
    assert value == pytest.approx(neighbors(weights[1][:, 0]).mean().item(), rel=1e-3)
    matrix = table(rows, "matrix", layer=1)
    assert len(matrix) == 33 * 33 and max(matrix)[0] == 37
    assert matrix[37, 0] == pytest.approx(weights[1][0].mean(0)[37, 0].item(), rel=1e-3)


def test_rows_with_signs_are_maps_by_size_and_matrices_with_signs():
    model, image = vit(SMALL, attention="karat", registers=0), torch.randn(1, 3, 24, 24)
    found = layers(model, image)
    rows = picture_rows(model, found)
    expected = magnitudes(found[0].weights)[0, 0, 0, 1:].view(6, 6)
    np.testing.assert_allclose(square(table(rows, "class", layer=0, head=0)), expected, rtol=1e-3)
    assert min(table(rows, "matrix", layer=0).values()) < 0


def test_a_texts_rows_and_banks_come_back_from_the_table():
    config = GPTConfig(vocab_size=9, context=40, dim=16, depth=3, num_heads=2, positions="none")
    model = gpt(config, attention="gpa")
    found = layers(model, torch.randint(9, (1, 40)))
    rows = text_rows(model, found)
    last = table(rows, "last", layer=2, head=1)
    assert [last[0, key] for key in range(40)] == pytest.approx(found[2].weights[0, 1, -1].tolist(), rel=1e-3)
    got = table(rows, "received", layer=0, head=0)
    expected = received(found[0].weights[0, 0]).tolist()
    assert [got[0, key] for key in range(40)] == pytest.approx(expected, rel=1e-3)
    bank = table(rows, "bank", layer=1, head=0)
    lags = model.blocks[1].attn.bank.lag_table(40)[0].tolist()
    assert [bank[0, lag] for lag in range(40)] == pytest.approx(lags, rel=1e-3)
    matrix = table(rows, "matrix", layer=1)
    assert min(matrix) == (7, 7) and max(matrix) == (39, 39) and len(matrix) == 33 * 33
    assert matrix[39, 38] == pytest.approx(found[1].weights[0].mean(0)[39, 38].item(), rel=1e-3)

"""What a record keeps: each number is the measure that its name says, of the layer and head that it says."""

import numpy as np
import pytest
import torch

from gkalib import attention, capture_attention, gpt, vit
from gkalib.analysis import (
    agreement,
    agreement_metrics,
    attention_metrics,
    bandwidths,
    class_row,
    landscape_rows,
    magnitudes,
    neighbors,
    occlusion,
    of_heads,
    picture_rows,
    received,
    residual_metrics,
    residual_share,
    rollout,
    text_rows,
)
from gkalib.analysis.landscape import Plane, Surface
from gkalib.models import GPTConfig, ViTConfig

SMALL = ViTConfig(image_size=16, patch_size=4, dim=32, depth=2, num_heads=4, num_classes=5, registers=2)
IMAGES, LABELS = torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 2, 3])
TABLE = ViTConfig(image_size=24, patch_size=4, dim=16, depth=2, num_heads=2, num_classes=3, registers=1)


def test_a_name_says_measure_layer_and_head():
    model = vit(SMALL, attention=["softmax", attention("gka", sigma=[1.0, 2.0, 3.0, 4.0])])
    found = capture_attention(model, IMAGES)
    numbers = attention_metrics(model, found)
    weights = found[1].weights
    assert numbers["neighbors_1_2"] == pytest.approx(neighbors(weights[:, 2]).mean().item())
    share = received(weights) / 19
    assert numbers["register1_1_3"] == pytest.approx(share[:, 3, 1].mean().item())
    assert numbers["token_1_0"] == pytest.approx(share[:, 0, 2].mean().item())
    assert numbers["patch_1_0"] == pytest.approx(share[:, 0, 3:].amax(-1).mean().item())
    assert numbers["largest_1_0"] >= numbers["patch_1_0"]
    sigmas = {name: value for name, value in numbers.items() if name.startswith("sigma")}
    assert sigmas == pytest.approx({f"sigma_1_{head}": head + 1.0 for head in range(4)})


def test_a_measure_of_all_heads_is_found_by_its_name_and_no_other():
    runs = [
        {"own_0_0": 0.1, "own_0_1": 0.2, "own_1": 9.0, "own_0_0_error": 9.0, "my_own_0_0": 9.0},
        {"own_0_0": 0.3, "loss": 9.0},
    ]
    np.testing.assert_array_equal(of_heads(runs, "own"), [0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match=r"^of_heads: no layer and head has a 'mass'"):
        of_heads(runs, "mass")


def test_a_decoder_has_no_class_token():
    model = gpt(GPTConfig(vocab_size=7, context=6, dim=16, depth=1, num_heads=2))
    numbers = attention_metrics(model, capture_attention(model, torch.randint(7, (2, 6))))
    names = {name.partition("_")[0] for name in numbers}
    assert names == {"neighbors", "entropy", "own", "mass", "negative", "largest"}


def test_agreements_are_of_the_class_tokens_rows():
    model = vit(SMALL)
    found = capture_attention(model, IMAGES)
    numbers = agreement_metrics(model, IMAGES, LABELS, found)
    truth = occlusion(model, IMAGES, LABELS).abs()
    flow = rollout([layer.weights for layer in found], discard=0.5)[:, 2, 3:]
    mean, error = agreement(flow, truth)
    assert numbers["rollout_occlusion_50"] == pytest.approx(mean, abs=1e-6)
    assert numbers["rollout_occlusion_50_error"] == pytest.approx(error, abs=1e-6)
    last = agreement(found[1].weights.mean(1)[:, 2, 3:], truth)[0]
    assert numbers["last_occlusion"] == pytest.approx(last, abs=1e-6)
    whole = rollout([layer.weights for layer in found])[:, 2, 3:]
    assert numbers["other_occlusion"] == pytest.approx(agreement(whole.roll(1, 0), truth)[0], abs=1e-6)
    assert numbers["mean_occlusion"] == pytest.approx(agreement(truth.mean(0).expand(4, -1), truth)[0])
    backwards = rollout([layer.weights for layer in found[::-1]])[:, 2, 3:]
    assert numbers["reversed_occlusion"] == pytest.approx(agreement(backwards, truth)[0], abs=1e-6)
    shares = residual_share(model, IMAGES).tolist()
    measured = rollout([layer.weights for layer in found], residual=shares)[:, 2, 3:]
    assert numbers["measured_occlusion"] == pytest.approx(agreement(measured, truth)[0], abs=1e-6)
    assert len(numbers) == 18


@pytest.mark.parametrize("name", ["karat", "gpa", "linformer"])
def test_where_no_token_can_be_taken_out_nothing_agrees(name: str):
    model = vit(SMALL, attention=name, registers=0)
    found = capture_attention(model, IMAGES)
    assert agreement_metrics(model, IMAGES, LABELS, found) == {}
    assert attention_metrics(model, found)["neighbors_0_0"] > 1


def test_without_a_class_token_the_patches_are_read_in_the_mean():
    model = vit(SMALL, class_token=False)
    matrix = torch.rand(3, 18, 18)
    torch.testing.assert_close(class_row(model, matrix), matrix[:, 2:, 2:].mean(1))
    assert "rollout_occlusion_00" in agreement_metrics(
        model, IMAGES, LABELS, capture_attention(model, IMAGES)
    )


def test_residuals_are_by_layer():
    model = vit(SMALL)
    expected = {f"residual_{index}": one for index, one in enumerate(residual_share(model, IMAGES).tolist())}
    assert residual_metrics(model, IMAGES) == pytest.approx(expected)


def table(rows: list[dict], figure: str, **where: object) -> dict[tuple, float]:
    """The numbers of a figure by row and column."""
    chosen = [row for row in rows if row["figure"] == figure]
    chosen = [row for row in chosen if all(row[name] == value for name, value in where.items())]
    return {(row["row"], row["column"]): float(row["value"]) for row in chosen}


def square(found: dict[tuple, float]) -> np.ndarray:
    side = round(len(found) ** 0.5)
    return np.array([[found[row, column] for column in range(side)] for row in range(side)])


def test_a_pictures_maps_come_back_from_the_table():
    model, image = vit(TABLE), torch.randn(1, 3, 24, 24)
    found = capture_attention(model, image)
    rows = picture_rows(model, found)
    assert {tuple(row) for row in rows} == {("figure", "layer", "head", "row", "column", "value")}
    weights = [layer.weights for layer in found]
    for name, given in (
        ("rollout_50", {"discard": 0.5}),
        ("rollout_90", {"discard": 0.9}),
        ("rollout_00", {}),
    ):
        expected = class_row(model, rollout(weights, **given))[0].view(6, 6)
        np.testing.assert_allclose(square(table(rows, name)), expected, rtol=1e-3)
    expected = weights[1][0, 1, 1, 2:].view(6, 6)
    np.testing.assert_allclose(square(table(rows, "class", layer=1, head=1)), expected, rtol=1e-3)
    # The lower right of a grid of six is the patch in row 4, column 4: token 2 + 4 · 6 + 4.
    expected = weights[0][0].mean(0)[30, 2:].view(6, 6)
    np.testing.assert_allclose(square(table(rows, "patch_lower_right", layer=0)), expected, rtol=1e-3)
    matrix = table(rows, "matrix", layer=1, head=1)
    assert len(matrix) == 17 * 17 and max(matrix)[0] == 37
    assert matrix[37, 0] == pytest.approx(weights[1][0, 1, 37, 0].item(), rel=1e-3)
    values = table(rows, "spectrum", layer=1, head=1)
    expected = torch.linalg.svdvals(weights[1][0, 1])[:17].tolist()
    assert list(values.values()) == pytest.approx(expected, rel=1e-3, abs=1e-5)


def test_a_landscape_comes_back_from_the_table():
    surface = Surface(torch.tensor([-1.0, 0.0, 0.5]), torch.tensor([0.0, 2.0]), torch.rand(3, 2))
    path = torch.randn(4, 3)
    plane = Plane({}, ({}, {}), path, torch.ones(3), torch.ones(4))
    rows = landscape_rows(plane, surface)
    loss = table(rows, "loss")
    assert loss["0.5", "2"] == pytest.approx(surface.losses[2, 1].item(), rel=1e-3) and len(loss) == 6
    assert table(rows, "path")[3, 1] == pytest.approx(path[3, 1].item(), rel=1e-3)


def test_rows_have_every_heads_bandwidth():
    model = vit(TABLE, attention="gka")
    rows = picture_rows(model, capture_attention(model, torch.randn(1, 3, 24, 24)))
    sigma = bandwidths(model).tolist()
    for layer, heads in enumerate(sigma):
        for head, expected in enumerate(heads):
            (value,) = table(rows, "sigma", layer=layer, head=head).values()
            assert value == pytest.approx(expected, rel=1e-3)


def test_rows_with_signs_are_maps_by_size_and_matrices_with_signs():
    model, image = vit(TABLE, attention="karat", registers=0), torch.randn(1, 3, 24, 24)
    found = capture_attention(model, image)
    rows = picture_rows(model, found)
    expected = magnitudes(found[0].weights)[0, 0, 0, 1:].view(6, 6)
    np.testing.assert_allclose(square(table(rows, "class", layer=0, head=0)), expected, rtol=1e-3)
    assert min(table(rows, "matrix", layer=0, head=0).values()) < 0


def test_a_texts_rows_and_banks_come_back_from_the_table():
    config = GPTConfig(vocab_size=9, context=40, dim=16, depth=3, num_heads=2, positions="none")
    model = gpt(config, attention="gpa")
    found = capture_attention(model, torch.randint(9, (1, 40)))
    rows = text_rows(model, found)
    last = table(rows, "last", layer=2, head=1)
    assert [last[0, key] for key in range(40)] == pytest.approx(found[2].weights[0, 1, -1].tolist(), rel=1e-3)
    got = table(rows, "received", layer=0, head=0)
    expected = received(found[0].weights[0, 0]).tolist()
    assert [got[0, key] for key in range(40)] == pytest.approx(expected, rel=1e-3)
    bank = table(rows, "bank", layer=1, head=0)
    lags = model.blocks[1].attn.kernel.second.lag_table(40)[0].tolist()
    assert [bank[0, lag] for lag in range(40)] == pytest.approx(lags, rel=1e-3)
    matrix = table(rows, "matrix", layer=1)
    assert min(matrix) == (23, 23) and max(matrix) == (39, 39) and len(matrix) == 17 * 17
    assert matrix[39, 38] == pytest.approx(found[1].weights[0].mean(0)[39, 38].item(), rel=1e-3)

"""The numbers of a look: each is the measure that its name says, of the layer and head that it says."""

import pytest
import torch

from gkalib import attention, gpt, vit
from gkalib.models import GPTConfig, ViTConfig
from gkalib.viz import agreement, layers, magnitudes, neighbors, occlusion, received, residual_share, rollout
from gkalib.viz.census import agreements, census, class_row, residuals

SMALL = ViTConfig(image_size=16, patch_size=4, dim=32, depth=2, num_heads=4, num_classes=5, registers=2)
IMAGES, LABELS = torch.randn(4, 3, 16, 16), torch.tensor([0, 1, 2, 3])


def test_a_name_says_measure_layer_and_head():
    model = vit(SMALL, attention=["softmax", attention("gka", sigma=[1.0, 2.0, 3.0, 4.0])])
    found = layers(model, IMAGES)
    numbers = census(model, found)
    weights = found[1].weights
    assert numbers["neighbors_1_2"] == pytest.approx(neighbors(weights[:, 2]).mean().item())
    share = received(weights) / 19
    assert numbers["register1_1_3"] == pytest.approx(share[:, 3, 1].mean().item())
    assert numbers["token_1_0"] == pytest.approx(share[:, 0, 2].mean().item())
    assert numbers["patch_1_0"] == pytest.approx(share[:, 0, 3:].amax(-1).mean().item())
    assert numbers["largest_1_0"] >= numbers["patch_1_0"]
    sigmas = {name: value for name, value in numbers.items() if name.startswith("sigma")}
    assert sigmas == pytest.approx({f"sigma_1_{head}": head + 1.0 for head in range(4)})


def test_a_decoder_has_no_class_token():
    model = gpt(GPTConfig(vocab_size=7, context=6, dim=16, depth=1, num_heads=2))
    numbers = census(model, layers(model, torch.randint(7, (2, 6))))
    names = {name.partition("_")[0] for name in numbers}
    assert names == {"neighbors", "entropy", "own", "mass", "negative", "largest"}


def test_agreements_are_of_the_class_tokens_rows():
    model = vit(SMALL)
    found = layers(model, IMAGES)
    numbers = agreements(model, IMAGES, LABELS, found)
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
    found = layers(model, IMAGES)
    assert agreements(model, IMAGES, LABELS, found) == {}
    assert census(model, found)["neighbors_0_0"] > 1


def test_rows_with_signs_are_taken_by_size():
    model = vit(SMALL, attention="karat", registers=0)
    found = layers(model, IMAGES)
    flow = class_row(model, rollout([magnitudes(layer.weights) for layer in found]))
    assert (found[0].weights < 0).any() and flow.shape == (4, 16) and (flow >= 0).all()


def test_without_a_class_token_the_patches_are_read_in_the_mean():
    model = vit(SMALL, class_token=False)
    matrix = torch.rand(3, 18, 18)
    torch.testing.assert_close(class_row(model, matrix), matrix[:, 2:, 2:].mean(1))
    assert "rollout_occlusion_00" in agreements(model, IMAGES, LABELS, layers(model, IMAGES))


def test_residuals_are_by_layer():
    model = vit(SMALL)
    expected = {f"residual_{index}": one for index, one in enumerate(residual_share(model, IMAGES).tolist())}
    assert residuals(model, IMAGES) == pytest.approx(expected)

"""What a picture's patches are worth to a model, and how far a map agrees with that."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import gkalib
from gkalib.analysis import agreement, occlusion, residual_share, saliency
from gkalib.models import ViTConfig

SMALL = ViTConfig(image_size=6, patch_size=2, channels=1, dim=16, depth=2, num_heads=2, num_classes=5)


def model(attention="gka", **changes):
    torch.manual_seed(0)
    made = gkalib.vit(SMALL, attention=attention, **changes).double().eval()
    with torch.no_grad():  # a start at which every part does something
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def pictures():
    return torch.randn(3, 1, 6, 6, dtype=torch.float64), torch.tensor([4, 0, 2])


def tokens(made, images):
    """What the first block is given, by hand."""
    x = made.patch_embed(images)
    x = torch.cat([made.class_token.expand(len(x), -1, -1), x], dim=1) + made.position
    if made.register_tokens is not None:
        x = torch.cat([made.register_tokens.expand(len(x), -1, -1), x], dim=1)
    return x


def logits(made, x):
    for block in made.blocks:
        x = block(x)
    return made.head(made.norm(x)[:, made.config.registers])


@pytest.mark.parametrize("attention", ["softmax", "gka", "rbf", "linear"])
@pytest.mark.parametrize("registers", [0, 2])
def test_a_patch_is_worth_what_the_logit_loses_without_its_token(attention, registers):
    made, (images, labels) = model(attention, registers=registers), pictures()
    found = occlusion(made, images, labels)
    x, extra = tokens(made, images), made.config.extra
    rows = torch.arange(3)
    for place in (0, 4, 8):
        without = torch.cat([x[:, : extra + place], x[:, extra + place + 1 :]], dim=1)
        fall = (logits(made, x) - logits(made, without))[rows, labels]
        torch.testing.assert_close(found[:, place], fall)
    assert found.shape == (3, 9) and found.abs().min() > 0


def test_nothing_of_the_model_is_changed_by_looking():
    made, (images, labels) = model(), pictures()
    before = made(images)
    occlusion(made, images, labels), saliency(made, images, labels), residual_share(made, images)
    assert torch.equal(made(images), before)
    assert all(parameter.grad is None for parameter in made.parameters())


def test_gradient_times_token_is_the_slope_of_scaling_a_token_down():
    made, (images, labels) = model(registers=1), pictures()
    found = saliency(made, images, labels)
    x, step, rows = tokens(made, images), 1e-6, torch.arange(3)
    for place in (0, 5):
        scale = torch.ones(x.shape[1], 1, dtype=x.dtype)
        scale[made.config.extra + place] = 1 - step
        slope = (logits(made, x) - logits(made, scale * x))[rows, labels] / step
        torch.testing.assert_close(found[:, place], slope, rtol=1e-4, atol=1e-7)
    assert found.shape == (3, 9)


def test_the_share_of_the_residual_is_measured_before_it_is_added():
    made, (images, _) = model("softmax"), pictures()
    x, shares = tokens(made, images), []
    for block in made.blocks:
        added = block.attn(block.norm1(x))
        shares.append((x.norm(dim=-1) / (x.norm(dim=-1) + added.norm(dim=-1))).mean())
        x = block(x)
    torch.testing.assert_close(residual_share(made, images), torch.stack(shares))
    with torch.no_grad():
        for block in made.blocks:
            block.attn.proj.weight.zero_(), block.attn.proj.bias.zero_()
    assert torch.equal(residual_share(made, images), torch.ones(2, dtype=torch.float64))


def test_agreement_is_the_mean_of_spearmans_correlations():
    rng = np.random.default_rng(0)
    maps = rng.integers(0, 5, (7, 12)).astype(float)  # with ties
    truth = maps + rng.normal(size=(7, 12))
    mean, error = agreement(torch.from_numpy(maps), torch.from_numpy(truth))
    by_scipy = [spearmanr(one, other).statistic for one, other in zip(maps, truth, strict=True)]
    assert mean == pytest.approx(np.mean(by_scipy), abs=1e-12)
    assert error == pytest.approx(np.std(by_scipy, ddof=1) / np.sqrt(7), abs=1e-12)


def test_a_map_that_is_the_same_everywhere_agrees_with_nothing():
    truth = torch.randn(4, 9, dtype=torch.float64)
    assert agreement(torch.ones(4, 9, dtype=torch.float64), truth) == (0.0, 0.0)


def test_only_rank_counts():
    truth = torch.randn(4, 9, dtype=torch.float64)
    assert agreement(truth.exp(), truth) == (pytest.approx(1.0), pytest.approx(0.0, abs=1e-12))
    assert agreement(-truth, truth)[0] == pytest.approx(-1.0)


def test_what_cannot_be_asked_is_refused():
    images, labels = pictures()
    with pytest.raises(ValueError, match=r"^occlusion: rope counts tokens"):
        occlusion(model("softmax", positions="rope"), images, labels)
    with pytest.raises(ValueError, match="karat: was built for 10 tokens, given 9"):
        occlusion(model(gkalib.attention("karat", rank=4)), images, labels)
    with pytest.raises(
        ValueError, match=r"^residual_share: needs a vision transformer of gkalib.models, not Linear"
    ):
        residual_share(torch.nn.Linear(2, 2), images)
    with pytest.raises(ValueError, match=r"^agreement: needs maps of at least two pictures"):
        agreement(torch.ones(1, 4), torch.ones(1, 4))

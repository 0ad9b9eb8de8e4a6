"""The labeled equations of chapter 23 that no test of the library holds."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from timm.data.mixup import cutmix_bbox_and_lam
from timm.layers.drop import DropPath
from torch.nn.functional import cross_entropy

import gkalib
from gkalib.models import ViTConfig
from gkalib.training import Augment
from gkalib.training.sampler import Sampler
from gkalib.training.vision import mixer, seeded
from tests.tolerance import equal
from tests.training.runs import picture_run

SMALL = ViTConfig(image_size=12, patch_size=4, dim=8, depth=2, num_heads=2, num_classes=5)


def test_a_token_is_a_patch_times_a_matrix():
    model = gkalib.vit(SMALL).double()
    picture = torch.randn(2, 3, 12, 12, dtype=torch.float64)
    projection = model.patch_embed.proj
    for row, column in itertools.product(range(3), repeat=2):
        patch = picture[:, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4].flatten(1)
        token = patch @ projection.weight.flatten(1).T + projection.bias
        equal(model.patch_embed(picture)[:, 3 * row + column], token)


@pytest.mark.parametrize("given", [{"mixup": 0.8}, {"cutmix": 1.0}])
def test_pictures_and_targets_are_mixed_with_one_share(given):
    """Of black pictures and white ones the mean brightness is the share."""
    run = picture_run(device_batch=2, smoothing=0.1, augment=Augment(**given))
    mix, labels = mixer(run), torch.tensor([0, 1])
    shares = set()
    for seed in range(20):
        pictures = torch.stack([torch.ones(3, 32, 32), torch.zeros(3, 32, 32)])
        mixed, targets = mix(pictures, labels, seed)
        share = float(mixed[0].mean())
        one, two = (
            torch.full((3,), 0.1 / 3).index_add(0, label, torch.tensor([0.9])) for label in labels.split(1)
        )
        assert torch.allclose(targets[0], share * one + (1 - share) * two, atol=1e-5)
        shares.add(round(share, 4))
    assert len(shares) > 10


def test_a_rectangle_that_leaves_the_picture_replaces_less_than_it_was_drawn_to():
    """The mean share of what is pasted, for a nominal share u uniform on (0, 1): 1/2 − 1/5 + 1/48."""
    with seeded(0):
        found = [1 - cutmix_bbox_and_lam((3, 224, 224), np.random.beta(1, 1))[1] for _ in range(20_000)]
    assert np.mean(found) == pytest.approx(1 / 2 - 1 / 5 + 1 / 48, abs=0.006)


@pytest.mark.parametrize("classes, smoothing", [(1000, 0.1), (10, 0.1), (3, 0.3)])
def test_smoothed_labels_have_a_finite_optimum(classes, smoothing):
    gap = math.log(classes * (1 - smoothing) / smoothing + 1)
    logits = torch.zeros(1, classes, dtype=torch.float64)
    logits[0, 0] = gap
    logits.requires_grad_()
    run = picture_run(model=replace(SMALL, num_classes=classes), smoothing=smoothing)
    target = mixer(run)(torch.zeros(2, 3, 8, 8), torch.tensor([0, 1]), 0)[1][:1].double()
    loss = cross_entropy(logits, target)
    loss.backward()
    assert logits.grad is not None and logits.grad.abs().max() < 1e-7
    entropy = -sum(p * math.log(p) for p in target[0].tolist())
    assert loss.item() == pytest.approx(entropy, rel=1e-6)
    theirs = cross_entropy(logits.detach(), torch.tensor([0]), label_smoothing=smoothing)
    assert loss.item() == pytest.approx(theirs.item(), rel=1e-6)


@pytest.mark.parametrize("repeats", [1, 2, 3, 4, 6])
def test_repeats_multiply_the_variance_between_pictures(repeats):
    """Gradients g = a_picture + b_view of independent coordinates, drawn by the order that training uses."""
    rng = np.random.default_rng(0)
    pictures, views, batch = 2400, 4, 24
    g = 2 * rng.standard_normal((pictures, 1, 30)) + rng.standard_normal((pictures, views, 30))
    mean, own = g.mean((0, 1)), g.mean(1)
    between = np.square(own - mean).sum(-1).mean()
    within = np.square(g - own[:, None]).sum(-1).mean()
    order = Sampler(pictures, batch, 1, 0, repeats=repeats)
    parts = [order.part(step, 0) for step in range(400)]
    means = [g[part.rows, [key % views for key in part.keys]].mean(0) for part in parts]
    measured = np.mean([np.square(one - mean).sum() for one in means])
    assert measured == pytest.approx((repeats * between + within) / batch, rel=0.05)


def test_what_drop_path_keeps_is_enlarged_so_that_the_mean_stays():
    rate = 0.25
    dropped = DropPath(rate)(torch.ones(20_000, 3, dtype=torch.float64))[:, 0]
    assert set(dropped.tolist()) == {0.0, 1 / (1 - rate)}
    assert dropped.mean() == pytest.approx(1.0, abs=0.015)
    assert dropped.var() == pytest.approx(rate / (1 - rate), abs=0.02)
    model = gkalib.vit(replace(SMALL, drop_path=rate))
    assert model.blocks[1].drop_path1.drop_prob == rate
    assert isinstance(model.blocks[0].drop_path1, torch.nn.Identity)

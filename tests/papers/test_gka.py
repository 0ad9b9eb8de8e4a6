"""What Gaussian Kernel Attention's paper states of settings and formulas, cell by cell."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

import numpy as np
import pytest
import torch
from matplotlib import pyplot as plt
from timm.data.auto_augment import rand_augment_transform
from torch import nn

import gkalib
from gkalib import masks
from gkalib.analysis import metrics
from gkalib.analysis.rollout import rollout
from gkalib.models.count import count
from gkalib.training.recipes import gka_imagenet
from gkalib.viz import maps
from tests.papers import broken_by, run_of

patches = import_module("gkalib.analysis.rollout")  # the package has its function under that name
RECIPE = "training.recipes.gka_imagenet"
SIZES = ("tiny", "small", "base")


def projections(variant: str) -> list[str]:
    layer = gkalib.attention(variant)(12, 2)
    return [name for name, part in layer.named_children() if isinstance(part, nn.Linear)]


@broken_by("layers.softmax", ("self.kernel = ExpDot(scale)", "self.kernel = ExpDot(scale); del self.value"))
def test_projections_of_softmax_attention():
    """The layer's linear maps are query, key, value and output."""
    assert projections("softmax") == ["proj", "query", "key", "value"]


@broken_by("layers.vlt", ('projections = ("query", "key")', 'projections = ("query", "key", "value")'))
def test_projections_of_vlt():
    """The layer's linear maps are query, key and output."""
    assert projections("vlt") == ["proj", "query", "key"]


@broken_by("layers.gka", ("projections = ()", 'projections = ("query",)'))
def test_projections_of_gka():
    """The layer's only linear map is that of the output."""
    assert projections("gka") == ["proj"]


def tokens_read(arm: str) -> int:
    run = run_of("gka-nanochat-d20", arm)
    return run.steps * run.batch * run.model.context


@broken_by("training.recipes.gka_nanochat", ('"baseline": 4_357', '"baseline": 4_300'))
def test_tokens_of_the_baseline():
    """Steps × rows × context of the recipe round to 4.5686e9."""
    assert f"{tokens_read('baseline'):.4e}" == "4.5686e+09"


@broken_by("training.recipes.gka_nanochat", ('"gka": 2_650', '"gka": 2_700'))
def test_tokens_of_gka():
    """Steps × rows × context of the recipe round to 2.7787e9."""
    assert f"{tokens_read('gka'):.4e}" == "2.7787e+09"


@broken_by(
    "models.vit",
    ("return ViT(replace(size, **changes), attention)", "return ViT(replace(size, **changes))"),
    also=("tests/papers/test_karat.py::test_blockwise_and_universal",),
)
def test_the_block():
    """A block is x + GKA(LN(x)), then + MLP(LN(·)), to float64's rounding."""
    model = gkalib.vit("tiny", attention="gka", dim=12, depth=1, num_heads=2, image_size=32).double()
    block, x = model.blocks[0], torch.randn(1, 5, 12, dtype=torch.float64)
    assert block.attn.name() == "gka"
    middle = x + block.attn(nn.functional.layer_norm(x, (12,), eps=1e-6))
    expected = middle + block.mlp(nn.functional.layer_norm(middle, (12,), eps=1e-6))
    torch.testing.assert_close(block(x), expected)


def diffused(x: torch.Tensor, sigma: float, allowed: torch.Tensor) -> torch.Tensor:
    """Equations 3, 4 and 7 by hand, without ε."""
    affinity = (-(x[:, None] - x).square().sum(-1) / (2 * sigma**2)).exp() * allowed
    return affinity / affinity.sum(-1, keepdim=True) @ x


@broken_by(
    "layers.gka",
    ("self.normalizer = RowSum(eps=eps)", "self.normalizer = RowSum(eps=eps + 1)"),
    also=("test_the_language_form",),
)
def test_one_head():
    """One head is the row-normalized Gaussian of distances, times the tokens, to float64's rounding."""
    x = torch.randn(1, 6, 4, dtype=torch.float64)
    layer = gkalib.attention("gka", sigma=1.5, project_out=False)(4, 1).double()
    torch.testing.assert_close(layer(x)[0], diffused(x[0], 1.5, torch.ones(6, 6)))


@broken_by(
    "layers.gka",
    ("self.mask = None if window is None else Window(window)", "self.mask = None"),
    ('return query, key, key if self.values == "placed"', "return query, key, self.own_heads(x) if 1"),
)
def test_the_language_form():
    """Equation 11 with norm, RoPE and a window: the layer is that by hand, to float64's rounding."""
    x = torch.randn(1, 6, 4, dtype=torch.float64)
    options = {"qk_norm": True, "position": "rope", "window": 3, "project_out": False}
    layer = gkalib.attention("gka", sigma=1.5, **options)(4, 1).double()
    normed = nn.functional.rms_norm(x[0], (4,), eps=torch.finfo(torch.float32).eps)
    placed = layer.position(normed[None, None], torch.arange(6))[0, 0]
    lag = torch.arange(6)[:, None] - torch.arange(6)
    assert not torch.allclose(placed, normed)
    expected = diffused(placed, 1.5, (lag >= 0) & (lag < 3))
    torch.testing.assert_close(layer(x, is_causal=True)[0], expected)


@broken_by(
    "masks",
    ("return (q - k).abs() < self.size", "return (q - k).abs() <= self.size"),
    also=("test_the_language_form",),
)
def test_the_rule_of_windows():
    """Causal and windowed, a query sees j with i − W < j ≤ i and no other."""
    q, k = torch.arange(9)[:, None], torch.arange(9)
    seen = (masks.Causal() & masks.Window(4)).allows(q * 0, q * 0, q, k)
    assert torch.equal(seen, (q - 4 < k) & (k <= q))


def products(length: int) -> int:
    """The multiplications of one layer's attention, ×2, without the map of the output."""
    layer = gkalib.attention("gka", project_out=False)(12, 3)
    return count(layer, torch.empty(2, length, 12)).flops


@broken_by(
    "layers.gka",
    ("query = self.own_heads(x)\n", "query = self.own_heads(x @ x.new_ones(12, 12))\n"),
    also=("test_one_head", "test_the_language_form"),
)
def test_complexity():
    """The traced products of a layer without output are 4 B h N² d, for two lengths: O(BHN²d)."""
    assert [products(length) for length in (10, 20)] == [4 * 2 * 3 * n * n * 4 for n in (10, 20)]


@broken_by(
    RECIPE,
    ("IMAGES, EPOCHS, BATCH, WARMUP = 1_281_167,", "IMAGES, EPOCHS, BATCH, WARMUP = 1_200_000,"),
    ("model=replace(SIZES[size], drop", "model=replace(SIZES[size], num_classes=100, drop"),
)
def test_data():
    """The recipe counts its epochs in 1,281,167 images, and the models have 1,000 classes."""
    assert gka_imagenet.IMAGES == 1_281_167
    assert {run_of(f"gka-imagenet-{size}", "gka").model.num_classes for size in SIZES} == {1000}


def tiny():
    return run_of("gka-imagenet-tiny", "gka")


@broken_by(
    RECIPE,
    ("1_281_167, 300, 1792, 5", "1_281_167, 200, 1792, 5"),
    ("1_281_167, 300, 1792, 5", "1_281_167, 300, 1792, 20"),
    ("lr=1e-3 * BATCH / 1024", "lr=5e-4 * BATCH / 1024"),
    ("weight_decay=0.05,", "weight_decay=0.1,"),
    ("weight_decay=0.05,", "weight_decay=0.05, betas=(0.9, 0.95),"),
    ("weight_decay=0.05,", 'weight_decay=0.05, schedule="trapezoid",'),
    ("weight_decay=0.05,", 'weight_decay=0.05, optimizer="muon",'),
    ("final_lr=1e-6,", "final_lr=1e-5,"),
)
def test_protocol():
    """Epochs, optimizer, rate, decay, β, warm-up, schedule and last rate of the recipe are those printed."""
    run = tiny()
    epoch = gka_imagenet.IMAGES / run.batch
    assert run.steps / epoch == pytest.approx(300, abs=0.01) and run.warmup / epoch == pytest.approx(
        5, abs=0.01
    )
    assert run.lr == pytest.approx(1e-3 * run.batch / 1024) and run.final_lr == 1e-6
    assert (run.optimizer, run.schedule, run.weight_decay) == ("adamw", "cosine", 0.05)
    assert run.betas == (0.9, 0.999)


@broken_by(
    RECIPE,
    (
        "DEIT = Augment(\n    crop=(0.08, 1.0),\n    flip=0.5,",
        "DEIT = Augment(\n    crop=(0.2, 1.0),\n    flip=0.5,",
    ),
    (
        "DEIT = Augment(\n    crop=(0.08, 1.0),\n    flip=0.5,",
        "DEIT = Augment(\n    crop=(0.08, 1.0),\n    flip=0.0,",
    ),
    ("rand-m9-mstd", "rand-m7-mstd"),
    ("erase=0.25,", "erase=0.0,"),
    ("mixup=0.8,", "mixup=0.2,"),
    ("cutmix=1.0,\n    repeats=3,", "cutmix=0.5,\n    repeats=3,"),
    ("repeats=3,", "repeats=1,"),
    ("smoothing=0.1,", "smoothing=0.0,"),
)
@broken_by(
    RECIPE,
    ("model=replace(SIZES[size], drop", "model=replace(SIZES[size], image_size=160, drop"),
    also=("test_class_maps",),
)
def test_augmentation():
    """Crops, flips, policy, erasing, Mixup, CutMix, smoothing, repeats and size are those printed."""
    run, augment = tiny(), tiny().augment
    assert (augment.crop, augment.flip, augment.erase, augment.repeats) == ((0.08, 1.0), 0.5, 0.25, 3)
    assert (augment.mixup, augment.cutmix, run.smoothing) == (0.8, 1.0, 0.1)
    policy = rand_augment_transform(augment.policy, {})
    assert policy.num_layers == 2 and {operation.magnitude for operation in policy.ops} == {9}
    assert run.model.image_size == 224


@broken_by(RECIPE, ('0.2 if size == "base" else 0.1', '0.2 if size == "base" else 0.0'))
def test_stochastic_depth():
    """The drop-path rates of the three recipes are 0.1, 0.1 and 0.2."""
    rates = [run_of(f"gka-imagenet-{size}", "gka").model.drop_path for size in SIZES]
    assert rates == [0.1, 0.1, 0.2]


@broken_by(RECIPE, ("ema=0.99996,", "ema=0.9999,"), ("clip=1.0,", "clip=5.0,"))
def test_averaging_and_clipping():
    """The recipe averages with 0.99996 and clips at norm 1."""
    assert (tiny().ema, tiny().clip) == (0.99996, 1.0)


@broken_by(RECIPE, ("300, 1792, 5", "300, 1024, 5"), ("device_batch=256,", "device_batch=128,"))
def test_batch():
    """The recipe's step is of 1,792 images in seven parts of 256."""
    run = tiny()
    assert (run.batch, run.device_batch, run.parts) == (1792, 256, 7)


@broken_by(RECIPE, ('dtype="bfloat16",\n        eval', 'dtype="float32",\n        eval'))
def test_precision():
    """The full run's products are in bfloat16."""
    assert tiny().dtype == "bfloat16"


@broken_by(
    "training.recipes.gka_nanochat",
    ("model=config,", "model=replace(config, num_heads=8),"),
    ("model=config,", "model=replace(config, depth=12),"),
    ("model=config,", "model=replace(config, vocab_size=50_257),"),
    ("model=config,", 'model=replace(config, windows="L"),'),
)
@broken_by(
    "training.recipes.gka_nanochat",
    ("model=config,", "model=replace(config, context=1024),"),
    also=("test_tokens_of_the_baseline", "test_tokens_of_gka"),
)
def test_depth_twenty():
    """Layers, heads, width, tokens, length and windows of the recipe's GKA are those printed."""
    model = run_of("gka-nanochat-d20", "gka").model
    assert (model.depth, model.num_heads, model.dim) == (20, 10, 1280)
    assert (model.vocab_size, model.context) == (32_768, 2_048)
    assert [model.window(layer) is None for layer in range(20)] == [False, False, False, True] * 5


@broken_by(
    "analysis.rollout",
    (
        "step = (1 - share) * discarded(layer.mean(1), discard)",
        "step = discarded(layer.mean(1), discard)",
    ),
    ("discarded(layer.mean(1), discard)", "discarded(layer.amax(1), discard)"),
    ("residual: float | Sequence[float] = 0.5,", "residual: float | Sequence[float] = 0.1,"),
)
@broken_by("analysis.metrics", ("DISCARDS = (0.0, 0.5, 0.9)", "DISCARDS = (0.0, 0.5)"))
def test_rollout():
    """A layer's step is half the mean over heads and half the identity; figures discard 0, 0.5 and 0.9."""
    weights = torch.rand(1, 3, 4, 4, dtype=torch.float64).softmax(-1)
    torch.testing.assert_close(rollout([weights]), 0.5 * weights.mean(1) + 0.5 * torch.eye(4).double())
    assert metrics.DISCARDS == (0.0, 0.5, 0.9)


@contextmanager
def laid_over() -> Iterator:
    """A map of patches over a picture, as the figures lay it."""
    figure, axes = plt.subplots()
    try:
        yield maps.overlay(axes, np.zeros((8, 8)), np.ones((2, 2)))
    finally:
        plt.close(figure)


@broken_by(
    "viz.maps",
    ('HEAT = "inferno"', 'HEAT = "viridis"'),
    ("alpha=0.6,", "alpha=0.4,"),
)
@broken_by("training.recipes.gka_imagenet", ("SIZES[size], drop", "SIZES[size], patch_size=32, drop"))
def test_class_maps():
    """Maps are of 14 × 14 patches of 224 pixels, in inferno, at α = 0.6."""
    model = tiny().model
    assert model.image_size == 224 and model.image_size // model.patch_size == 14
    with laid_over() as image:
        assert (image.get_cmap().name, image.get_alpha()) == ("inferno", 0.6)


@broken_by("viz.maps", ('interpolation="bilinear"', 'interpolation="bicubic"'))
def test_interpolation():
    """Ours enlarges maps bilinearly, as one of the paper's two sections has it."""
    with laid_over() as image:
        assert image.get_interpolation() == "bilinear"


@broken_by("analysis.rollout", ("side // 2, 3 * side // 4", "side // 2, 2 * side // 3"))
def test_query_patches():
    """Of 14 × 14 patches the queries stand in rows and columns 3, 7 and 10."""
    found = set(patches.query_patches(14).values())
    assert found == {(3, 3), (7, 7), (10, 10), (3, 10)}


@broken_by("viz.maps", ("dtype=bool), 0.0, matrix)", "dtype=bool), 1.0, matrix)"))
@broken_by(
    "analysis.rollout",
    ("np.linspace(0, count - 1, most)", "np.geomspace(1, count - 1, most)"),
    ("MOST = 50 ", "MOST = 64 "),
)
def test_masked_matrices():
    """The diagonal is zero and nothing else changes; of 197 tokens 50 are kept, 4 or 5 apart."""
    matrix = np.random.default_rng(0).random((4, 4)) + 1
    masked = maps.off_diagonal(matrix)
    assert (np.diagonal(masked) == 0).all() and (masked + np.diag(np.diagonal(matrix)) == matrix).all()
    few, kept = patches.subsample(np.ones((197, 197)), most=patches.MOST)
    assert few.shape == (50, 50) and kept[0] == 0 and kept[-1] == 196 and set(np.diff(kept)) == {4}

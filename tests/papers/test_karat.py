"""What Kolmogorov–Arnold attention's paper states of settings and formulas, cell by cell."""

import inspect
import math

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

import gkalib
from gkalib.training.optim import learning_rate, optimizers, weight_average
from gkalib.training.recipes import karat
from gkalib.training.vision import mixer
from tests.papers import broken_by, run_of

RECIPE = "training.recipes.karat"


def run(data: str = "cifar10"):
    return run_of(f"karat-{data}", "tiny-g3b")


def adamw() -> torch.optim.Optimizer:
    """The optimizer that the run builds."""
    (built,) = optimizers(run(), nn.Linear(3, 2))
    return built


def mixup():
    """timm's Mixup as the run builds it."""
    return inspect.getclosurevars(inspect.unwrap(mixer(run()))).nonlocals["mix"]


@broken_by(
    RECIPE,
    ("num_classes=classes),\n        augment", "num_classes=classes, image_size=32),\n        augment"),
)
def test_input_size():
    """The model reads pictures of 224 pixels."""
    assert run().model.image_size == 224


@broken_by(RECIPE, ("eval_crop=0.9,", "eval_crop=0.875,"))
def test_crop_ratio():
    """The middle 0.9 of a picture is evaluated."""
    assert run().eval_crop == 0.9


@broken_by(
    RECIPE,
    ('"cifar10": (50_000, 32, 10)', '"cifar10": (50_000, 64, 10)'),
    ("1_281_167, 128, 1000", "1_281_167, 256, 1000"),
)
def test_batch_size():
    """A step is of 32 pictures of CIFAR and of 128 of ImageNet."""
    assert [run(data).batch for data in ("cifar10", "cifar100", "imagenet")] == [32, 32, 128]


@broken_by("training.optim", ("torch.optim.AdamW(_groups", "torch.optim.Adam(_groups"))
def test_optimizer():
    """The optimizer that the run builds is torch's AdamW."""
    assert type(adamw()) is torch.optim.AdamW


@broken_by(RECIPE, ("eps=1e-6,", "eps=1e-8,"))
def test_optimizer_epsilon():
    """The optimizer that the run builds has ε 1e-6."""
    assert adamw().defaults["eps"] == 1e-6


@broken_by(RECIPE, ("weight_decay=0.05,", "weight_decay=0.05,\n        betas=(0.8, 0.999),"))
@broken_by("training.optim", ("betas=config.betas,", "betas=(0.95, 0.999),"))
def test_momentum():
    """The optimizer that the run builds has 0.9 as its first β."""
    assert adamw().defaults["betas"][0] == 0.9


@broken_by(RECIPE, ("weight_decay=0.05,", "weight_decay=0.1,"))
@broken_by("training.optim", ("0.0 if undecayed else config.weight_decay", "0.0"))
def test_weight_decay():
    """The optimizer that the run builds lets matrices decay by 0.05."""
    assert max(group["weight_decay"] for group in adamw().param_groups) == 0.05


@broken_by(RECIPE, ("clip=1.0,", "clip=None,"))
def test_gradient_clip():
    """Gradients are cut at norm 1."""
    assert run().clip == 1.0


@broken_by(RECIPE, ("weight_decay=0.05,", 'weight_decay=0.05,\n        schedule="trapezoid",'))
@broken_by("training.optim", ("(1 + math.cos(math.pi * done)) / 2)\n    left", "(1 - done))\n    left"))
def test_schedule():
    """A quarter, half and three quarters after the warm-up, the rate is that of a cosine."""
    settings = run()
    for done in (0.25, 0.5, 0.75):
        step = settings.warmup + round(done * (settings.steps - settings.warmup))
        height = (1 + math.cos(math.pi * done)) / 2
        expected = settings.final_lr + (settings.lr - settings.final_lr) * height
        assert learning_rate(settings, step) == pytest.approx(expected, rel=1e-4)


@broken_by(RECIPE, ("lr=5e-4 * batch / 512,", "lr=1e-3 * batch / 512,"))
def test_learning_rate():
    """The peak is 5e-4 times the batch over 512, on each data set."""
    assert all(run(data).lr == pytest.approx(5e-4 * run(data).batch / 512) for data in karat.DATA)


@broken_by(RECIPE, ("warmup_lr=1e-6,", "warmup_lr=0.0,"))
@broken_by("training.optim", ("factor * (config.warmup_lr + ", "factor * ("))
def test_warmup_rate():
    """The rate of the first step is 1e-6."""
    assert learning_rate(run(), 0) == 1e-6


@broken_by(RECIPE, ("final_lr=1e-5,", "final_lr=0.0,"))
def test_least_rate():
    """The rate of the last step is 1e-5."""
    assert learning_rate(run(), run().steps) == pytest.approx(1e-5)


@broken_by(RECIPE, ("EPOCHS, WARMUP = 100, 5", "EPOCHS, WARMUP = 90, 5"))
def test_epochs():
    """The steps read every picture 100 times, on each data set."""
    for data, (images, batch, _) in karat.DATA.items():
        assert run(data).steps * batch / images == pytest.approx(100, abs=0.01)


@broken_by(RECIPE, ("EPOCHS, WARMUP = 100, 5", "EPOCHS, WARMUP = 100, 10"))
def test_warmup_epochs():
    """The warm-up reads every picture five times, on each data set."""
    for data, (images, batch, _) in karat.DATA.items():
        assert run(data).warmup * batch / images == pytest.approx(5, abs=0.01)


@broken_by("training.optim", ("    if decay is None:\n        return None\n", "    return None\n"))
def test_average():
    """The run keeps a moving average of its weights."""
    assert isinstance(weight_average(nn.Linear(2, 2), run().ema), AveragedModel)


@broken_by(RECIPE, ("ema=0.99992,", "ema=0.9999,"))
def test_decay_of_the_average():
    """The average keeps 0.99992 of itself in each step."""
    assert run().ema == 0.99992


@broken_by(RECIPE, ("crop=(0.08, 1.0),", "crop=(0.2, 1.0),"), ("ratio=(0.67, 1.5),", "ratio=(0.75, 1.33),"))
def test_crops():
    """Crops have 0.08 to 1 of the area and sides in ratios from 0.67 to 1.5."""
    assert (run().augment.crop, run().augment.ratio) == ((0.08, 1.0), (0.67, 1.5))


@broken_by(RECIPE, ("flip=0.5,", "flip=0.0,"))
def test_flips():
    """Half of the pictures are mirrored."""
    assert run().augment.flip == 0.5


@broken_by(RECIPE, ("jitter=0.4,", "jitter=0.3,"))
def test_jitter():
    """Colors vary by 0.4."""
    assert run().augment.jitter == 0.4


@broken_by(RECIPE, ("rand-m15-n2", "rand-m9-n2"))
def test_policy():
    """The augmentation's policy is rand-m15-n2-mstd1.0-inc1."""
    assert run().augment.policy == "rand-m15-n2-mstd1.0-inc1"


@broken_by(RECIPE, ("mixup=0.8,", "mixup=0.0,"))
@broken_by("training.vision", ("mixup_alpha=augment.mixup,", "mixup_alpha=0.0,"))
def test_mixup():
    """timm's Mixup, as the run builds it, has an α above 0 for Mixup."""
    assert mixup().mixup_alpha > 0


@broken_by(RECIPE, ("cutmix=1.0,", "cutmix=0.0,"))
@broken_by("training.vision", ("cutmix_alpha=augment.cutmix,", "cutmix_alpha=0.0,"))
def test_cutmix():
    """timm's Mixup, as the run builds it, has an α above 0 for CutMix."""
    assert mixup().cutmix_alpha > 0


@broken_by(RECIPE, ("mixup=0.8,", "mixup=0.8,\n            switch=0.9,"))
@broken_by(
    "training.vision", ("prob=augment.mix,", "prob=0.5,"), ("switch_prob=augment.switch,", "switch_prob=0.2,")
)
def test_probabilities_of_mixing():
    """timm's Mixup, as the run builds it, takes each of the two with probability 0.5."""
    mix = mixup()
    assert (mix.mix_prob * (1 - mix.switch_prob), mix.mix_prob * mix.switch_prob) == (0.5, 0.5)


@broken_by(
    "training.vision", ("switch_prob=augment.switch,", 'switch_prob=augment.switch,\n        mode="elem",')
)
def test_mode_of_mixing():
    """timm's Mixup, as the run builds it, mixes by the batch."""
    assert mixup().mode == "batch"


@broken_by(RECIPE, ("smoothing=0.1,", "smoothing=0.0,"))
@broken_by("training.vision", ("label_smoothing=smoothing,", "label_smoothing=0.0,"))
def test_label_smoothing():
    """timm's Mixup, as the run builds it, smooths labels by 0.1."""
    assert mixup().label_smoothing == 0.1


@broken_by(
    "normalizers.row_operator",
    ("return x @ self.weight.to(x.dtype).mT", "return x @ self.weight.to(x.dtype).mT.abs()"),
)
def test_low_rank_attention():
    """A layer is W Φ̂(q kᵀ/√d) v with r = 12 rows of Fourier units, to float64's rounding."""
    layer = gkalib.attention("karat", length=13, grid=2, project_out=False)(4, 1).double()
    x = torch.randn(1, 13, 4, dtype=torch.float64)
    score = layer.query(x) @ layer.key(x).mT / 2
    units, mix = layer.normalizer.first, layer.normalizer.second.weight[0]
    angles = score[0, :, None, :, None] * torch.tensor([1.0, 2.0])
    terms = torch.cat([angles.cos(), angles.sin()], -1) * units.coefficients[0]
    features = (terms.sum(-1) * units.basis_scale[0]).sum(-1)
    assert mix.shape == (13, 12)
    torch.testing.assert_close(layer(x)[0], features @ mix.mT @ layer.value(x)[0])


@broken_by(
    "layers.karat",
    (
        'if bound.options.get("mode") != "universal":',
        'if bound.options.get("mode") == "blockwise":\n            pass\n        else:',
    ),
)
def test_blockwise_and_universal():
    """The blocks of a universal model have one operator, those of a blockwise one their own."""
    shared = []
    for mode in ("blockwise", "universal"):
        variant = gkalib.attention("karat", mode=mode, rank=2)
        model = gkalib.vit("tiny", attention=variant, dim=12, depth=2, num_heads=3, image_size=32)
        shared.append(model.blocks[0].attn.normalizer is model.blocks[1].attn.normalizer)
    assert shared == [False, True]


@broken_by(RECIPE, ('"tiny": {"hybrid": 2,', '"tiny": {"hybrid": 1,'))
@broken_by(
    "layers.karat", ("heads=[softmax_heads, operator.num_heads]", "heads=[operator.num_heads, softmax_heads]")
)
def test_hybrid_heads():
    """Of the hybrid arm's three heads the first two are softmax and the third is KArAt."""
    options = karat.operators("tiny")["hybrid"]
    normalizer = gkalib.attention("karat", length=13, **options)(12, 3).normalizer
    assert normalizer.heads == [2, 1]
    assert [type(one).__name__ for one in normalizer.normalizers] == ["RowSum", "RowOperator"]

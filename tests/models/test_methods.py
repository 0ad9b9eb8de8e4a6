"""Two small models trained a few steps with every exact method: the same losses."""

from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import cross_entropy

import gkalib
from gkalib.layers import attention
from gkalib.models import GPTConfig, ViTConfig

STEPS = 3
INTERPRETED = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="float64 programs run in the interpreter"),
    pytest.mark.slow,
]
BANK = {"num_terms": 3, "length": 8.0, "tau": (2.0, 6.0), "sigma": 0.5}
# Of these `padded` has no form for the bank of the lag, nor for the operator on rows.
GPT = {"gka": {}, "rbf": {}, "gpa": BANK}
VIT = {"gka": {}, "karat": {"rank": 4}}


def _layers(variants: dict, method: str, without: tuple[str, ...]) -> list:
    return [attention(name, method=method, **more) for name, more in variants.items() if name not in without]


def _gpt(layers: list) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    model = gkalib.gpt(
        GPTConfig(vocab_size=11, context=12, dim=16, depth=len(layers), num_heads=2), attention=layers
    )
    tokens = torch.randint(11, (1, 13))
    return model, tokens[:, :-1], tokens[:, 1:]


def _vit(layers: list) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    model = gkalib.vit(
        ViTConfig(
            image_size=8, patch_size=4, channels=1, dim=16, depth=len(layers), num_heads=2, num_classes=3
        ),
        attention=layers,
    )
    return model, torch.randn(2, 1, 8, 8, dtype=torch.float64), torch.randint(3, (2,))


def _losses(make: Callable, layers: list) -> torch.Tensor:
    """The loss before each step and the one after the last."""
    torch.manual_seed(0)
    model, inputs, labels = make(layers)
    model = model.double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
    losses = []
    for _ in range(STEPS + 1):
        loss = cross_entropy(model(inputs).flatten(0, -2), labels.flatten())
        losses.append(loss.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return torch.stack(losses)


@pytest.mark.parametrize(("make", "variants"), [(_gpt, GPT), (_vit, VIT)], ids=["gpt", "vit"])
@pytest.mark.parametrize("method", [pytest.param("fused", marks=INTERPRETED), "dense", "padded"])
def test_training_takes_the_same_course(make, variants, method):
    without = ("gpa", "karat") if method == "padded" else ()
    actual = _losses(make, _layers(variants, method, without))
    exact = _losses(make, _layers(variants, "reference", without))
    assert exact[-1] < 0.9 * exact[0]
    # Adam divides by the gradient's size, so that rounding in a gradient near zero moves a parameter.
    assert (actual / exact - 1).abs().max() < 1e-7

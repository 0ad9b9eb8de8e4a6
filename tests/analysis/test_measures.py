"""Each measure is its formula, and bandwidths are those of the layer and head that they are named for."""

import math

import pytest
import torch

from gkalib import attention, vit
from gkalib.analysis import (
    bandwidths,
    contributions,
    entropy,
    magnitudes,
    mass,
    measures,
    negative,
    neighbors,
    own,
    received,
)
from gkalib.models import ViTConfig
from gkalib.smoothing import compute_weights

SMALL = ViTConfig(image_size=8, patch_size=4, dim=16, depth=3, num_heads=2, num_classes=5)
ROWS = torch.tensor(
    [[0.5, 0.5, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25], [0.1, 0.2, 0.3, 0.4]]
)
SIGNED = torch.tensor([[2.0, -1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])


def test_measures_by_hand():
    torch.testing.assert_close(
        neighbors(ROWS), torch.tensor([2.0, 1.0, 4.0, 1 / (0.01 + 0.04 + 0.09 + 0.16)])
    )
    last = -(0.1 * math.log(0.1) + 0.2 * math.log(0.2) + 0.3 * math.log(0.3) + 0.4 * math.log(0.4))
    torch.testing.assert_close(entropy(ROWS), torch.tensor([math.log(2), 0.0, math.log(4), last]))
    torch.testing.assert_close(own(ROWS), torch.tensor([0.5, 0.0, 0.25, 0.4]))
    torch.testing.assert_close(received(ROWS), torch.tensor([1.85, 0.95, 0.55, 0.65]))
    torch.testing.assert_close(mass(ROWS), torch.ones(4))
    torch.testing.assert_close(negative(ROWS), torch.zeros(4))


def test_measures_of_rows_with_signs_by_hand():
    torch.testing.assert_close(magnitudes(SIGNED)[0], torch.tensor([0.5, 0.25, 0.25, 0.0]))
    torch.testing.assert_close(neighbors(SIGNED), torch.tensor([16 / 6, 0.0]))
    torch.testing.assert_close(entropy(SIGNED), torch.tensor([1.5 * math.log(2), 0.0]))
    torch.testing.assert_close(negative(SIGNED), torch.tensor([0.25, 0.0]))
    torch.testing.assert_close(mass(SIGNED), torch.tensor([2.0, 0.0]))
    torch.testing.assert_close(
        own(SIGNED), torch.tensor([0.25, 0.0])
    )  # the two queries are the last two keys


def test_all_measures_of_a_head_are_means():
    # The keys of the second item are reversed, so that another of them receives most.
    weights = torch.stack([ROWS, ROWS.flip(1)])[:, None].expand(2, 2, 4, 4)
    found = measures(weights, token=0)
    torch.testing.assert_close(found["neighbors"], neighbors(ROWS).mean().expand(2))
    torch.testing.assert_close(found["largest"], torch.tensor([1.85, 1.85]) / 4)
    torch.testing.assert_close(found["token"], torch.tensor([1.25, 1.25]) / 4)
    assert set(measures(weights)) == {"neighbors", "entropy", "own", "mass", "negative", "largest"}
    with pytest.raises(ValueError, match=r"^own: 4 queries have no own keys among 3"):
        measures(weights[..., :3])


def test_bandwidths_are_read_by_layer_and_head():
    model = vit(SMALL, attention=attention("gka", sigma=[1.5, 4.0]))
    with torch.no_grad():
        model.blocks[1].attn.kernel.log_sigma.fill_(math.log(3.0))
    torch.testing.assert_close(bandwidths(model), torch.tensor([[1.5, 4.0], [3.0, 3.0], [1.5, 4.0]]))
    krause = vit(SMALL, attention=attention("krause", sigma=2.0, sigma_per="layer"))
    torch.testing.assert_close(bandwidths(krause), torch.full((3, 2), 2.0))


def test_heads_without_a_bandwidth_have_none():
    mixed = vit(SMALL, attention=attention("mixed", heads={"gka": 1, "softmax": 1}))
    found = bandwidths(mixed)
    assert found.shape == (3, 2) and found[:, 0].isfinite().all() and found[:, 1].isnan().all()
    for name in ("softmax", "gpa"):
        with pytest.raises(ValueError, match=r"^bandwidths: no kernel in"):
            bandwidths(vit(SMALL, attention=name))


def written(layer, x):
    """Weights, values and the rows of the output's matrix that meet each head."""
    problem = layer.problem(x)
    return compute_weights(problem), problem.value, layer.proj.weight.T.unflatten(0, (2, 8))


def test_a_layer_writes_the_sum_of_what_its_tokens_contribute():
    torch.manual_seed(0)
    layer, x = attention("softmax")(16, 2, dtype=torch.float64), torch.randn(2, 12, 16, dtype=torch.float64)
    weights, value, out = written(layer, x)
    parts = weights[..., None] * (value @ out)[:, :, None]  # from token j to token i
    torch.testing.assert_close(parts.sum((1, 3)) + layer.proj.bias, layer(x))
    lengths = parts.norm(dim=-1)
    found = contributions(weights, value, out)
    torch.testing.assert_close(found, lengths / lengths.sum(-1, keepdim=True))


def test_a_key_without_a_value_contributes_nothing_however_much_weight_it_takes():
    weights, value = torch.tensor([[[[0.9, 0.05, 0.05]]]]), torch.ones(1, 1, 3, 2)
    value[:, :, 0] = 0
    found = contributions(weights, value, torch.eye(2)[None])
    torch.testing.assert_close(found, torch.tensor([[[[0.0, 0.5, 0.5]]]]))

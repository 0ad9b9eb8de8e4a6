"""Krause attention: its limits are RBF attention and GKA, and its neighborhoods are the authors'."""

import pytest
import torch

from gkalib.layers import attention
from gkalib.layers.krause import KrauseAttention, Neighborhood, growing
from gkalib.masks import Causal
from gkalib.models import GPTConfig, gpt
from gkalib.smoothing import compute_weights
from tests.tolerance import equal

DIM, HEADS, N = 32, 4, 16


@pytest.fixture
def x():
    return torch.randn(2, N, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def layer(**options):
    torch.manual_seed(1)
    return KrauseAttention(DIM, HEADS, dtype=torch.float64, **options)


def weights(made, x, **asked):
    return compute_weights(made.problem(x, **asked))


@pytest.mark.parametrize("top_k", [N, N + 5, None])
def test_all_keys_without_a_window_are_rbf_attention(x, top_k):
    krause = layer(top_k=top_k, sigma=1.7)
    rbf = attention("rbf", gamma=1 / (2 * 1.7**2))(DIM, HEADS, dtype=torch.float64)
    rbf.load_state_dict({k: v for k, v in krause.state_dict().items() if k != "kernel.log_sigma"})
    equal(krause(x), rbf(x))
    equal(krause(x, is_causal=True), rbf(x, is_causal=True))


def test_all_keys_and_no_projections_are_gka(x):
    krause = layer(top_k=None, sigma=1.7)
    for projection in (krause.query, krause.key, krause.value):
        torch.nn.init.eye_(projection.weight)
    gka = attention("gka", sigma=1.7)(DIM, HEADS, dtype=torch.float64)
    gka.proj.load_state_dict(krause.proj.state_dict())
    equal(krause(x), gka(x))


def test_each_row_listens_to_the_k_nearest(x):
    made = layer(top_k=3)
    problem = made.problem(x)
    w = compute_weights(problem)
    assert ((w > 0).sum(-1) == 3).all()
    distance = torch.cdist(problem.query, problem.key)
    nearest = distance.topk(3, largest=False).indices
    assert torch.equal(w > 0, torch.zeros_like(w, dtype=torch.bool).scatter(-1, nearest, True))


def test_a_window_is_exactly_so_many_keys_under_a_causal_mask(x):
    w = weights(layer(top_k=None, window=5), x, mask=Causal())
    seen = (w > 0).sum(-1)
    assert torch.equal(seen, torch.arange(1, N + 1).clamp(max=5).expand_as(seen))
    assert ((weights(layer(top_k=2, window=5), x, mask=Causal()) > 0).sum(-1) <= 2).all()


@pytest.mark.parametrize(("radius", "neighbors"), [(0.0, 0), (1.0, 4), (1.5, 8), (2.9, 24)])
def test_a_radius_is_a_number_of_neighbors(radius, neighbors):
    rule = Neighborhood(7, 7, radius=radius, extra=2)
    index = torch.arange(2 + 49)
    zero = torch.tensor(0)
    seen = rule.allows(zero, zero, index[:, None], index)
    assert torch.equal(seen, seen.T)
    assert seen[:2].all()
    center = 2 + 3 * 7 + 3
    assert seen[center, 2:].sum() == 1 + neighbors
    row, column = torch.meshgrid(torch.arange(7), torch.arange(7), indexing="ij")
    near = ((row - 3) ** 2 + (column - 3) ** 2 <= radius**2).flatten()
    assert torch.equal(seen[center, 2:], near)


def test_a_vision_layer_sees_the_class_token_itself_and_four_neighbors(x):
    made = layer(top_k=None, grid=(3, 5))
    counts = (weights(made, x) > 0).sum(-1)[0, 0]
    assert counts[0] == N
    assert counts[1 + 1 * 5 + 2] == 6
    assert counts[1] == 4  # a corner: itself, two neighbors, the class token
    with pytest.raises(ValueError, match=r"krause: cannot decode token by token: its grid is laid over all"):
        made.cache(1, N)


@pytest.mark.parametrize(("sigma_per", "count"), [("head", HEADS), ("layer", 1)])
def test_parameters_are_four_projections_and_bandwidths_that_learn(x, sigma_per, count):
    made = layer(sigma_per=sigma_per)
    assert sum(p.numel() for p in made.parameters()) == 4 * DIM**2 + DIM + count
    assert torch.allclose(made.kernel.log_sigma.exp(), torch.tensor(2.5, dtype=torch.float64), rtol=1e-12)
    made(x).square().sum().backward()
    assert (made.kernel.log_sigma.grad != 0).all()


def test_k_grows_with_depth_to_twice_its_start():
    classes = growing(12, sigma=4.5)
    assert [cls.options["top_k"] for cls in classes] == [8, 9, 9, 10, 11, 12, 12, 13, 14, 15, 15, 16]
    assert classes[3](DIM, HEADS).normalizer.k == 10
    config = GPTConfig(vocab_size=11, context=8, dim=16, depth=3, num_heads=2)
    model = gpt(config, attention=growing(3, top_k=2))
    assert [block.attn.normalizer.k for block in model.blocks] == [2, 3, 4]


def test_a_grid_that_is_not_the_tokens_is_refused(x):
    with pytest.raises(
        ValueError, match=r"a grid of 4 by 4 and 1 extra tokens are 17 tokens, not 16 queries"
    ):
        layer(grid=(4, 4))(x)

"""The non-local block: the identity at the start, and each form as the paper writes it."""

import pytest
import torch
from torch import nn

from gkalib.layers import attention
from gkalib.layers.non_local import Concatenated, NonLocalAttention
from gkalib.masks import Causal
from tests.tolerance import equal

DIM, N = 24, 10
FORMS = ["embedded", "gaussian", "dot", "concatenation"]


@pytest.fixture
def x():
    return torch.randn(2, N, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def layer(form, num_heads=1, **options):
    torch.manual_seed(1)
    return NonLocalAttention(DIM, num_heads, form=form, **{"dtype": torch.float64, **options})


def by_hand(made, x, causal=False):
    """The paper's equations with one head, for the rows of each batch."""
    theta, phi = (x, x) if made.form == "gaussian" else (made.query(x), made.key(x))
    f = theta @ phi.mT
    if made.form == "concatenation":
        w = made.kernel.weight[0]
        f = ((theta @ w[0])[:, :, None] + (phi @ w[1])[:, None]).relu()
    elif made.form != "dot":
        f = f.exp()
    keep = torch.ones(N, N, dtype=x.dtype).tril() if causal else torch.ones(N, N, dtype=x.dtype)
    f = f * keep
    total = f.sum(-1, keepdim=True) if made.form in ("embedded", "gaussian") else keep.sum(-1, keepdim=True)
    return made.proj((f / total) @ made.value(x))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_each_form_is_the_paper_s(x, form, causal):
    made = layer(form, identity=False)
    equal(made(x, is_causal=causal), by_hand(made, x, causal))
    assert made(x).abs().max() > 1e-3


@pytest.mark.parametrize("form", FORMS)
def test_a_block_is_the_identity_at_the_start(x, form):
    made = layer(form, num_heads=2)
    assert torch.equal(x + made(x), x)
    # A model that draws all matrices anew calls start() afterwards.
    for module in made.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight)
    assert made(x).abs().max() > 1e-3
    made.reset_parameters()
    assert torch.equal(x + made(x), x)


def test_the_first_step_moves_the_output_projection(x):
    made = layer("embedded")
    (x + made(x)).square().sum().backward()
    assert made.proj.weight.grad.abs().max() > 0
    assert made.query.weight.grad.abs().max() == 0


@pytest.mark.parametrize("form", FORMS)
def test_the_width_inside_is_half(form):
    made = layer(form, num_heads=2)
    inner = DIM // 2
    matrices = 2 if form == "gaussian" else 4
    extra = 2 * inner if form == "concatenation" else 0
    assert sum(p.numel() for p in made.parameters()) == matrices * DIM * inner + DIM + extra


def test_the_embedded_form_is_softmax_attention_at_half_the_width_and_scale_one(x):
    made = layer("embedded", num_heads=2, identity=False)
    softmax = attention("softmax", scale=1.0)(DIM, 2, head_dim=DIM // 4, dtype=torch.float64)
    softmax.load_state_dict(made.state_dict())
    equal(made(x), softmax(x))


@pytest.mark.parametrize("form", FORMS)
def test_one_token_at_a_time_is_the_whole(x, form):
    made = layer(form, num_heads=2, identity=False)
    cache = made.cache(2, N)
    parts = [made(x[:, i : i + 1], mask=Causal(), cache=cache) for i in range(N)]
    equal(torch.cat(parts, dim=1), made(x, is_causal=True))


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_right(form):
    made = layer(form, num_heads=2, identity=False)
    small = torch.randn(1, 4, DIM, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(made, small, fast_mode=True)


def test_a_kernel_that_may_be_zero_has_no_logarithm(x):
    with pytest.raises(ValueError, match="Concatenated: its values may be zero everywhere"):
        Concatenated(1, DIM).log(x[:, None], x[:, None])

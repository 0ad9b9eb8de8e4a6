"""What every variant obeys, whatever its slots: one test a law, one case a variant."""

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from gkalib.layers import Smoother, attention, bind, variants
from gkalib.masks import Causal, KeyPadding, Window
from gkalib.smoothing import compute_output, compute_weights
from tests.tolerance import agree, equal
from tests.variants import DIM, HEADS, LENGTH, VARIANTS

ALL = sorted(set(VARIANTS) & set(variants()))


def layer(name: str, **options) -> nn.Module:
    """A layer in float64 in which what is zero or one at the start is drawn at random as well."""
    made = VARIANTS[name].make(name, **options).double()
    for parameter in made.parameters():
        if parameter.ndim == 1 or not parameter.any():
            parameter.data += 0.1 * torch.randn_like(parameter)
    return made.eval()


def smoothers(made: nn.Module) -> list[Smoother]:
    """The layer itself, or the variants of which it is mixed."""
    return [module for module in made.modules() if isinstance(module, Smoother)]


def where(name: str, is_true) -> bool:
    """Whether something holds for every smoother of a variant."""
    return all(map(is_true, smoothers(layer(name))))


def tokens(batch: int = 2, length: int = LENGTH) -> Tensor:
    return torch.randn(batch, length, DIM, dtype=torch.float64)


CAUSAL = [name for name in ALL if where(name, lambda one: one.causal)]
DECODING = [name for name in ALL if where(name, lambda one: one.decodes)]
EXACT = [
    name
    for name in ALL
    if where(name, lambda one: one.method == "auto" or getattr(one.method, "exact", True))
]


def test_every_variant_has_its_line():
    assert set(VARIANTS) == set(variants())


@pytest.mark.parametrize("name", ALL)
def test_the_limit_named_is_a_test(name):
    file, test = VARIANTS[name].limit.split("::")
    source = (Path(__file__).parent / file).read_text()
    assert test and re.search(rf"^def {test}\(", source, re.MULTILINE), VARIANTS[name].limit


@pytest.mark.parametrize("name", ALL)
def test_parameters_are_the_formulas(name):
    made = VARIANTS[name].make(name)
    counted = sum(parameter.numel() for parameter in made.parameters())
    assert counted == VARIANTS[name].parameters(DIM, HEADS, LENGTH)


@pytest.mark.parametrize("name", ALL)
def test_no_sequences_give_none(name):
    made, x = layer(name), tokens(0).requires_grad_()
    out = made(x)
    out.sum().backward()
    assert out.shape == x.shape == x.grad.shape


@pytest.mark.parametrize(
    "name, causal", [(name, False) for name in EXACT] + [(name, True) for name in EXACT if name in CAUSAL]
)
def test_the_method_chosen_gives_the_definition(name, causal):
    for one in smoothers(layer(name)):
        problem = one.problem(tokens(), is_causal=causal)
        equal(compute_output(problem, one.method), compute_output(problem, "reference"))


@pytest.mark.parametrize("name", ALL)
def test_autocast_rounds_and_changes_nothing_else(name):
    made, x = layer(name, qkv_bias=True).float(), tokens().float()
    exact = made(x)
    with torch.autocast("cpu", torch.bfloat16):
        out = made(x)
        if name in DECODING:
            assert made(x[:, :1], cache=made.cache(len(x), LENGTH)).isfinite().all()
    if VARIANTS[name].smooth:  # else rounding may choose another key
        assert (out - exact).norm() < 0.05 * exact.norm()
    out.float().square().sum().backward()
    assert all(one.grad is None or one.grad.isfinite().all() for one in made.parameters())


@pytest.mark.parametrize("name", ALL)
def test_averages_are_averages(name):
    for one in smoothers(layer(name)):
        problem = one.problem(tokens())
        if problem.normalizer.averages:
            weights = compute_weights(problem)
            assert (weights >= 0).all()
            equal(weights.sum(-1), torch.ones_like(weights[..., 0]))
        else:
            weights = compute_weights(problem)  # it says that it does not average, and it does not
            assert (weights.sum(-1) - 1).abs().max() > 1e-9 or weights.min() < -1e-9


@pytest.mark.parametrize("name", ALL)
def test_sequences_of_a_batch_are_independent(name):
    made, x = layer(name), tokens(3)
    together = made(x)
    for index in range(3):
        equal(together[index : index + 1], made(x[index : index + 1]))


@pytest.mark.parametrize("name", ALL)
def test_permuted_tokens_give_a_permuted_output_or_positions_matter(name):
    made, x, order = layer(name), tokens(), torch.randperm(LENGTH)
    if VARIANTS[name].permutes:
        equal(made(x[:, order]), made(x)[:, order])
    else:
        assert (made(x[:, order]) - made(x)[:, order]).abs().max() > 1e-6


@pytest.mark.parametrize("name", [name for name in ALL if VARIANTS[name].permutes])
@pytest.mark.parametrize("position", ["rope", "susie"])
def test_written_positions_matter(name, position):
    made, x, order = layer(name, position=position), tokens(), torch.randperm(LENGTH)
    assert (made(x[:, order]) - made(x)[:, order]).abs().max() > 1e-6


@pytest.mark.parametrize("name", [name for name in ALL if VARIANTS[name].flexible])
def test_masked_tokens_are_as_if_deleted(name):
    made, x, context = layer(name), tokens(length=5), tokens()
    lengths = torch.tensor([11, 11])
    if VARIANTS[name].permutes:
        equal(made(x, context=context, mask=KeyPadding(lengths)), made(x, context=context[:, :11]))
    else:  # positions count from the end: tell them
        positions = (torch.arange(11, 16), torch.arange(16))
        fewer = (positions[0], positions[1][:11])
        equal(
            made(x, context=context, mask=KeyPadding(lengths), positions=positions),
            made(x, context=context[:, :11], positions=fewer),
        )


@pytest.mark.parametrize("name", CAUSAL)
def test_the_future_changes_nothing(name):
    made, x = layer(name), tokens()
    changed = x.clone()
    changed[:, 9:] += torch.randn_like(changed[:, 9:])
    before, after = made(x, is_causal=True), made(changed, is_causal=True)
    equal(after[:, :9], before[:, :9])
    assert (after[:, 9:] - before[:, 9:]).abs().max() > 1e-3


@pytest.mark.parametrize("name", sorted(set(ALL) - set(CAUSAL)))
def test_what_cannot_be_causal_says_why(name):
    made = layer(name)
    for ask in ({"is_causal": True}, {"mask": Causal()}, {"mask": Causal() & Window(3)}):
        with pytest.raises(ValueError, match=rf"^{name}: (cannot be causal|takes no mask): \w+"):
            made(tokens(), **ask)


@pytest.mark.parametrize("name", DECODING)
@pytest.mark.parametrize(
    ("window", "options"), [(None, {}), (5, {"position": "rope", "registers": 2})], ids=["plain", "placed"]
)
@torch.no_grad()
def test_one_token_from_a_cache_is_its_row_of_the_full_pass(name, window, options):
    made, x = layer(name, **options), tokens()
    mask = Causal() if window is None else Causal() & Window(window)
    if window is not None and not VARIANTS[name].flexible:
        with pytest.raises(ValueError, match=r"Window\(5\) does not say where a state begins"):
            made(x, mask=mask)
        return
    whole = made(x, mask=mask)
    for sizes in ([1] * LENGTH, [7, 1, 5, 3]):
        cache = made.cache(2, LENGTH)
        parts = [made(part, mask=mask, cache=cache) for part in x.split(sizes, dim=1)]
        equal(torch.cat(parts, dim=1), whole)


@pytest.mark.parametrize("name", sorted(set(ALL) - set(DECODING)))
def test_what_cannot_decode_says_why(name):
    with pytest.raises(ValueError, match=rf"^{name}: cannot decode token by token: \w+"):
        layer(name).cache(2, LENGTH)


@pytest.mark.parametrize("name", ALL)
def test_every_parameter_learns(name):
    made = layer(name)
    made(tokens()).square().sum().backward()
    for path, parameter in made.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), path
        # A bias of all keys moves no softmax weight, so its gradient is rounding.
        assert path.endswith("key.bias") or parameter.grad.abs().max() > 1e-12, path


@pytest.mark.parametrize("name", [name for name in ALL if VARIANTS[name].smooth])
def test_gradients_are_differences(name):
    made, x = layer(name), tokens(1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: made(x)[0, :2, :3], (x,), fast_mode=True)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_lower_precision_is_as_near_as_the_definition(name, dtype):
    double, x = layer(name), tokens()
    low = VARIANTS[name].make(name).eval()
    low.load_state_dict(double.state_dict())
    low = low.to(dtype)
    same = VARIANTS[name].make(name, method="reference").eval()
    same.load_state_dict(double.state_dict())
    same = same.to(dtype)
    double.load_state_dict(low.state_dict())
    agree(low(x.to(dtype)), double(x.to(dtype).double()), same(x.to(dtype)))


@pytest.mark.parametrize("name", sorted(set(ALL) - set(EXACT)))
def test_approximations_run_in_lower_precision(name):
    for dtype in (torch.float32, torch.bfloat16):
        made = layer(name).to(dtype)
        out = made(tokens().to(dtype))
        assert out.dtype == dtype and out.isfinite().all()


@pytest.mark.parametrize("name", ALL)
def test_other_tokens_may_be_attended_to(name):
    made, x = layer(name), tokens()
    equal(made(x, context=x.clone()), made(x))
    if VARIANTS[name].flexible:
        assert made(x, context=tokens(length=7)).shape == x.shape


@pytest.mark.parametrize("name", [name for name in ALL if VARIANTS[name].flexible])
def test_the_last_query_stands_on_the_last_token_of_a_context(name):
    made, x = layer(name, position="rope"), tokens()
    equal(made(x[:, -5:], context=x), made(x)[:, -5:])
    positions = (torch.arange(11, LENGTH), torch.arange(LENGTH))
    equal(made(x[:, -5:], context=x), made(x[:, -5:], context=x, positions=positions))


@pytest.mark.parametrize("name", ALL)
def test_parameters_are_made_where_and_as_asked(name):
    made = VARIANTS[name].make(name, position="rope", qk_norm=True, device="meta", dtype=torch.bfloat16)
    for path, parameter in made.named_parameters():
        assert (parameter.device.type, parameter.dtype) == ("meta", torch.bfloat16), path


@pytest.mark.parametrize("name", ALL)
def test_heads_must_divide_the_width(name):
    with pytest.raises(ValueError, match=rf"^{name}: num_heads 4 does not divide dim 30"):
        bind(attention(name, **VARIANTS[name].options), **_sized(name))(30, 4)


@pytest.mark.parametrize("name", ALL)
def test_what_timm_may_ask_for_in_vain_is_refused(name):
    with pytest.raises(ValueError, match="scale_norm is not implemented"):
        VARIANTS[name].make(name, scale_norm=True)
    with pytest.raises(ValueError, match=r"attn_drop must be at least 0 and below 1, not 1\.0"):
        VARIANTS[name].make(name, attn_drop=1.0)


@pytest.mark.parametrize("name", ALL)
def test_an_unknown_option_names_the_known_ones(name):
    with pytest.raises(ValueError, match=rf"^{name}: no option 'sigmaa'. Known: \w+"):
        attention(name, sigmaa=1.0)


def test_an_unknown_variant_names_the_known_ones():
    with pytest.raises(ValueError, match=r"^attention: no variant 'gkaa'. Known: delta, .* gka, "):
        attention("gkaa")


def _sized(name: str) -> dict:
    return {"length": LENGTH} if getattr(attention(name), "sized", False) else {}

"""Memories of fixed size, and the clock inside softmax: the facts, the limits, the cache, the errors."""

import re

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

import gkalib
from gkalib import attention, gpt, kernels, masks, replace_attention, smooth, vit
from gkalib.layers import Smoother
from gkalib.layers.parts import merge
from gkalib.models import GPTConfig
from gkalib.smoothing import Memory, MemoryProblem, State, compute_output, make_problem
from tests.layers.test_variant_laws import layer, tokens
from tests.tolerance import equal, oracle

MEMORIES = ["gated", "delta", "gated_delta", "mesa"]
B, H, N, D, E = 2, 3, 33, 8, 5


def within(bound: float, actual: Tensor, exact: Tensor) -> None:
    """Assert that two results differ by no more than this: the largest error seen, rounded up."""
    error = (actual - exact).abs().max().item()
    assert error <= bound, f"error {error:.1e} is above {bound:.0e}"


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def problem(
    query: Tensor, key: Tensor, value: Tensor, *, mask: masks.Mask | None = None, **gates
) -> MemoryProblem:
    rule = masks.Causal() if mask is None else masks.Causal() & mask
    slots = {"mask": rule, "normalizer": gkalib.normalizers.Unnormalized()}
    return MemoryProblem.of(make_problem(query, key, value, kernels.Dot(), **slots), **gates)


def pairs(n: int = N, d: int = D) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys of length one, and values."""
    return normalize(draw(B, H, n, d), dim=-1), normalize(draw(B, H, n, d), dim=-1), draw(B, H, n, E)


def gates(n: int = N) -> dict[str, Tensor]:
    return {
        "decay": torch.nn.functional.logsigmoid(draw(B, H, n) + 1),
        "rate": torch.sigmoid(draw(B, H, n)),
        "ridge": torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64),
    }


def state_of(rule: str, key: Tensor, value: Tensor, **given) -> Tensor:
    """What is recalled for every key once all are read, ``[b h n e]``: S k, by queries that only ask."""
    asked = torch.cat([key, key], 2)
    nothing = torch.cat([key, torch.zeros_like(key)], 2), torch.cat([value, torch.zeros_like(value)], 2)
    return compute_output(problem(asked, *nothing, **given), Memory(rule))[:, :, key.shape[2] :]


def test_fact_0_the_forgetting_gate_is_a_bias_of_the_keys():
    made, x = layer("forgetting"), tokens()
    query, key, value = made.project(x, x)
    clock = torch.nn.functional.logsigmoid(made.decay(x)).mT.cumsum(-1)
    out = smooth(query, key, value, mask=masks.Causal(), bias=-clock[..., None, :], method="reference")
    within(1e-14, made(x), made.proj(merge(out)))
    slopes = kernels.ALiBi(4).slopes.double()
    made.decay.weight.data.zero_()
    made.decay.bias.data = -torch.expm1(slopes).log()  # σ of it is e^−slope
    alibi = smooth(query, key, value, kernels.ExpDot() * kernels.ALiBi(4).double(), mask=masks.Causal())
    within(1e-14, made(x), made.proj(merge(alibi)))


@pytest.mark.parametrize("form", ["chunked", "recurrent"])
def test_fact_1_a_gated_memory_is_a_kernel_on_a_clock(form):
    query, key, value = pairs()
    decay = gates()["decay"]
    clock = decay.cumsum(-1)
    weights = (query @ key.mT) * (clock[..., :, None] - clock[..., None, :]).exp()
    out = compute_output(problem(query, key, value, decay=decay), Memory("gated", form, chunk=8))
    within(1e-14, out, weights.tril() @ value)


@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("rule", ["gated", "delta", "mesa"])
def test_fact_4_the_chunked_form_is_the_recurrence_with_its_gradients(rule, gated, chunk):
    inputs = [each.requires_grad_() for each in pairs()]
    given = {name: each.requires_grad_() for name, each in gates().items() if gated or name == "ridge"}
    used = {"gated": ["decay"], "delta": ["decay", "rate"], "mesa": ["decay", "ridge"]}[rule]
    wanted = [*inputs, *(given[name] for name in used if name in given)]
    results = []
    for method in (Memory(rule, chunk=chunk), Memory(rule, "recurrent")):
        out = compute_output(problem(*inputs, **given), method)
        results.append([out.detach(), *torch.autograd.grad(out.square().sum(), wanted)])
    within(1e-13, results[0][0], results[1][0])
    for have, want in zip(*results, strict=True):
        oracle(have, want)


def test_fact_5_conjugate_gradients_are_the_ridge_and_recursive_least_squares_without_forgetting():
    query, key, value = pairs()
    for keep in (1.0, 0.9):
        decay = torch.full((B, H, N), keep, dtype=torch.float64).log()
        ridge = torch.full((H,), 0.5, dtype=torch.float64)
        out = compute_output(problem(query, key, value, decay=decay, ridge=ridge), Memory("mesa"))
        ages = (torch.arange(N)[:, None] - torch.arange(N)).clamp(min=0)
        weights = (keep ** ages.double()).tril()
        squares = torch.einsum("ij,bhjd,bhje->bhide", weights, key, key) + 0.5 * torch.eye(D)
        sums = torch.einsum("ij,bhje,bhjd->bhied", weights, value, key)
        exact = (sums @ torch.linalg.solve(squares, query)[..., None])[..., 0]
        within(1e-13, out, exact)
        inverse, sums, outs = torch.eye(D, dtype=torch.float64) / 0.5, torch.zeros(B, H, E, D), []
        for t in range(N):
            along = (inverse @ key[:, :, t, :, None])[..., 0] / keep
            size = 1 + (along * key[:, :, t]).sum(-1)[..., None, None]
            inverse = inverse / keep - along[..., :, None] * along[..., None, :] / size
            sums = keep * sums + value[:, :, t, :, None] * key[:, :, t, None, :]
            outs.append((sums @ inverse @ query[:, :, t, :, None])[..., 0])
        recursive = torch.stack(outs, 2)
        if keep == 1:
            within(1e-12, recursive, exact)
        else:  # it lets the ridge fade as well
            assert (recursive - exact).abs().max() > 0.1


@pytest.mark.parametrize("name", ["forgetting", *MEMORIES])
def test_fact_6_decoding_goes_on_from_the_state(name):
    made, x = layer(name, position="rope"), tokens()
    cache = made.cache(2, 16)
    outs = [made(part, cache=cache) for part in x.split([15, 1], 1)]
    within(1e-14, torch.cat(outs, 1), made(x))
    assert cache.filled == 16


@pytest.mark.parametrize("form", ["chunked", "recurrent"])
@pytest.mark.parametrize("name", MEMORIES)
def test_fact_6_at_the_border_of_two_documents_the_state_is_empty(name, form):
    made, x = layer(name), tokens()
    made.method = Memory(made.rule, form, chunk=4)
    lengths = [5, 3, 8]
    out = made(x, mask=masks.Document.of_lengths(lengths))
    within(1e-14, out, torch.cat([made(part) for part in x.split(lengths, 1)], 1))
    ids = torch.tensor([[0] * 4 + [1] * 12, [0] * 9 + [7] * 7])  # of each sequence its own
    out = made(x, mask=masks.Document(ids))
    for row, cut in ((0, 4), (1, 9)):
        alone = torch.cat([made(x[row : row + 1, :cut]), made(x[row : row + 1, cut:])], 1)
        within(1e-14, out[row : row + 1], alone)


def test_a_gate_that_forgets_nothing_is_softmax_attention():
    made, softmax, x = layer("forgetting"), attention("softmax")(32, 4).double(), tokens()
    softmax.load_state_dict(made.state_dict(), strict=False)
    made.decay.weight.data.zero_()
    made.decay.bias.data.fill_(60.0)
    equal(made(x), softmax(x, is_causal=True))


def test_a_fixed_clock_is_retention():
    made, x = attention("gated", clock="fixed")(32, 4).double(), tokens()
    assert "decay" not in dict(made.named_children())
    query, key, value = (
        normalize(each, dim=-1) if i < 2 else each for i, each in enumerate(made.project(x, x))
    )
    ages = torch.arange(16)[:, None] - torch.arange(16)
    gamma = (1 - 2.0 ** -torch.arange(5, 9))[:, None, None].double()
    weights = (query @ key.mT * gamma ** ages.clamp(min=0)).tril()
    equal(made(x, is_causal=True), made.proj(merge(weights @ value)))


def _alike(name: str, other: str) -> tuple[Smoother, Smoother]:
    first, second = layer(name), layer(other)
    second.load_state_dict(first.state_dict(), strict=False)
    return first, second


def test_where_nothing_fades_the_gated_delta_rule_is_the_delta_rule():
    gated, plain = _alike("gated_delta", "delta")
    gated.decay.weight.data.zero_()
    gated.decay.bias.data.fill_(60.0)
    x = tokens()
    equal(gated(x), plain(x))


def test_a_large_ridge_makes_mesa_a_gated_memory():
    mesa, gated = _alike("mesa", "gated")
    x = tokens()
    mesa.log_ridge.data.fill_(40.0)
    gated.value.weight.data *= torch.exp(torch.tensor(-40.0, dtype=torch.float64))
    equal(mesa(x), gated(x))


def test_gates_start_as_retention_whatever_the_model_drew():
    model = gpt(GPTConfig(vocab_size=11, context=8, dim=32, depth=1, num_heads=4), attention="gated_delta")
    made = model.blocks[0].attn
    kept = torch.sigmoid(made.decay.bias)
    assert kept.tolist() == pytest.approx([1 - 2.0**-power for power in range(5, 9)])
    assert (made.rate.bias == 0).all()


def test_the_clock_keeps_its_digits_in_half_precision():
    """A thousand tokens in, τ has no bit left in bfloat16 that tells two keys apart: differences do."""
    made = layer("forgetting").float()
    x = torch.randn(1, 1500, 32)
    made.decay.weight.data.mul_(0.1)
    made.decay.bias.data.fill_(-1.0)  # τ falls to about −2,000
    exact = made.double()(x.double())
    half = made.to(torch.bfloat16)(x.to(torch.bfloat16))
    assert (half - exact).norm() < 0.02 * exact.norm()


def test_a_state_does_not_grow():
    made, x = layer("gated_delta"), tokens()
    cache = made.cache(2, 16)
    made(x[:, :1], cache=cache)
    assert cache.numbers == 2 * 4 * 8 * 8
    made(x[:, 1:], cache=cache)
    assert cache.numbers == 2 * 4 * 8 * 8
    assert layer("mesa").cache(2, 16).numbers == 0


@pytest.mark.parametrize("name", ["forgetting", *MEMORIES])
def test_what_is_not_causal_is_refused(name):
    made, x = attention(name)(32, 4), torch.randn(1, 5, 32)
    with pytest.raises(ValueError, match=rf"^{name}: is causal only \(is_causal=True, or a mask"):
        made(x)
    with pytest.raises(ValueError, match=rf"^vit: {name} is causal only: a "):
        vit("tiny", attention=name)
    with pytest.raises(ValueError, match=rf"^replace_attention: self_attn need not be causal, {name} must"):
        replace_attention(torch.nn.TransformerEncoderLayer(32, 4), name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask": masks.Window(3)}, "Window(3) does not say where a state begins; Causal and Document do"),
        ({"mask": masks.KeyPadding(torch.tensor([3, 4]))}, "KeyPadding(2 lengths) does not say where"),
        ({"positions": (torch.arange(16), torch.arange(16))}, "it reads tokens in their order"),
        ({"context": draw(2, 20, 32)}, "it reads tokens in their order"),
        ({"mask": masks.Document(torch.arange(16) % 2)}, "a document of the mask is not one run of tokens"),
        (
            {"mask": masks.Document(torch.arange(16) // 8), "cache": State(2)},
            "a cache goes on with one document",
        ),
    ],
)
def test_what_a_memory_refuses(change, message):
    with pytest.raises(
        ValueError, match=rf"^smooth: delta, chunked cannot compute this: {re.escape(message)}"
    ):
        layer("delta")(tokens(), **change)


def test_slots_and_methods_that_do_not_fit_are_refused():
    made, x = layer("delta"), tokens()
    made.kernel = kernels.ExpDot()
    with pytest.raises(ValueError, match=r"a memory has Dot\(\) and Unnormalized\(\), not ExpDot\(\)"):
        made(x)
    with pytest.raises(ValueError, match=r"^Memory: no form 'fast'. Known: chunked, recurrent, fla"):
        attention("delta", method="fast")(32, 4)
    with pytest.raises(ValueError, match=r"^State: made for a batch of 2, given 1 sequences"):
        layer("delta")(x[:1], cache=State(2))
    with pytest.raises(ValueError, match="a memory has gates, which a layer makes of its tokens"):
        smooth(*(draw(1, 1, 4, 2) for _ in range(3)), method=Memory("gated"))


def test_programs_of_another_library_are_refused_with_the_reason():
    made = attention("delta", method="fla")(32, 4)
    with pytest.raises(ValueError, match=r"flash-linear-attention is not installed|run on a card"):
        made(torch.randn(1, 5, 32), is_causal=True)


def test_the_clock_keeps_its_digits_under_autocast():
    made, x = layer("forgetting").float(), torch.randn(1, 1500, 32)
    made.decay.weight.data.mul_(0.1)
    made.decay.bias.data.fill_(-1.0)
    exact = made(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert (made(x) - exact).norm() < 0.02 * exact.norm()


@pytest.mark.parametrize("name", MEMORIES)
def test_gates_are_read_from_the_context(name):
    made, x, context = layer(name), tokens(), tokens()
    other = torch.cat([tokens()[:, :-1], x[:, -1:]], 1)
    equal(made(other, context=context)[:, -1], made(x, context=context)[:, -1])

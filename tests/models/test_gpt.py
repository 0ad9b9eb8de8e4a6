"""The decoder: the papers' sizes, every causal variant by name, generation from a cache."""

import pytest
import torch
from safetensors.torch import load_model, save_model

from gkalib.layers import Smoother, attention
from gkalib.models import PRESETS, GPTConfig, gpt
from tests.tolerance import equal
from tests.variants import VARIANTS

SMALL = GPTConfig(vocab_size=11, context=14, dim=32, depth=2, num_heads=4)


def ids(batch: int = 2, length: int = 14) -> torch.Tensor:
    return torch.randint(11, (batch, length))


def able(name: str, what: str) -> bool:
    """Whether every smoother of a variant is causal, or decodes."""
    layer = VARIANTS[name].make(name)
    return all(getattr(one, what) for one in layer.modules() if isinstance(one, Smoother))


CAUSAL = [name for name in sorted(VARIANTS) if able(name, "causal")]


@pytest.mark.parametrize("name", CAUSAL)
def test_every_causal_variant_drops_in(name, tmp_path):
    layer = attention(name, **VARIANTS[name].options)
    model, x = gpt(SMALL, attention=layer), ids()
    model(x).logsumexp(-1).sum().backward()
    changed = x.clone()
    changed[:, 9:] = (changed[:, 9:] + 1) % 11
    torch.testing.assert_close(model(changed)[:, :9], model(x)[:, :9])
    save_model(model, str(tmp_path / "model.safetensors"))
    again = gpt(SMALL, attention=layer)
    load_model(again, str(tmp_path / "model.safetensors"))
    assert torch.equal(again(x), model(x))


@pytest.mark.parametrize("name", sorted(set(VARIANTS) - set(CAUSAL)))
def test_what_cannot_be_causal_is_refused_with_the_reason(name):
    with pytest.raises(ValueError, match=rf"^gpt: {name} cannot be causal: \w+"):
        gpt(SMALL, attention=attention(name, **VARIANTS[name].options))


@pytest.mark.parametrize("name", [name for name in CAUSAL if able(name, "decodes")])
@torch.no_grad()
def test_a_cache_gives_the_full_pass(name):
    changes = {"registers": 2, "register_std": 1.0, "windows": "SL", "short": 4}
    if VARIANTS[name].flexible:
        changes |= {"residual_scales": True, "softcap": 15.0, "embedding_norm": True}
    else:
        changes = {}
    model = gpt(SMALL, attention=attention(name, **VARIANTS[name].options), **changes).double()
    x = ids()
    caches = model.cache(2)
    equal(torch.cat([model(part, caches) for part in x.split([5, 1, 1, 7], dim=1)], dim=1), model(x))


@pytest.mark.parametrize("positions", ["rope", "susie", "learned", "none"])
@torch.no_grad()
def test_a_cache_knows_where_it_is(positions):
    model, x = gpt(SMALL, positions=positions, registers=2, register_std=1.0).double(), ids()
    caches = model.cache(2)
    equal(torch.cat([model(part, caches) for part in x.split([5, 1, 8], dim=1)], dim=1), model(x))


@torch.no_grad()
def test_generation_is_the_arg_max_of_the_full_pass():
    model, x = gpt(SMALL), ids(length=3)
    grown = model.generate(x, 6, temperature=0.0)
    assert torch.equal(grown[:, :3], x)
    for length in range(3, 9):
        assert torch.equal(model(grown[:, :length])[:, -1].argmax(-1), grown[:, length])
    assert torch.equal(model.generate(x, 6, seed=1), model.generate(x, 6, seed=1))
    assert not torch.equal(model.generate(x, 6, seed=1), model.generate(x, 6, seed=2))


@pytest.mark.parametrize("positions", ["rope", "susie", "learned", "none"])
@torch.no_grad()
def test_beyond_the_context_the_window_slides(positions):
    """The text is the same without a cache: each token is drawn from the last ones that the context holds."""
    model, x = gpt(SMALL, positions=positions, registers=2, register_std=1.0).double(), ids(length=9)
    assert model.generate(x, 6).shape == (2, 15)  # the last token is read by none, so nothing is said
    with pytest.warns(UserWarning, match="^gpt: the context of 14 tokens is full") as said:
        grown, drawn = model.generate(x, 20, temperature=0.0), model.generate(x, 20, seed=1)
    assert len(said) == 2
    generator, plain = torch.Generator().manual_seed(1), x
    for length in range(9, 29):
        assert torch.equal(model(grown[:, max(0, length - 14) : length])[:, -1].argmax(-1), grown[:, length])
        weights = torch.softmax(model(plain[:, -14:])[:, -1], dim=-1)
        plain = torch.cat([plain, torch.multinomial(weights, 1, generator=generator)], dim=1)
    assert torch.equal(drawn, plain)


@pytest.mark.parametrize("positions", ["rope", "susie", "learned", "none"])
def test_the_order_of_earlier_tokens_matters_where_positions_are_known(positions):
    """With one block: a deeper one tells orders apart by what its causal mask lets each token see."""
    model = gpt(SMALL, positions=positions, registers=2, depth=1).double()
    first, second = model(torch.tensor([[3, 5, 1], [5, 3, 1]]))[:, -1]
    if positions == "none":
        equal(first, second)
    else:
        assert (first - second).abs().max() > 1e-6


def test_windows_are_tiled_and_the_last_layer_is_long():
    nanochat = PRESETS["nanochat-d20"]
    windows = [nanochat.window(layer) for layer in range(20)]
    assert windows.count(1024) == 15 and windows.count(None) == 5 and windows[-1] is None
    assert sum(2048 if window is None else window for window in windows) == 25_600
    odd = GPTConfig(vocab_size=5, context=8, dim=8, depth=3, num_heads=1, windows="S", short=2)
    assert [odd.window(layer) for layer in range(3)] == [2, 2, None]


def test_value_embeddings_stand_in_every_second_layer_and_open_halfway():
    config = GPTConfig(
        vocab_size=11, context=14, dim=32, depth=5, num_heads=4, value_embeddings=True, init="nanochat"
    )
    model = gpt(config)
    assert [block.values is not None for block in model.blocks] == [True, False, True, False, True]
    block = model.blocks[0]
    x, tokens = ids(), torch.randn(2, 14, 32)
    bias = block._value_bias(tokens, x)  # gates start at zero: 2 σ(0) = 1
    equal(bias, block.values(x).unflatten(-1, (4, 8)).transpose(1, 2))


@pytest.mark.parametrize("preset", ["gpa-dickens", "rbf-tiny", "nanochat-d20"])
def test_half_precision_products_give_nearly_the_same(preset):
    """As in training: weights in float32, products in bfloat16, with and without a cache."""
    model = gpt(preset, vocab_size=11, context=14, dim=64, depth=2, num_heads=2, init="torch").eval()
    x = ids()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        half, caches = model(x), model.cache(2)
        decoded = torch.cat([model(part, caches) for part in x.split([5, 1, 8], dim=1)], dim=1)
    assert (half.float() - model(x)).abs().max() < 0.05
    assert (decoded - half).abs().max() < 0.05


def test_nanochat_starts_as_its_own_tokens():
    model = gpt("nanochat-d20", vocab_size=64, context=16, dim=64, depth=2, num_heads=2)
    x = torch.randint(64, (1, 16))
    for block in model.blocks:
        assert block.attn.proj.weight.abs().max() == 0 and block.mlp.proj.weight.abs().max() == 0
        assert block.attn.query.weight.abs().max() <= (3 / 64) ** 0.5
    assert model(x).abs().max() < 0.1


@pytest.mark.parametrize(
    "config, changes, message",
    [
        ("gpt-5", {}, "gpt: no preset 'gpt-5'. Known: gpa-dickens, rbf-tiny"),
        (SMALL, {"width": 3}, "gpt: no setting 'width'. Known: vocab_size"),
        (SMALL, {"context": 0}, "gpt: context must be at least 1, not 0"),
        (SMALL, {"short": -1}, "gpt: short must be at least 1, not -1"),
        (SMALL, {"windows": "SXL"}, "gpt: windows must be letters S and L such as 'SSSL', not 'SXL'"),
        (SMALL, {"activation": "tanh"}, "gpt: no activation 'tanh'. Known: gelu, relu2"),
        (SMALL, {"tied": True, "head_bias": True}, "gpt: a tied head has no bias"),
        (SMALL, {"registers": -2}, "gpt: registers must be at least 0, not -2"),
        (SMALL, {"num_heads": 5}, "softmax: num_heads 5 does not divide dim 32"),
        ("nanochat-d20", {"dim": 16, "num_heads": 2}, "gpt: value embeddings are gated by 32 channels"),
    ],
)
def test_errors(config, changes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        gpt(config, **changes)


def test_gka_has_no_values_for_embeddings():
    with pytest.raises(ValueError, match=r"^gpt: gka has no projected values for value embeddings"):
        gpt("nanochat-d20", attention="gka", dim=64, depth=2, num_heads=2, vocab_size=8)


def test_more_tokens_than_the_context_are_refused():
    model = gpt(SMALL)
    with pytest.raises(ValueError, match=r"^gpt: 15 tokens, and the context holds 14"):
        model(ids(length=15))
    with pytest.raises(ValueError, match=r"^gpt: 15 tokens, and the context holds 14"):
        model.generate(ids(length=15), 1)
    with pytest.raises(ValueError, match=r"^gpt: count must be at least 0, not -1"):
        model.generate(ids(), -1)
    with pytest.raises(ValueError, match=r"^gpt: generate needs at least one token"):
        model.generate(ids(length=0), 1)

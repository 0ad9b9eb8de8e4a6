"""A cache gives back what was put in, and with a window what is left of it."""

import pytest
import torch

from gkalib.layers import attention
from gkalib.masks import Causal, KeyPadding, Window
from gkalib.models import gpt
from gkalib.smoothing import Cache
from tests.tolerance import equal

SPLITS = [[1] * 11, [3, 1, 1, 1, 5], [11], [2, 6, 3], [4, 1, 6], [9, 1, 1]]


@pytest.mark.parametrize("sizes", SPLITS, ids=str)
@pytest.mark.parametrize("window", [None, 1, 4, 20])
def test_every_token_that_the_window_shows_is_there_once(sizes: list[int], window: int | None):
    """Token p is the number p, so what comes back says where it belongs."""
    tokens = torch.arange(11.0)[None, None, :, None]
    cache = Cache(1, 11, window)
    for part in tokens.split(sizes, dim=2):
        first = cache.filled  # the oldest new token sees the most of the past
        keys, values, indices = cache.append(part, 2 * part)
        assert torch.equal(keys[0, 0, :, 0], indices.to(keys.dtype))
        assert torch.equal(values, 2 * keys)
        assert len(set(indices.tolist())) == len(indices)
        shown = range(0 if window is None else max(0, first + 1 - window), cache.filled)
        assert set(shown) <= set(indices.tolist())
    assert cache.numbers == 2 * cache.places == 2 * min(window or 11, 11)


def test_one_tensor_is_kept_once_in_a_window_too():
    tokens = torch.randn(2, 3, 9, 4)
    cache = Cache(2, 9, 4)
    for part in tokens.split([5, 1, 3], dim=2):
        keys, values, _ = cache.append(part, part)
        assert values is keys
    assert cache.numbers == 2 * 3 * 4 * 4


@pytest.mark.parametrize("name", ["softmax", "gka", "gpa", "rbf"])
@pytest.mark.parametrize("sizes", [[1] * 14, [6, 1, 1, 4, 1, 1]], ids=str)
@torch.no_grad()
def test_a_layer_with_a_window_needs_no_more_than_its_window(name: str, sizes: list[int]):
    layer = attention(name, position="rope")(16, num_heads=2).double()
    tokens, mask = torch.randn(2, 14, 16, dtype=torch.float64), Causal() & Window(5)
    cache = Cache(2, 14, 5)
    parts = [layer(part, mask=mask, cache=cache) for part in tokens.split(sizes, dim=1)]
    equal(torch.cat(parts, dim=1), layer(tokens, mask=mask))


@pytest.mark.parametrize(
    "mask", [Causal(), Causal() & Window(6), Causal() & Window(5) & KeyPadding(torch.tensor([3]))], ids=repr
)
def test_a_mask_that_shows_what_was_dropped_is_refused(mask):
    layer, cache = attention("softmax")(16, num_heads=2), Cache(1, 14, 5)
    with pytest.raises(
        ValueError, match=r"^softmax: a cache of the last 5 tokens needs a Window of at most 5"
    ):
        layer(torch.randn(1, 3, 16), mask=mask, cache=cache)


@torch.no_grad()
def test_a_decoder_keeps_the_windows_of_its_layers():
    model = gpt("rbf-tiny", vocab_size=11, context=16, dim=32, depth=3, num_heads=2, windows="SSL", short=5)
    model = model.double()
    ids = torch.randint(11, (2, 16))
    caches = model.cache(2)
    equal(torch.cat([model(part, caches) for part in ids.split([4] + [1] * 12, dim=1)], dim=1), model(ids))
    registers = model.config.registers
    kept = [cache.numbers // (2 * 2 * 32) for cache in caches]  # keys and values of two sequences
    assert kept == [5, 5, 16 + registers]


def test_what_does_not_fit_is_refused():
    tokens = torch.randn(1, 1, 4, 2)
    with pytest.raises(ValueError, match="made for 3 tokens, holds 0 and cannot take 4 more"):
        Cache(1, 3).append(tokens, tokens)
    with pytest.raises(ValueError, match="made for a batch of 2, given 1"):
        Cache(2, 4).append(tokens, tokens)
    for arguments in ((0, 1), (1, 0), (1, 1, 0)):
        with pytest.raises(ValueError, match="must be at least 1"):
            Cache(*arguments)

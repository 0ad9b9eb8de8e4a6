"""The labeled equation of chapter 32, and the counts that its prose quotes."""

import pytest
import torch

import gkalib


def block(name: str, ratio: float):
    """A block of the comparison's vision transformer, with an MLP of another width."""
    sizes = {"dim": 64, "num_heads": 4, "mlp_ratio": ratio}
    return gkalib.vit("tiny", attention=name, **sizes).blocks[0]


def flops(name: str, ratio: float, tokens: int) -> int:
    return gkalib.count(block(name, ratio), torch.zeros(1, tokens, 64)).flops


@pytest.mark.parametrize(("tokens", "ratio"), [(50, 2), (128, 4), (7, 1)])
def test_mixing_is_this_share_of_a_block(tokens, ratio):
    """What is left of a block's operations without its linear maps are the two products with weights."""
    counted = flops("softmax", float(ratio), tokens)
    linear = [one for one in block("softmax", float(ratio)).modules() if isinstance(one, torch.nn.Linear)]
    mixing = counted - sum(2 * tokens * one.weight.numel() for one in linear)
    assert mixing == 4 * tokens**2 * 64
    assert mixing * ((2 + ratio) * 64 + tokens) == tokens * counted

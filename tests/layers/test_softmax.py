"""Softmax attention is the layer that everybody has."""

import torch
from timm.layers import Attention as Timm

from gkalib.layers import attention
from tests.tolerance import equal


def test_it_is_timms_layer():
    theirs = Timm(32, 4, qkv_bias=True).double()
    ours = attention("softmax")(32, 4, qkv_bias=True).double()
    for part, weight, bias in zip(
        (ours.query, ours.key, ours.value), theirs.qkv.weight.chunk(3), theirs.qkv.bias.chunk(3), strict=True
    ):
        part.load_state_dict({"weight": weight, "bias": bias})
    ours.proj.load_state_dict(theirs.proj.state_dict())
    x = torch.randn(2, 9, 32, dtype=torch.float64)
    for causal in (False, True):
        equal(ours(x, is_causal=causal), theirs(x, is_causal=causal))

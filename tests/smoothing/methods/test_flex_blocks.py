"""The blocks that FlexAttention is told to compute: those with an allowed pair, and no others."""

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

from gkalib import masks
from gkalib.kernels import Gaussian
from gkalib.smoothing import make_problem
from gkalib.smoothing.methods.flex import _blocks_of as blocks_of
from tests.cases import MASKS

SIZES = {"square": (2, 700, 700), "rectangular": (3, 300, 1000), "one query": (2, 1, 400)}
RULES = {
    **{name: MASKS[name] for name in MASKS if name not in ("none", "pairs", "function")},
    "wide window": lambda b, n, m: masks.Window(300),
    "long documents": lambda b, n, m: masks.Causal() & masks.Document(torch.arange(m) // 260),
    "own documents": lambda b, n, m: masks.Document(torch.arange(b * m).reshape(b, m) // 333),
}


def problem_of(mask, batch, queries, keys, positions=None):
    query, key = torch.zeros(batch, 1, queries, 2), torch.zeros(batch, 1, keys, 2)
    slots = {"mask": mask, "positions": positions, "name": "smooth"}
    return make_problem(query, key, key, Gaussian(1.0), **slots)


def by_every_pair(problem):
    """The same from the rule itself, asked pair by pair."""
    batch, _, queries, keys = problem.sizes

    def allows(b, h, i, j):
        return problem.mask.allows(b, h, i + keys - queries, j)

    return create_block_mask(allows, batch, None, queries, keys, device="cpu")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rule", RULES)
def test_blocks_are_those_with_an_allowed_pair(rule, size):
    batch, queries, keys = SIZES[size]
    problem = problem_of(RULES[rule](batch, queries, keys), batch, queries, keys)
    blocks, wanted = blocks_of(problem), by_every_pair(problem)
    if blocks is None:
        assert bool(problem.allowed().all())
        return
    assert torch.equal(blocks.to_dense().expand_as(wanted.to_dense()), wanted.to_dense())
    full, wanted_full = blocks.full_kv_num_blocks, wanted.full_kv_num_blocks
    assert torch.equal(full.expand_as(wanted_full), wanted_full)


def test_a_causal_mask_leaves_out_half_and_a_window_nearly_all():
    whole = 64 * 64
    causal = blocks_of(problem_of(masks.Causal(), 1, 8192, 8192))
    assert int(causal.to_dense().sum()) == whole / 2 + 32
    assert int(causal.full_kv_num_blocks.sum()) == whole / 2 - 32
    window = blocks_of(problem_of(masks.Causal() & masks.Window(129), 1, 8192, 8192))
    assert int(window.to_dense().sum()) == 127 and int(window.full_kv_num_blocks.sum()) == 0


def test_a_band_is_made_once_and_documents_anew():
    causal = problem_of(masks.Causal(), 1, 256, 256)
    assert blocks_of(causal) is blocks_of(problem_of(masks.Causal(), 2, 256, 256))
    packed = problem_of(masks.Document(torch.arange(256) // 64), 1, 256, 256)
    assert blocks_of(packed) is not blocks_of(packed)


def test_what_is_no_interval_has_no_blocks():
    for mask in (None, torch.rand(256, 256) > 0.5, masks.Document(torch.arange(256) % 2), masks.Window(256)):
        assert blocks_of(problem_of(mask, 1, 256, 256)) is None
    given = (torch.arange(256), torch.arange(256))
    assert blocks_of(problem_of(masks.Causal(), 1, 256, 256, positions=given)) is None

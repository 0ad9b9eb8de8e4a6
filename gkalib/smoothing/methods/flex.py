"""Kernels with a form through PyTorch's FlexAttention, which compiles them into one loop."""

import functools
import logging
import shutil
from collections.abc import Callable
from typing import no_type_check

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from gkalib.kernels import Form
from gkalib.normalizers import RowSum
from gkalib.smoothing.fused import cards
from gkalib.smoothing.methods.method import Method, centered, no_form
from gkalib.smoothing.problem import Problem
from gkalib.smoothing.spans import Spans, spans_of, why_not

BLOCK = 128  # queries and keys of a block, as FlexAttention has them by itself


@functools.cache
def _compiled(threads: int) -> Callable:
    """FlexAttention compiled once; each new combination of shapes and slots compiles anew inside.

    The CPU's code has buffers for so many threads and writes past them with more. PyTorch keeps it on disk
    under a key with every option, but without the number of threads where no option says it.
    """
    logging.getLogger("gkalib").info("smooth: compiling FlexAttention, which takes up to a minute")
    return torch.compile(flex_attention, dynamic=False, options={"cpp.threads": threads})


class Flex(Method):
    """FlexAttention with the kernel's form as its score function.

    No array of n × m numbers is stored. Where the mask is an interval of keys for each query, blocks of pairs
    that it forbids are left out. On a CPU PyTorch has the forward pass only, in float32, with a C++
    compiler at hand, and none inside ``torch.compile``.

    References:
        Dong et al., Flex Attention, 2024. Chapter 16 teaches it.
    """

    name = "flex"

    def refuses(self, problem: Problem) -> str | None:
        reason = no_form(problem) or cards.too_old(problem.query.device)
        if reason:
            return reason
        if not (isinstance(problem.normalizer, RowSum) and problem.normalizer.eps == 0):
            return f"FlexAttention normalizes by the row sum only, not {problem.normalizer!r}"
        if problem.query.device.type == "cpu":
            if torch.compiler.is_compiling():
                return "inside torch.compile PyTorch may run it with more threads than it has buffers for"
            if problem.needs_grad:
                return "PyTorch has no backward pass of FlexAttention on a CPU"
            if problem.query.dtype != torch.float32:
                return f"on a CPU FlexAttention is used in float32 only, not {problem.query.dtype}"
            if not any(map(shutil.which, ("c++", "g++", "clang++", "cl"))):
                return "FlexAttention on a CPU needs a C++ compiler, and none was found"
        return None

    def __call__(self, problem: Problem) -> Tensor:
        form = problem.form
        assert form is not None  # else it refuses
        query, key, term = centered(problem, problem.query, problem.key)
        value, threads = problem.value, 1
        if query.device.type == "cpu":
            threads = torch.get_num_threads()
            # The CPU's code takes no two inputs that share memory.
            key = key.clone() if key.data_ptr() == query.data_ptr() else key
            value = value.clone() if value.data_ptr() in (query.data_ptr(), key.data_ptr()) else value
        blocks = _blocks_of(problem)
        score_mod = _score_mod(problem, form, term, masked=problem.mask is not None and blocks is None)
        attend: Callable = flex_attention if torch.compiler.is_compiling() else _compiled(threads)
        out = attend(query, key, value, score_mod=score_mod, block_mask=blocks, scale=1.0)
        return out.to(query.dtype)


def _blocks_of(problem: Problem) -> BlockMask | None:
    """The blocks of pairs to be computed; None is all of them, or a mask that is no interval of keys.

    Those of a band depend on sizes alone and are kept; others are made of each query's ends, in memory linear
    in the length.
    """
    if problem.mask is None or why_not(problem) is not None:
        return None
    spans, (_, _, queries, keys) = spans_of(problem), problem.sizes
    if spans.all(queries, keys):
        return None
    if spans.first is None and not torch.compiler.is_compiling():
        return _of_a_band(spans, queries, keys, problem.query.device)
    return _blocks(spans, queries, keys, problem.query.device)


@functools.lru_cache(maxsize=32)
def _of_a_band(spans: Spans, queries: int, keys: int, device: torch.device) -> BlockMask:
    return _blocks(spans, queries, keys, device)


def _blocks(spans: Spans, queries: int, keys: int, device: torch.device) -> BlockMask:
    """Which blocks of keys each block of queries sees in part, and which as a whole."""
    first, last = spans.ends(queries, keys, device)
    # Neither end ever goes back, so a block's first and last query have its outermost ends.
    top = torch.arange(0, queries, BLOCK, device=device)
    bottom = (top + BLOCK - 1).clamp(max=queries - 1)
    block = torch.arange(-(-keys // BLOCK), device=device)
    start, stop = block * BLOCK, (block + 1) * BLOCK
    some = (stop > first[:, top, None]) & (start < last[:, bottom, None])
    whole = (start >= first[:, bottom, None]) & (stop <= last[:, top, None])
    whole &= (top + BLOCK <= queries)[:, None]  # PyTorch counts no block that hangs over as whole
    return BlockMask.from_kv_blocks(
        *_listed(some & ~whole),
        *_listed(whole),
        BLOCK_SIZE=BLOCK,
        mask_mod=_mask_mod(spans, keys - queries),
        seq_lengths=(queries, keys),
    )


def _listed(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """How many of a row's blocks are chosen, and their numbers before those of the rest, ``[b 1 rows]``."""
    numbers = blocks.int().argsort(dim=-1, descending=True, stable=True)
    return blocks.sum(-1, dtype=torch.int32)[:, None], numbers.int()[:, None]


@no_type_check  # FlexAttention counts the arguments of the function it is given
def _mask_mod(spans: Spans, ahead: int) -> Callable:
    """The rule inside a block that is seen in part."""
    first, last, left, right = spans.first, spans.last, spans.left, spans.right

    def in_band(b, h, i, j):
        return (j >= i + ahead - left) & (j <= i + ahead + right)

    def in_interval(b, h, i, j):
        row = b % first.shape[0]
        return (j >= first[row, i]) & (j < last[row, i])

    return in_band if first is None else in_interval


def _per_head(scale: float | Tensor, heads: int, query: Tensor) -> Tensor:
    """The form's scale as one float32 number per head, ``[h]``."""
    scale = torch.as_tensor(scale, dtype=torch.float32, device=query.device)
    return scale.reshape(-1).expand(heads).contiguous()


@no_type_check  # FlexAttention counts the arguments of the function it is given
def _score_mod(problem: Problem, form: Form, key_term: Tensor | None, *, masked: bool) -> Callable:
    """The score from the dot product, −∞ where masked if that is not said by blocks."""
    batch, heads, queries, keys = problem.sizes
    scale = _per_head(form.scale, heads, problem.query)
    table, zero = problem.lag_table() if form.lag_table is not None else (None, 0)
    table = None if table is None else table.float()
    bias = None if problem.bias is None else problem.bias.float().contiguous()
    # FlexAttention's CPU code cannot capture an expanded view.
    query_position = problem.query_position.expand(batch, queries).contiguous()
    key_position = problem.key_position.expand(batch, keys).contiguous()
    rules = problem.rules if masked else []

    def score(score, b, h, i, j):
        score = score * scale[h]
        if key_term is not None:
            score = score + key_term[b, h, j]
        if table is not None:
            lag = query_position[b, i] - key_position[b, j]
            score = score + table[h % table.shape[0], lag + zero]
        if bias is not None:
            sizes = bias.shape
            score = score + bias[b % sizes[0], h % sizes[1], i % sizes[2], j % sizes[3]]
        for rule in rules:
            q, k = i, j
            if rule.reads == "rows":
                q = i + (keys - queries)
            elif rule.reads == "positions":
                q, k = query_position[b, i], key_position[b, j]
            score = torch.where(rule.allows(b, h, q, k), score, -torch.inf)
        return score

    return score

"""What a trained model loses without a head, or without the bank of one; and the lines that it writes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gkalib.analysis.measures import banks


@contextmanager
def zeroed(part: Tensor) -> Iterator[None]:
    """Within it a part of a parameter is zero; afterwards it is what it was."""
    before = part.clone()
    part.zero_()
    try:
        yield
    finally:
        part.copy_(before)


def head_output(model: Any, layer: int, head: int) -> Tensor:
    """The weights by which a head adds to the output of its layer, ``[width, d]``; zero removes the head."""
    attn = model.blocks[layer].attn
    return attn.proj.weight.unflatten(1, (model.config.num_heads, -1))[:, head]


@torch.no_grad()
def removal_gains(
    model: Any, loss: Callable[[], Tensor], *, heads_only: bool = False
) -> dict[str, Float[Tensor, "layers heads"]]:
    """What the loss gains without the output of each head, and without its bank.

    Args:
        model: of the library, with projections of its heads' outputs.
        loss: of the model as it is when it is called, the same whenever that is.
        heads_only: whether to leave the banks.

    Returns:
        ``head``, and ``bank`` where the layers have banks of kernels of the lag.

    Taught in: chapter 27.
    """
    whole, depth, heads = loss(), model.config.depth, model.config.num_heads
    parts = {"head": [[head_output(model, layer, head) for head in range(heads)] for layer in range(depth)]}
    if not heads_only and (kernels := banks(model)):
        parts["bank"] = [list(bank.sigma.unbind(0)) for bank in kernels]
    gains = {}
    for name, table in parts.items():
        gains[name] = torch.zeros(depth, heads)
        for layer, row in enumerate(table):
            for head, part in enumerate(row):
                with zeroed(part):
                    gains[name][layer, head] = loss() - whole
    return gains


def line_gaps(ids: Int[Tensor, "b n"], newline: int) -> Int[Tensor, " lines"]:
    """How many tokens lie between a newline and the next, of all rows, one after another."""
    return torch.cat([(row == newline).nonzero()[:, 0].diff() for row in ids])


def written(model: Any, start: Int[Tensor, "b n"], count: int) -> Int[Tensor, "b m"]:
    """So many tokens that a decoder writes, in as many streams as there are rows.

    Each stream reads the last three quarters of a context again and fills up the rest: so no token has fewer
    before it than that, and caches serve nearly all.

    Args:
        model: a decoder.
        start: what the streams begin with, at least three quarters of the context.
        count: of all streams together; the last ones may write a token more than the others lack.
    """
    context = model.config.context
    read = context * 3 // 4
    text, wanted = start[:, :read], -(-count // len(start))
    for number in range(-(-wanted // (context - read))):
        more = model.generate(text[:, -read:], context - read, seed=number)
        text = torch.cat([text, more[:, read:]], dim=1)
    return text[:, read:][:, :wanted]

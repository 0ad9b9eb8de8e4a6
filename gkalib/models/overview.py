"""What each variant is and what one layer of it costs, asked of the layers themselves: for choosing one."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from gkalib.layers import attention, variants
from gkalib.smoothing import Recurrent
from gkalib.smoothing.fused import no_operation

_COMPOSED = {"mixed"}  # made of other variants, so that its costs are theirs


@final
@dataclass(frozen=True)
class Overview:
    """One attention layer of a variant, with its default options.

    Args:
        name: of the variant.
        parameters: of the layer.
        causal: whether it is defined under a causal mask: ``yes``, ``no`` or ``only``.
        length: which numbers of tokens a layer that was built for n takes: ``any``, ``at most n`` or ``n``.
        cached: how many numbers a cache keeps of each token; None where it cannot decode token by token.
        sums: whether it can decode from sums of a fixed size, in the place of a cache or as its only one.
        fused: whether a GPU program computes it without a matrix of n × n numbers.
        kept: for each number of tokens the bytes that a forward pass on a CPU keeps for the gradient.
    """

    name: str
    parameters: int
    causal: str
    length: str
    cached: int | None
    sums: bool
    fused: bool
    kept: tuple[int, ...]


def overview(dim: int = 192, num_heads: int = 3, tokens: Sequence[int] = (196, 784)) -> list[Overview]:
    """Every variant at one size, in the order of their names.

    ``mixed`` is left out: it is made of the others.

    Args:
        dim, num_heads: D and h; those of ViT-Ti by default.
        tokens: the numbers of tokens at which memory is measured; a layer of fixed length is built for each.
            By default those of pictures of 224 and 448 pixels in patches of 16.

    Raises:
        ValueError: if no number of tokens is given, or a layer cannot have these sizes.
    """
    if not tokens:
        raise ValueError("overview: give a number of tokens")
    names = [name for name in variants() if name not in _COMPOSED]
    bar = {"console": Console(stderr=True), "disable": not sys.stderr.isatty(), "transient": True}
    return [_of(name, dim, num_heads, tokens) for name in track(names, "measures a layer of each", **bar)]


def overview_table(rows: Sequence[Overview], tokens: Sequence[int]) -> str:
    """The rows as a table in Markdown."""
    sizes = [f"kept, {count} tokens" for count in tokens]
    lines = [["variant", "parameters", "causal", "tokens", "cache per token", "fused", *sizes]]
    lines += [["---", "--:", "---", "---", "---", "---", *["--:"] * len(sizes)]]
    for row in rows:
        cached = "none" if row.cached is None else f"{row.cached:,}{', or sums' if row.sums else ''}"
        cached = "sums" if row.cached == 0 else cached
        kept = [f"{size / 2**20:.1f} MiB" for size in row.kept]
        causal, fused = row.causal, "yes" if row.fused else "no"
        lines.append([f"`{row.name}`", f"{row.parameters:,}", causal, row.length, cached, fused, *kept])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _of(name: str, dim: int, num_heads: int, tokens: Sequence[int]) -> Overview:
    cls: Any = attention(name)
    built = [cls(dim, num_heads, **({"length": count} if cls.sized else {})) for count in tokens]
    layer, count = built[0], tokens[0]
    problem = layer.problem(torch.zeros(1, count, dim), is_causal=cls.only_causal)
    cached, sums = None, False
    if cls.decodes:
        one, two = (_cached(layer, torch.zeros(1, read, dim)) for read in (1, 2))
        cached, sums = two - one, two == one or Recurrent().refuses(problem) is None
    return Overview(
        name=name,
        parameters=sum(parameter.numel() for parameter in layer.parameters()),
        causal="only" if cls.only_causal else "yes" if cls.causal else "no",
        length=_length(layer, dim, count),
        cached=cached,
        sums=sums,
        fused=layer.method == "auto" and no_operation(problem) is None,
        kept=tuple(
            kept_bytes(partial(each, is_causal=cls.only_causal), torch.zeros(1, n, dim))
            for each, n in zip(built, tokens, strict=True)
        ),
    )


@torch.no_grad()
def _cached(layer: Any, x: Tensor) -> int:
    """How many numbers a cache keeps of some tokens."""
    cache = layer.cache(1, x.shape[1])
    layer(x, is_causal=True, cache=cache)
    return cache.numbers


@torch.no_grad()
def _length(layer: Any, dim: int, count: int) -> str:
    """Which numbers of tokens a layer built for ``count`` takes, by asking it for more and for fewer."""

    def takes(tokens: int) -> bool:
        try:
            layer(torch.zeros(1, tokens, dim), is_causal=layer.only_causal)
        except ValueError:
            return False
        return True

    return "any" if takes(count + 1) else "at most n" if takes(max(count - 1, 1)) else "n"


def kept_bytes(module: nn.Module | partial, x: Tensor) -> int:
    """How much memory a forward pass keeps for the gradient, beside the input and the parameters.

    What shares memory is counted once. A method that computes something again in the backward pass keeps
    less than one that stores it.
    """
    owner: Any = module.func if isinstance(module, partial) else module
    known = {tensor.untyped_storage().data_ptr() for tensor in (x, *owner.parameters(), *owner.buffers())}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        out = module(x.requires_grad_())  # held, so that no address is used twice
    total = sum(kept.values())
    del out
    return total

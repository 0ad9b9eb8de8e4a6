"""What each variant is and what one layer of it costs, asked of the layers themselves: for choosing one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
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
        causal: whether it is defined under a causal mask.
        length: which numbers of tokens a layer that was built for n takes: ``any``, ``at most n`` or ``n``.
        cached: how many numbers a cache keeps of each token; None where it cannot decode token by token.
        sums: whether it can also decode from sums of a fixed size.
        fused: whether a GPU program computes it without a matrix of n × n numbers.
        kept: for each number of tokens the bytes that a forward pass on a CPU keeps for the gradient.
    """

    name: str
    parameters: int
    causal: bool
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
    return [_of(name, dim, num_heads, tokens) for name in variants() if name not in _COMPOSED]


def overview_table(rows: Sequence[Overview], tokens: Sequence[int]) -> str:
    """The rows as a table in Markdown."""
    sizes = [f"kept, {count} tokens" for count in tokens]
    lines = [["variant", "parameters", "causal", "tokens", "cache per token", "fused", *sizes]]
    lines += [["---", "--:", "---", "---", "---", "---", *["--:"] * len(sizes)]]
    for row in rows:
        cached = "none" if row.cached is None else f"{row.cached:,}{', or sums' if row.sums else ''}"
        kept = [f"{size / 2**20:.1f} MiB" for size in row.kept]
        causal, fused = ("yes" if answer else "no" for answer in (row.causal, row.fused))
        lines.append([f"`{row.name}`", f"{row.parameters:,}", causal, row.length, cached, fused, *kept])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _of(name: str, dim: int, num_heads: int, tokens: Sequence[int]) -> Overview:
    cls: Any = attention(name)
    built = [cls(dim, num_heads, **({"length": count} if cls.sized else {})) for count in tokens]
    layer, count = built[0], tokens[0]
    problem = layer.problem(torch.zeros(1, count, dim))
    cached = None
    if cls.decodes:
        cache = layer.cache(1, 1)
        layer(torch.zeros(1, 1, dim), is_causal=True, cache=cache)
        cached = cache.numbers
    return Overview(
        name=name,
        parameters=sum(parameter.numel() for parameter in layer.parameters()),
        causal=cls.causal,
        length=_length(layer, dim, count),
        cached=cached,
        sums=cls.decodes and Recurrent().refuses(problem) is None,
        fused=layer.method == "auto" and no_operation(problem) is None,
        kept=tuple(kept_bytes(each, torch.zeros(1, n, dim)) for each, n in zip(built, tokens, strict=True)),
    )


@torch.no_grad()
def _length(layer: nn.Module, dim: int, count: int) -> str:
    """Which numbers of tokens a layer built for ``count`` takes, by asking it for more and for fewer."""

    def takes(tokens: int) -> bool:
        try:
            layer(torch.zeros(1, tokens, dim))
        except ValueError:
            return False
        return True

    return "any" if takes(count + 1) else "at most n" if takes(max(count - 1, 1)) else "n"


def kept_bytes(module: nn.Module, x: Tensor) -> int:
    """How much memory a forward pass keeps for the gradient, beside the input and the parameters.

    What shares memory is counted once. A method that computes something again in the backward pass keeps
    less than one that stores it.
    """
    known = {tensor.untyped_storage().data_ptr() for tensor in (x, *module.parameters(), *module.buffers())}
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

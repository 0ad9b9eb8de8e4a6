"""What each variant is and what one layer of it costs, asked of the layers themselves: for choosing one."""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from gkalib.layers import attention, variants
from gkalib.smoothing import Recurrent
from gkalib.smoothing.fused import no_operation

_COMPOSED = {"mixed"}  # made of other variants, so that its costs are theirs


def overview(
    dim: int = 192, num_heads: int = 3, tokens: Sequence[int] = (196, 784)
) -> dict[str, dict[str, str]]:
    """What each variant is and costs, a cell by the title of its column, for one layer with default options.

    ``mixed`` is left out: it is made of the others. The columns are

    - ``parameters``, of the layer;
    - ``causal``, whether it is defined under a causal mask: ``yes``, ``no`` or ``only``;
    - ``tokens``, which numbers of them a layer that was built for n takes: ``any``, ``at most n`` or ``n``;
    - ``cache per token``, how many numbers a cache keeps of each: ``none`` where it cannot decode token by
      token, ``or sums`` where sums of a fixed size can be in the place of a cache, ``sums`` where they are;
    - ``fused``, whether a GPU program computes it without a matrix of n × n numbers;
    - ``kept``, for each number of tokens what a forward pass on a CPU keeps for the gradient.

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
    return {
        name: _of(attention(name), dim, num_heads, tokens)
        for name in track(names, "measures a layer of each", **bar)
    }


def overview_table(rows: dict[str, dict[str, str]]) -> str:
    """The rows as a table in Markdown."""
    [titles, *_] = map(list, rows.values())
    rule = ["--:" if title.startswith(("parameters", "kept")) else "---" for title in titles]
    lines = [["variant", *titles], ["---", *rule], *([f"`{name}`", *rows[name].values()] for name in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _of(cls: Any, dim: int, num_heads: int, tokens: Sequence[int]) -> dict[str, str]:
    built = [cls(dim, num_heads, **({"length": count} if cls.sized else {})) for count in tokens]
    layer, count = built[0], tokens[0]
    problem = layer.problem(torch.zeros(1, count, dim), is_causal=cls.only_causal)
    cached = "none"
    if cls.decodes:
        one, two = (_cached(layer, torch.zeros(1, read, dim)) for read in (1, 2))
        recurrent = Recurrent().refuses(problem) is None
        cached = "sums" if two == one else f"{two - one:,}{', or sums' if recurrent else ''}"
    kept = {
        f"kept, {n} tokens": kept_bytes(partial(each, is_causal=cls.only_causal), torch.zeros(1, n, dim))
        for each, n in zip(built, tokens, strict=True)
    }
    return {
        "parameters": f"{sum(parameter.numel() for parameter in layer.parameters()):,}",
        "causal": "only" if cls.only_causal else "yes" if cls.causal else "no",
        "tokens": _length(layer, dim, count),
        "cache per token": cached,
        "fused": "yes" if layer.method == "auto" and no_operation(problem) is None else "no",
        **{title: f"{size / 2**20:.1f} MiB" for title, size in kept.items()},
    }


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

"""What kernels of the lag make of the lags before anything learned enters, formed once and kept."""

from collections.abc import Callable, Hashable

import torch
from torch import Tensor, nn

MOST_KEPT = 64
_kept: dict[tuple, Tensor] = {}


def of_lags(
    name: Hashable, function: Callable[[Tensor], Tensor], queries: int, keys: int, own: Tensor | None
) -> Tensor:
    """What a function that learns nothing makes of the lags 1 − n … m − 1, ``[… n + m − 1]``.

    It is formed once for a power of two of tokens on each device and kept, by name, so that not every call
    starts small kernels for it. What is kept is kept for good: a captured graph may read it.

    Args:
        name: says what the function is.
        function: from lags ``[l]`` to ``[… l]``.
        queries, keys: n and m.
        own: a tensor of the kernel, on the device that is meant; None where it has none.
    """
    device = None if own is None else own.device
    # A tensor of another type belongs to a graph that is being traced.
    if own is not None and not torch.compiler.is_compiling() and type(own) in (Tensor, nn.Parameter):
        length = 1 << (max(queries, keys) - 1).bit_length()
        place = name, length, device
        captured = own.is_cuda and torch.cuda.is_current_stream_capturing()
        if place not in _kept and len(_kept) < MOST_KEPT and not captured:
            with torch.inference_mode(False):
                made = function(torch.arange(1 - length, length, device=device))
            if own.is_cuda:
                torch.cuda.current_stream(device).synchronize()  # another stream may read it at once
            if type(made) is Tensor:
                _kept[place] = made
        if place in _kept:
            return _kept[place][..., length - queries : length + keys - 1]
    return function(torch.arange(1 - queries, keys, device=device))

"""Figures of what the library's fused operations read and how they round, seen in Triton's interpreter."""

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from torch import Tensor

from chapters.lab.exact import one_tensor
from chapters.lab.watch import picture, times, watched
from gkalib.kernels import Gaussian
from gkalib.masks import Causal, Window
from gkalib.smoothing import smooth
from gkalib.smoothing.fused import Fused
from gkalib.smoothing.fused.configs import Config, forced
from gkalib.smoothing.fused.decode import decode
from gkalib.smoothing.fused.forward import smooth_forward
from gkalib.smoothing.fused.lag_bias import new_slices
from gkalib.smoothing.spans import Spans
from gkalib.viz.style import COLUMN, PALETTE


def forward_reads(queries: Tensor, keys: Tensor, values: Tensor, *, block: int = 16) -> Figure:
    """What each program instance of the fused forward pass loads of one head under a causal mask.

    Args:
        queries, keys, values: of one head, ``[n d]`` each.
        block: rows that an instance owns, and columns of a tile.

    Raises:
        ValueError: if the tensors are those of several heads.

    Taught in: chapter 17.
    """
    if queries.ndim != 2:
        raise ValueError(f"forward_reads: queries of one head are [n d], not {list(queries.shape)}")
    q, k, v = (part.contiguous()[None, None] for part in (queries, keys, values))
    scale, causal = torch.full((1,), 0.25, dtype=queries.dtype), Spans(len(keys), 0)
    with watched(queries=q, keys=k, values=v) as accesses, forced(Config(block, block)):
        smooth_forward(q, k, v, scale, None, None, causal, True)
    return picture(accesses, queries=queries, keys=keys, values=values)


def cache_reads(lengths: list[int], *, places: int = 96, window: int = 48) -> Figure:
    """The places of a cache that one decoding step of a batch reads: dark, read; light, written but not seen.

    Tokens are drawn from torch's generator. Every place that is not seen holds NaN, and the outputs are
    compared with those of each sequence alone.

    Args:
        lengths: how many tokens each sequence has.
        places: of the cache, for each sequence.
        window: how many keys a token sees, its own included.

    Raises:
        ValueError: if a sequence has no token, or more than there are places.

    Taught in: chapter 20.
    """
    if not all(1 <= length <= places for length in lengths):
        raise ValueError(f"cache_reads: a sequence has 1 to {places} tokens, not {lengths}")
    size, place = torch.tensor(lengths), torch.arange(places)
    written = place < size[:, None]
    seen = written & (place >= size[:, None] - window)
    tokens = torch.randn(len(lengths), 1, places, 16).double()
    cache = tokens.masked_fill(~seen[:, None, :, None], torch.nan)
    newest, one = tokens[torch.arange(len(lengths)), :, size - 1][:, :, None], torch.ones(1).double()
    with watched(cache=cache) as accesses:
        out = decode(newest, cache, cache, one, one, None, seen[:, None, None], True)
    for b, length in enumerate(lengths):
        alone = tokens[b : b + 1, :, :length]
        exact = smooth(alone, alone, alone, Gaussian(1.0), mask=Causal() & Window(window))
        assert torch.allclose(out[b], exact[0, :, -1:])
    read = times(accesses, "cache", cache)[:, 0].any(-1)
    figure, axes = plt.subplots(figsize=(COLUMN, 1.9))
    shades = 0.25 * written.numpy() + 0.75 * read
    axes.imshow(shades, cmap="Blues", aspect="auto", vmax=1.3, interpolation="nearest")
    axes.hlines([row - 0.5 for row in range(1, len(lengths))], -0.5, places - 0.5, color="white", lw=2)
    axes.set(xlabel="place in the cache", yticks=range(len(lengths)))
    axes.set_yticklabels([f"{length} tokens" for length in lengths])
    axes.grid(False)
    return figure


def centering(x: Tensor, *, sigma: float | int = 1.5, offsets: tuple[int, ...] = (0, 4, 16)) -> Figure:
    """The error of GKA's gradient in float16 for tokens far from the origin, with and without centering.

    The error is relative, in norm, against float64 on the same rounded tokens.

    Args:
        x: tokens of one head, ``[n d]``.
        sigma: the bandwidth.
        offsets: what is added to every feature.

    Raises:
        ValueError: if the tokens are those of several heads.

    Taught in: chapter 18.
    """
    if x.ndim != 2:
        raise ValueError(f"centering: tokens of one head are [n d], not {list(x.shape)}")
    pull = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)).half()
    errors: dict[bool, list[float]] = {False: [], True: []}
    for offset in offsets:
        moved = (x + offset).half()
        exact = one_tensor(moved, pull.double(), sigma=sigma, causal=False).x
        for center, found in errors.items():
            leaf = moved[None, None].clone().requires_grad_()
            smooth(leaf, leaf, leaf, Gaussian(sigma), method=Fused(center=center))[0, 0].backward(pull)
            assert leaf.grad is not None
            found.append(float((leaf.grad[0, 0].double() - exact).norm() / exact.norm()))
    figure, axes = plt.subplots(figsize=(COLUMN * 0.7, 2.5))
    for center, shade, name in ((False, "vermilion", "as given"), (True, "blue", "centered")):
        axes.semilogy(offsets, errors[center], "o-", color=PALETTE[shade], label=name)
    axes.set(xlabel="mean of all features, in standard deviations", ylabel="relative error of dx")
    axes.legend(fontsize=8)
    return figure


def slice_memory(lengths: list[int], *, batch: int = 8, heads: int = 12, block: int = 64) -> Figure:
    """Megabytes against the length for the gradient of a table of lags: all slopes, and the library's slices.

    Args:
        lengths: numbers of tokens.
        batch, heads: of the attention.
        block: rows and columns of a tile.

    Raises:
        ValueError: if a length is not positive.

    Taught in: chapter 19.
    """
    if min(lengths) < 1:
        raise ValueError(f"slice_memory: lengths are positive, not {lengths}")
    slopes = [2 * batch * heads * length**2 / 1e6 for length in lengths]  # in bfloat16
    slices = []
    for length in lengths:
        query = torch.empty(batch, heads, length, 64, dtype=torch.bfloat16, device="meta")
        slices.append(4 * new_slices(query, length, Config(block, block)).numel() / 1e6)
    figure, axes = plt.subplots(figsize=(COLUMN, 2.6))
    axes.loglog(lengths, slopes, "o-", color=PALETTE["vermilion"], label="dS")
    axes.loglog(lengths, slices, "o-", color=PALETTE["blue"], label="slices")
    axes.set(xlabel="tokens", ylabel="megabytes")
    axes.legend()
    return figure

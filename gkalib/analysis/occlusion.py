"""What a vision transformer loses with a patch, the measure that maps of attention are held to."""

from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from scipy.stats import rankdata
from torch import Tensor, nn

from gkalib.models.vit import ViT

Images = Float[Tensor, "b channels height width"]
Labels = Int[Tensor, " b"]
Maps = Float[Tensor, "b patches"]


@torch.no_grad()
def occlusion(model: nn.Module, images: Images, labels: Labels) -> Maps:
    r"""How far the label's logit falls when one patch's token is taken out of the sequence, for each patch.

    $$o_j = f_c(x_1, \dots, x_n) - f_c(x_1, \dots, x_{j-1}, x_{j+1}, \dots, x_n)$$

    The token leaves after its position was added and before the first block, so that nothing has to stand in
    its place. Negative where the model is surer without the patch.

    Args:
        model: a ``gkalib.models.vit``, in whatever mode it is to be asked.
        images: ``[b c h w]``.
        labels: ``[b]``, the logit c of each image.

    Raises:
        ValueError: if positions count the tokens, or attention is built for a number of tokens.

    References:
        Zeiler and Fergus, 2014, who cover patches with gray. Taught in: chapter 25.
    """
    vit = _vision_transformer("occlusion", model)
    extra, tokens = vit.config.extra, vit.config.length
    if vit.config.positions in ("rope", "susie"):
        raise ValueError(f"occlusion: {vit.config.positions} counts tokens, so none can be taken out")
    everything = torch.arange(tokens, device=images.device)
    whole = _logit(model, images, labels)
    falls = []
    for place in range(extra, tokens):
        with _first_input(vit, lambda x, rest=everything[everything != place]: x[:, rest]):
            falls.append(whole - _logit(model, images, labels))
    return torch.stack(falls, dim=1)


@torch.enable_grad()
def saliency(model: nn.Module, images: Images, labels: Labels) -> Maps:
    r"""Gradient times token, what ``occlusion`` is to first order where a token is scaled down to zero.

    $$g_j = x_j^\top \frac{\partial f_c}{\partial x_j}$$

    Args:
        model, images, labels: as for ``occlusion``.

    Raises:
        ValueError: if the model is none of gkalib's vision transformers.

    Taught in: chapter 25.
    """
    vit = _vision_transformer("saliency", model)
    tokens: list[Tensor] = []

    def leaf(x: Tensor) -> Tensor:
        tokens.append(x.detach().requires_grad_())
        return tokens[0]

    with _first_input(vit, leaf):
        score = _logit(model, images, labels).sum()
    (gradient,) = torch.autograd.grad(score, tokens)
    return (tokens[0] * gradient).sum(-1)[:, vit.config.extra :].detach()


@torch.no_grad()
def residual_share(model: nn.Module, images: Images) -> Float[Tensor, " layers"]:
    r"""How much of the stream after attention was there before it, by length, a number for each layer.

    $$\alpha_\ell = \frac1n \sum_i \frac{\|x_i\|}{\|x_i\| + \|\mathrm{attn}_\ell(x)_i\|}$$

    Attention rollout takes one half for it.

    Args:
        model, images: as for ``occlusion``.

    Raises:
        ValueError: if the model is none of gkalib's vision transformers.

    Taught in: chapter 25.
    """
    blocks: Any = _vision_transformer("residual_share", model).blocks
    streams: list[Tensor] = []
    branches: list[Tensor] = []
    handles = []
    for block in blocks:
        handles.append(block.register_forward_pre_hook(lambda _, given: streams.append(given[0])))
        handles.append(block.attn.register_forward_hook(lambda _, given, out: branches.append(out)))
    try:
        model(images)
    finally:
        for handle in handles:
            handle.remove()
    shares = []
    for stream, branch in zip(streams, branches, strict=True):
        before, added = stream.norm(dim=-1), branch.norm(dim=-1)
        shares.append((before / (before + added)).mean())
    return torch.stack(shares)


def agreement(maps: Maps, truth: Maps) -> tuple[float, float]:
    r"""Spearman's rank correlation of two maps of the same picture: the mean over pictures and its error.

    $$\rho = \mathrm{corr}\big(\mathrm{rank}(a), \mathrm{rank}(o)\big)$$

    Equal values share the mean of their ranks; a map that is the same everywhere counts as 0.

    Args:
        maps, truth: ``[b patches]``.

    Raises:
        ValueError: if the shapes differ or there are fewer than two pictures.

    Taught in: chapter 25.
    """
    if maps.shape != truth.shape or maps.shape[0] < 2:
        raise ValueError(
            f"agreement: needs maps of at least two pictures, not {list(maps.shape)} and {list(truth.shape)}"
        )
    first, second = _ranks(maps), _ranks(truth)
    scale = (first.square().sum(1) * second.square().sum(1)).sqrt()
    correlations = (first * second).sum(1) / scale.clamp(min=torch.finfo(scale.dtype).tiny)
    return correlations.mean().item(), (correlations.std() / len(correlations) ** 0.5).item()


def _ranks(maps: Tensor) -> Tensor:
    """Ranks about their mean, in float64, equal values sharing theirs."""
    ranks = torch.from_numpy(rankdata(maps.cpu(), axis=1))
    return ranks - (maps.shape[1] + 1) / 2


def _vision_transformer(name: str, model: nn.Module) -> ViT:
    if not isinstance(model, ViT):
        raise ValueError(f"{name}: needs a vision transformer of gkalib.models, not {type(model).__name__}")
    return model


def _logit(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return model(images).gather(1, labels[:, None])[:, 0]


@contextmanager
def _first_input(vit: ViT, change: Any):
    """While this is open, the first block is given what ``change`` makes of its tokens."""
    handle = vit.blocks[0].register_forward_pre_hook(lambda _, given: (change(given[0]), *given[1:]))
    try:
        yield
    finally:
        handle.remove()

"""The bandwidths that a model has learned, by layer and head."""

import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.image import AxesImage
from torch import Tensor, nn

from gkalib.layers import Smoother
from gkalib.layers.mixed import Attention as Mixed
from gkalib.viz import style
from gkalib.viz.digest import array


def bandwidths(model: nn.Module) -> Float[Tensor, "layers heads"]:
    """σ of every head of every attention layer, NaN where a head's kernel has none.

    Args:
        model: with attention of this library in it.

    Returns:
        ``[layers heads]``, in the units of what the kernel compares.

    Raises:
        ValueError: if no head has a bandwidth, or the layers have different numbers of heads.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.3. Taught in: chapter 23.
    """
    rows, inside = [], set()
    for module in model.modules():
        if isinstance(module, Mixed):
            branches = [branch for branch in module.branches.values() if isinstance(branch, Smoother)]
            inside |= set(branches)
            rows.append(torch.cat([_of(branch) for branch in branches]))
        elif isinstance(module, Smoother) and module not in inside:
            rows.append(_of(module))
    if not any(row.isfinite().any() for row in rows):
        raise ValueError(f"look: no kernel in {type(model).__name__} has a bandwidth σ")
    counts = sorted({len(row) for row in rows})
    if len(counts) > 1:
        raise ValueError(f"look: layers have {counts} heads, and a table of σ needs one number")
    return torch.stack(rows)


def heat(axes: Axes, sigma) -> AxesImage:
    """Draw σ as the paper's heat map: heads down, layers across, from yellow to red.

    Args:
        axes: where to draw.
        sigma: ``[layers heads]``.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.3. Taught in: chapter 23.
    """
    sigma = array(sigma)
    image = axes.imshow(sigma.T, cmap="YlOrRd", aspect="auto")
    axes.set(xlabel="layer", ylabel="head", xticks=range(sigma.shape[0]), yticks=range(sigma.shape[1]))
    return image


def lines(axes: Axes, sigma) -> None:
    """Draw σ against depth, one line a head.

    Args:
        axes: where to draw.
        sigma: ``[layers heads]``.

    References:
        Kundu et al., Gaussian Kernel Attention, 2026, section 7.3. Taught in: chapter 23.
    """
    sigma = array(sigma)
    colors = list(style.PALETTE.values())
    for head in range(sigma.shape[1]):
        axes.plot(sigma[:, head], marker="o", color=colors[head % len(colors)], label=f"head {head}")
    axes.set(xlabel="layer", ylabel="bandwidth σ", xticks=range(sigma.shape[0]))


def _of(module: Smoother) -> Tensor:
    """σ of each head, ``[h]``."""
    sigma = getattr(module.kernel(), "sigma", None)
    # A bank of lags has a σ of its own, an amplitude a term; only one number a head is a bandwidth.
    if sigma is None or (isinstance(sigma, Tensor) and sigma.numel() not in (1, module.num_heads)):
        return torch.full((module.num_heads,), torch.nan)
    return torch.as_tensor(sigma).detach().float().cpu().reshape(-1).expand(module.num_heads)

"""Between tokens of width D and heads of width d, and the normalization of one head's vectors."""

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn.functional import rms_norm


def split(x: Tensor, num_heads: int) -> Tensor:
    """Tokens ``[b n (h d)]`` as heads ``[b h n d]``."""
    return rearrange(x, "b n (h d) -> b h n d", h=num_heads)


def merge(heads: Tensor) -> Tensor:
    """Heads ``[b h n d]`` as tokens ``[b n (h d)]``."""
    return rearrange(heads, "b h n d -> b n (h d)")


class HeadNorm(nn.Module):
    r"""Each head's vector at root mean square one, without parameters: length √d on a sphere.

    $$\operatorname{norm}(x) = \sqrt d\, x / \|x\|$$

    Args:
        head_dim: d; it is read from the vectors, and taken so that the class fits where norms are built.

    References:
        nanochat's QK norm. Chapter 6 shows what the sphere does to a Gaussian kernel.
    """

    def __init__(self, head_dim: int, **_):
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, x.shape[-1:], eps=torch.finfo(torch.float32).eps)

"""The non-local block: self-attention through a bottleneck that starts as the identity."""

from typing import Any

import torch
from torch import Tensor, nn

from gkalib.kernels import Dot, ExpDot, Kernel
from gkalib.layers.base import Smoother
from gkalib.layers.parts import split
from gkalib.normalizers import Unnormalized
from gkalib.shapes import Key, Lag, Query, Scores, check_known
from gkalib.smoothing import Problem

__all__ = ["NonLocalAttention"]

FORMS = ("embedded", "gaussian", "dot", "concatenation")
AVERAGES = ("embedded", "gaussian")


class Concatenated(Kernel):
    r"""A rectified linear function of query and key side by side.

    $$\kappa(q, k) = \max(0,\; w_q^\top q + w_k^\top k)$$

    Args:
        num_heads: h; w_q and w_k are learned per head, ``[h, 2, d]``.
        head_dim: d.

    References:
        Wang et al., Non-local neural networks, 2018, equation 5.
    """

    signed = True  # not negative, but often zero: its values are summed, its logarithm is never taken

    def __init__(self, num_heads: int, head_dim: int, **factory: Any):
        super().__init__()
        start = torch.empty(num_heads, 2, head_dim, **factory)
        self.weight = nn.Parameter(nn.init.normal_(start, std=head_dim**-0.5))

    def forward(self, query: Query, key: Key, lag: Lag | None = None) -> Scores:
        of_query, of_key = self.weight[:, 0, :, None].to(query), self.weight[:, 1, :, None].to(key)
        return (query @ of_query + (key @ of_key).mT).relu()

    def log(self, query: Query, key: Key, lag: Lag | None = None) -> Scores:
        raise ValueError("Concatenated: its values may be zero everywhere; call the kernel itself")

    def heads(self) -> int:
        return self.weight.shape[0]


class NonLocalAttention(Smoother):
    r"""Attention at half the width, whose output projection starts at zero.

    $$y_i = \frac{1}{C_i}\sum_j f(x_i, x_j)\, g(x_j), \qquad z_i = x_i + W y_i, \qquad W_{\text{start}} = 0$$

    The layer returns W y; the block around it adds x. So at the start a block's attention branch adds nothing
    and the block can be put into a trained network without a change. The authors reach the same by a batch
    normalization after W that starts at zero; we start W itself there. Their pooling of keys and values ties
    a layer to a grid and is left out.

    Args:
        dim: C.
        num_heads: h; the paper has one head.
        form: f and C_i. ``"embedded"`` is exp(θ(x_i)ᵀφ(x_j)), without 1/√d, and ``"gaussian"`` exp(x_iᵀx_j);
            both are divided by their sum, so they are smoothers. ``"dot"``, θ(x_i)ᵀφ(x_j), and
            ``"concatenation"``, max(0, w_qᵀθ(x_i) + w_kᵀφ(x_j)), are divided by the number of keys; their
            weights do not sum to one.
        head_dim: the width of a head inside; None is half of C / h.
        identity: whether W starts at zero.
        layer: the arguments of ``Smoother``.

    Raises:
        ValueError: if ``"gaussian"``, which compares tokens as they are, meets positions or norms of query
            and key.

    References:
        Wang et al., Non-local neural networks, 2018, equations 1 to 6. Chapter 5 teaches it.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        form: str = "embedded",
        head_dim: int | None = None,
        identity: bool = True,
        **layer: Any,
    ):
        check_known("non_local", "form", form, FORMS)
        if num_heads > 0 and dim % num_heads:
            raise ValueError(f"non_local: num_heads {num_heads} does not divide dim {dim}")
        half = max(dim // (2 * max(num_heads, 1)), 1)
        if form == "gaussian":
            self.projections = ("value",)
        super().__init__(dim, num_heads, head_dim=half if head_dim is None else head_dim, **layer)
        self.form, self.identity = form, identity
        if form == "gaussian" and not (self.position is None and isinstance(self.query_norm, nn.Identity)):
            raise ValueError(
                "non_local: the gaussian form compares tokens as they are, no position, no qk_norm"
            )
        if form == "concatenation":
            self.kernel = Concatenated(num_heads, self.head_dim, **self.factory)
        else:
            self.kernel = Dot() if form == "dot" else ExpDot(1.0)
        if form not in AVERAGES:
            self.normalizer = Unnormalized()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.identity and isinstance(self.proj, nn.Linear):
            for parameter in self.proj.parameters():
                nn.init.zeros_(parameter)

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        value = self.heads(self.value(context))
        if self.form != "gaussian":
            return self.heads(self.query(x)), self.heads(self.key(context)), value
        begin, end = self.channels or (0, self.dim)
        query, key = (split(tokens[..., begin:end], self.num_heads) for tokens in (x, context))
        return query, key, value

    def finish(self, out: Tensor, problem: Problem) -> Tensor:
        unnormalized = any(isinstance(part, Unnormalized) for part in problem.normalizer.modules())
        if self.form in AVERAGES or not unnormalized:
            return out
        allowed = problem.allowed()
        if allowed is None:
            return out / problem.sizes[3]
        count = allowed.expand(*allowed.shape[:-1], problem.sizes[3]).sum(-1, keepdim=True)
        return out / count.clamp(min=1)

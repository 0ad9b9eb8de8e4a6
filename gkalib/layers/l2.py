"""L2 attention: Gaussian smoothing with one projection for query and key, a Lipschitz map of its tokens."""

import math
from typing import Any

import torch
from torch import Tensor

from gkalib.kernels import Gaussian
from gkalib.layers.base import Smoother
from gkalib.masks import Causal
from gkalib.normalizers import RowSum
from gkalib.shapes import check_counts

__all__ = ["L2Attention", "inverse_phi", "lipschitz_bound"]


class L2Attention(Smoother):
    r"""L2 attention in its Lipschitz form: tied query and key, values through A.

    $$w_{ij} \propto \exp\big(-\|x_i W_Q - x_j W_Q\|^2 / \sqrt d\big), \qquad
    v_j = x_j A_h W_V, \qquad A_h = W_Q W_Q^\top / \sqrt d$$

    Only the product of W_Q and W_V enters, so values are computed from the queries,
    $v = q\,(W_Q^\top W_V)/\sqrt d$. ``qkv_bias`` gives a bias to the values alone; in the distance it would
    cancel. W_Q enters three times, so it starts at variance 1/D whatever a model does to its matrices: at the
    deviation of 0.02 that is usual in vision transformers a layer of width 32 would pass on nothing.

    Args:
        dim: D.
        num_heads: h.
        layer: the arguments of ``Smoother``.

    References:
        Kim et al., The Lipschitz constant of self-attention, 2021. Chapter 6 proves its bound.
    """

    projections = ("value",)

    def __init__(self, dim: int, num_heads: int = 8, **layer: Any):
        super().__init__(dim, num_heads, **layer)
        self.query = torch.nn.Linear(dim, self.value.out_features, bias=False, **self.factory)
        self.kernel = Gaussian(_sigma(self.head_dim))

    def reset_parameters(self) -> None:
        torch.nn.init.normal_(self.query.weight, std=self.dim**-0.5)

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query = self.heads(self.query(x))
        key = query if context is x else self.heads(self.query(context))
        w_query, w_value = _per_head(self, self.query), _per_head(self, self.value)
        value = key @ (w_query.mT @ w_value) / math.sqrt(self.head_dim)
        if self.value.bias is not None:
            value = value + self.value.bias.view(self.num_heads, 1, self.head_dim)
        return query, key, value


def lipschitz_bound(module: L2Attention, num_tokens: int) -> float:
    r"""A number that no change of the output exceeds, per unit change of the input, in Frobenius norm.

    $$\mathrm{Lip}_2 \le \frac{\sqrt N}{\sqrt d} \big(4 \varphi^{-1}(N-1) + 1\big)
    \sqrt{\textstyle\sum_h \|W_Q^h\|^4 \|W_V^h\|^2}\; \|W_O\|, \qquad \varphi(x) = x e^{x+1}$$

    Spectral norms. It holds for self-attention in which every token sees itself, causal or not. Checked here:
    the inequality is proved in chapter 6, the tests compare it with Jacobians and φ⁻¹ with the Lambert
    function, and the power 4 with the effect of a rescaled W_Q. Not checked: whether the paper prints it so.

    Args:
        module: an L2 attention without positions and without normalized queries.
        num_tokens: N.

    Raises:
        ValueError: if ``module`` is something else, or ``num_tokens`` is below 1.

    References:
        Kim et al., 2021, theorem 3.2. Chapter 6 teaches it.
    """
    if not isinstance(module, L2Attention):
        raise ValueError(f"lipschitz_bound: needs an L2Attention, not {type(module).__name__}")
    if not _is_as_built(module):
        raise ValueError("lipschitz_bound: holds for the layer's own kernel, normalizer and mask only")
    if module.position is not None or not isinstance(module.query_norm, torch.nn.Identity):
        raise ValueError("lipschitz_bound: holds without position= and qk_norm= only")
    check_counts("lipschitz_bound", num_tokens=num_tokens)
    with torch.no_grad():
        query = torch.linalg.matrix_norm(_per_head(module, module.query).double(), 2)
        value = torch.linalg.matrix_norm(_per_head(module, module.value).double(), 2)
        output = 1.0
        if isinstance(module.proj, torch.nn.Linear):
            output = torch.linalg.matrix_norm(module.proj.weight.double(), 2).item()
        heads = (query**4 * value**2).sum().sqrt().item()
    spread = 4 * inverse_phi(num_tokens - 1) + 1
    return math.sqrt(num_tokens / module.head_dim) * spread * heads * output


def inverse_phi(y: float | int) -> float:
    """The x ≥ 0 with x e^(x + 1) = y, by Newton's method."""
    x = math.log1p(y)  # at or above the solution, and φ is convex: the steps never pass it
    for _ in range(60):
        x -= (x - y * math.exp(-x - 1)) / (x + 1)
    return x


def _is_as_built(module: L2Attention) -> bool:
    """Whether the slots are those that the theorem is about; any further mask can only be causal."""
    kernel, normalizer = module.kernel, module.normalizer
    return (
        isinstance(kernel, Gaussian)
        and kernel.log_sigma is None
        and bool(kernel.sigma == _sigma(module.head_dim))
        and isinstance(normalizer, RowSum)
        and not normalizer.eps
        and (module.mask is None or isinstance(module.mask, Causal))
    )


def _sigma(head_dim: int) -> float:
    """The bandwidth at which 2σ² is √d."""
    return math.sqrt(math.sqrt(head_dim) / 2)


def _per_head(module: L2Attention, linear: torch.nn.Linear) -> Tensor:
    """A projection's matrix for each head, ``[h D d]``, to be multiplied from the right."""
    return linear.weight.view(module.num_heads, module.head_dim, module.dim).mT

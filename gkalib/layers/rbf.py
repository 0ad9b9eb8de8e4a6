"""RBF attention: a Gaussian of the distance between projected tokens, so that no key wins by its length."""

from typing import Any

from torch import Tensor
from torch.nn.functional import normalize

from gkalib.kernels import Gaussian
from gkalib.kernels.base import positive
from gkalib.layers.base import Smoother
from gkalib.normalizers import RowSum, Unnormalized
from gkalib.shapes import check_known
from gkalib.smoothing import Problem

__all__ = ["RBFAttention"]

FORMS = {"softmax": RowSum, "unnormalized": Unnormalized}


class RBFAttention(Smoother):
    r"""Gaussian smoothing of projected tokens, with or without a denominator.

    $$w_{ij} = \frac{\exp(-\gamma \|q_i - k_j\|^2)}{\sum_l \exp(-\gamma \|q_i - k_l\|^2)}
    \quad\text{or}\quad w_{ij} = \exp(-\gamma \|q_i - k_j\|^2), \qquad \gamma = \frac{1}{2\sigma^2}$$

    The article's models add ``position="susie"`` and registers, which ``Smoother`` takes. Taking the votes of
    the keys out of softmax attention and nothing else leaves γ = 1/(2√d), half of the article's.

    Args:
        dim: D.
        num_heads: h.
        gamma: γ; None is 1/√d, the article's. It is not learned.
        form: ``"softmax"``, rows that sum to one, or ``"unnormalized"``, the kernel's values themselves, zero
            where masked.
        xsa: whether the part of each output that lies along the token's own value is taken out.
        layer: the arguments of ``Smoother``.

    Raises:
        ValueError: if ``xsa`` meets a ``context``.

    References:
        Scaled RBF Attention, 2026, article and code. Chapter 6 teaches it.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        gamma: float | None = None,
        form: str = "softmax",
        xsa: bool = False,
        **layer: Any,
    ):
        super().__init__(dim, num_heads, **layer)
        precision = positive("rbf", "gamma", self.head_dim**-0.5 if gamma is None else gamma)
        check_known("rbf", "form", form, FORMS)
        self.xsa = xsa
        self.kernel = Gaussian((2 * precision) ** -0.5)
        self.normalizer = FORMS[form]()

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.xsa and context is not x:
            raise ValueError("rbf: xsa takes out a token's own value, and with context= a token has none")
        return super().project(x, context)

    def finish(self, out: Tensor, problem: Problem) -> Tensor:
        if not self.xsa:
            return out
        # The last query is the last key: in decoding the earlier keys come from the cache.
        own = normalize(problem.value[:, :, -out.shape[2] :], dim=-1)
        return out - (out * own).sum(-1, keepdim=True) * own

"""A line in the place of a constant at every query: the weights of local linear regression."""

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn

from gkalib.kernels.base import Kernel, heads_of, over_heads, positive, written
from gkalib.normalizers.averages import RowSum
from gkalib.normalizers.base import Normalizer, softmax
from gkalib.shapes import Key, Query, Scores, Weights, readable

Solve = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def by_cholesky(weights: Tensor, key: Tensor, mean: Tensor, ridge: Tensor, right: Tensor) -> Tensor:
    r"""p of $(C + \lambda I)\, p = b$ for every query, by a Cholesky decomposition of a matrix each.

    Args:
        weights: w̃, ``[b h n m]``.
        key: k, ``[b h m d]``.
        mean: k̄ = Σ w̃ k, ``[b h n d]``.
        ridge: λ, which broadcasts to ``[b h n d]``.
        right: b, ``[b h n d]``.

    Raises:
        ValueError: where numbers can be looked at, if a matrix has no inverse within rounding.
    """
    width = key.shape[-1]
    squares = (key[..., :, None] * key[..., None, :]).flatten(-2)
    spread = (weights @ squares).unflatten(-1, (width, width)) - mean[..., :, None] * mean[..., None, :]
    empty = (weights.detach().sum(-1) == 0)[..., None, None]
    eye = torch.eye(width, dtype=key.dtype, device=key.device)
    spread = spread + (ridge[..., None] + empty.to(key.dtype)) * eye
    factor, failed = torch.linalg.cholesky_ex(spread)
    if readable(factor) and factor.numel():
        pivots = factor.detach().diagonal(dim1=-2, dim2=-1).square().amin(-1)
        largest = spread.detach().diagonal(dim1=-2, dim2=-1).amax(-1)
        if ((failed > 0) | (pivots <= 4 * torch.finfo(key.dtype).eps * largest)).any():
            raise ValueError(
                f"smooth: a query sees keys that lie in fewer than {width} dimensions, within rounding, so "
                "that no line is the best: ridge= needs a positive number, or a larger one"
            )
    factor = factor.masked_fill((failed > 0)[..., None, None], torch.nan)
    return torch.cholesky_solve(right[..., None], factor)[..., 0]


@final
class LocalLine(Normalizer):
    r"""The weights under which values give the answer of a line fitted at every query.

    $$\ell_j = \tilde w_j \big(1 - (k_j - \bar k)^\top p\big), \qquad (C + \lambda I)\, p = \bar k - q,
    \qquad C = \sum_j \tilde w_j (k_j - \bar k)(k_j - \bar k)^\top$$

    w̃ are the weights of ``RowSum`` and k̄ = Σ w̃ k. The ℓ sum to one and may be negative. λ penalizes the
    slope where w̃ sum to one, so that a number added to a row's scores changes nothing; a penalty μ beside
    weights κ that are not normalized is λ = μ / Σ κ. ``smooth(…, degree=1, ridge=λ)`` makes one.

    Args:
        ridge: λ, a number from 0, or a positive tensor, 0-d or one value a head ``[h]``, whose gradient
            flows.
        learn: whether log λ is a parameter that starts there, ``log_ridge``, instead.
        slope: p itself, ``[b h n d]``, in the place of the solution; λ is not read then.
        solve: what solves for p.

    Raises:
        ValueError: if ``ridge`` is negative, not finite, or of another shape; in use, if a query's matrix has
            no inverse.

    References:
        Zuo et al., Local Linear Attention, 2025, whose penalty is μ; with ``slope``, Zuo et al., Parallax,
        2026. Chapters 2 and 14 teach it.
    """

    averages = False
    of_vectors = True

    def __init__(
        self,
        ridge: float | Tensor = 0.0,
        *,
        learn: bool = False,
        slope: Tensor | None = None,
        solve: Solve = by_cholesky,
    ):
        super().__init__()
        if learn or isinstance(ridge, Tensor) or ridge != 0:
            ridge = positive("smooth", "ridge", ridge)
        start = torch.as_tensor(ridge).detach().log() if learn else None
        self.log_ridge = None if start is None else nn.Parameter(start)
        self._given = None if learn else ridge
        self.slope, self.solve = slope, solve  # no buffers, which a traced graph cannot make

    @property
    def ridge(self) -> float | Tensor:
        """λ, of the parameter where it is learned."""
        if self.log_ridge is not None:
            return self.log_ridge.exp()
        assert self._given is not None  # one of the two is
        return self._given

    def forward(self, scores: Scores, query: Query, key: Key, rows: slice | None = None) -> Weights:
        weights = softmax(scores)
        first = key[:, :, :1].detach()  # far from the origin a product of keys has no digits of their spread
        key = key - first
        mean = weights @ key
        if self.slope is None:
            ridge = torch.as_tensor(over_heads(self.ridge), dtype=key.dtype, device=key.device)
            slope = self.solve(weights, key, mean, ridge, mean - (query - first))
        else:
            slope = (self.slope if rows is None else self.slope[:, :, rows]).to(key)
        return weights * (1 + (mean * slope).sum(-1, keepdim=True) - slope @ key.mT)

    def extra_repr(self) -> str:
        if self.slope is not None:
            return f"slope={list(self.slope.shape)}"
        if torch.compiler.is_compiling():  # there are no numbers to write
            return "ridge"
        return f"ridge={written(self.ridge)}" + (", learn=True" if self.log_ridge is not None else "")


def line_normalizer(
    name: str, degree: int, ridge: float | Tensor | None, given: Normalizer, kernel: Kernel, heads: int
) -> Normalizer:
    """The normalizer of a local polynomial of this degree; one that fits lines already as it is.

    Raises:
        ValueError: in the caller's words, for ``name``, if anything does not fit.
    """
    if degree not in (0, 1):
        raise ValueError(f"{name}: degree must be 0, a constant at each query, or 1, a line, not {degree!r}")
    if degree == 0 and ridge is not None:
        raise ValueError(f"{name}: ridge={ridge!r} is for the slopes of degree=1, and degree is 0")
    if kernel.signed:
        raise ValueError(
            f"{name}: {type(kernel).__name__} may be negative: no weights that sum to one to fit a line with"
        )
    if degree == 0:
        return given
    if not (isinstance(given, RowSum) and given.eps == 0):
        raise ValueError(f"{name}: degree=1 fits lines with weights that sum to one, not with {given!r}")
    line = LocalLine(0.0 if ridge is None else ridge)
    if heads_of(line.ridge) not in (None, 1, heads):
        raise ValueError(f"{name}: ridge has values for {heads_of(line.ridge)} heads, query has {heads}")
    return line

"""Krause attention: a Gaussian of projected tokens that listens to few, near in content and in place."""

from typing import Any

import torch
from torch import Tensor, nn

from gkalib.kernels import Gaussian
from gkalib.kernels.base import positive
from gkalib.layers.base import Smoother, bind
from gkalib.masks import Mask, Window, joined, parts
from gkalib.normalizers import RowSum, TopK
from gkalib.shapes import check_counts, check_counts_or_none, check_known, check_not_negative
from gkalib.smoothing import Cache

__all__ = ["KrauseAttention", "growing"]


class Neighborhood(Mask):
    """Patches on a grid see those within a distance; tokens before the patches see and are seen by all.

    Args:
        rows, columns: of the grid, in patches, which are counted row by row.
        radius: the Euclidean distance up to which patches see each other. 1 is four neighbors, 1.5 eight, 2.9
            twenty-four, beside the patch itself.
        extra: how many tokens stand before the patches.

    Raises:
        ValueError: if a size is below 1, ``radius`` or ``extra`` is negative, or the tokens are not as many.

    Chapter 10 teaches it.
    """

    reads = "rows"

    def __init__(self, rows: int, columns: int, *, radius: float = 1.0, extra: int = 1):
        super().__init__()
        check_counts("krause: grid", rows=rows, columns=columns)
        check_not_negative("krause", "radius", radius)
        check_counts("krause", extra=extra, least=0)
        self.rows, self.columns, self.radius, self.extra = rows, columns, radius, extra

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        query, key = q - self.extra, k - self.extra
        down = query // self.columns - key // self.columns
        along = query % self.columns - key % self.columns
        return (down * down + along * along <= self.radius**2) | (query < 0) | (key < 0)

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        tokens = self.extra + self.rows * self.columns
        if queries != tokens or keys != tokens:
            raise ValueError(
                f"a grid of {self.rows} by {self.columns} and {self.extra} extra tokens are {tokens} "
                f"tokens, not {queries} queries and {keys} keys"
            )

    def extra_repr(self) -> str:
        return f"{self.rows}, {self.columns}, radius={self.radius}, extra={self.extra}"


class KrauseAttention(Smoother):
    r"""Softmax over the k nearest of the keys in a neighborhood.

    $$w_{ij} \propto \exp(-\|q_i - k_j\|^2 / 2\sigma^2)\,
    [\,j \in \mathcal{N}_i \text{ and among the } k \text{ nearest of } \mathcal{N}_i\,],
    \qquad \sigma = e^{\ell}$$

    The authors let k grow with the depth, linearly to twice its start; ``growing`` makes the list of layers
    that a model takes. Where keys are equally near, the lower index is kept, so that there are exactly k. The
    authors' vision code keeps k too and leaves the choice to ``torch.topk``; their language code keeps ties.

    Args:
        dim: D.
        num_heads: h.
        sigma: σ at the start.
        sigma_per: ``"head"`` (the authors' generative models) or ``"layer"`` (their vision models).
        top_k: k; None is all keys. With 2 to 4 for CIFAR, 8 to 16 for ImageNet, 96 for pixels, 16 for text.
        window: None is no window. With a causal mask exactly so many keys, the query's own included, as in
            the authors' generative models; without, |i − j| < window.
        grid: (rows, columns) of patches, or None: then patches see those within ``radius``, as in the
            authors' vision models.
        radius, extra: see ``Neighborhood``.
        layer: the arguments of ``Smoother``.

    Raises:
        ValueError: if ``sigma`` is not positive, ``top_k`` or ``window`` is below 1, ``sigma_per`` is
            unknown, or the grid is empty or not as large as the tokens are many.

    References:
        Liu, Yue, Welling and Song, Krause Synchronization Transformers, 2026. Chapter 10 teaches it.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        sigma: float = 2.5,
        sigma_per: str = "head",
        top_k: int | None = 8,
        window: int | None = None,
        grid: tuple[int, int] | None = None,
        radius: float = 1.0,
        extra: int = 1,
        **layer: Any,
    ):
        super().__init__(dim, num_heads, **layer)
        positive("krause", "sigma", sigma)
        check_known("krause", "sigma_per", sigma_per, ("head", "layer"))
        check_counts_or_none("krause", top_k=top_k, window=window)
        shape = (num_heads,) if sigma_per == "head" else ()
        start = torch.full(shape, sigma, dtype=torch.float64)
        self.kernel = Gaussian(start, learn=True).to(**self.factory)
        self.normalizer = RowSum() if top_k is None else TopK(top_k)
        self.mask = joined(
            None if window is None else Window(window),
            None if grid is None else Neighborhood(*grid, radius=radius, extra=extra),
        )

    def cache(self, batch: int, length: int) -> Cache:
        if any(isinstance(part, Neighborhood) for part in parts(self.mask)):
            raise ValueError("krause: cannot decode token by token: its grid is laid over all tokens at once")
        return super().cache(batch, length)


def growing(depth: int, top_k: int = 8, **options: Any) -> list[type[nn.Module]]:
    """One class a layer, with k growing linearly from ``top_k`` to twice that.

    ``gkalib.vit("small", attention=growing(12, top_k=8, grid=(14, 14), radius=2.9))`` is the authors' choice.

    Args:
        depth: how many layers.
        top_k: k of the first layer.
        options: arguments of ``KrauseAttention``, bound to every class.

    Raises:
        ValueError: if there is no such option.
    """
    counts = torch.linspace(top_k, 2 * top_k, depth).round().int().tolist()
    return [bind(KrauseAttention, top_k=count, **options) for count in counts]

"""Kernels that are finite inner products of features, exact ones and random ones."""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from gkalib.kernels.base import FeatureMap, Kernel, heads_of, over_heads, positive
from gkalib.shapes import Key, Query, Scores, check_counts, check_known, check_not_negative

# The axes over which the largest exponent of queries, and of keys, is taken out.
STABILIZERS = {
    "none": {"query": (), "key": ()},
    "row": {"query": (-1,), "key": ()},
    "max": {"query": (-1,), "key": (-2, -1)},
}


def orthogonal_gaussian(rows: int, columns: int, *, seed: int) -> Tensor:
    """A matrix ``[rows, columns]`` whose rows look Gaussian one by one and are orthogonal in blocks.

    Directions are Haar-distributed (the QR decomposition with the sign of R's diagonal taken out); lengths
    are drawn as those of independent Gaussian rows. Chapter 11 shows what goes wrong without the sign.
    """
    # On the CPU whatever the default device: the same rows everywhere, on the meta device too.
    generator = torch.Generator("cpu").manual_seed(seed)
    draw = {"generator": generator, "dtype": torch.float64, "device": "cpu"}
    blocks = []
    for _ in range(math.ceil(rows / columns)):
        q, r = torch.linalg.qr(torch.randn(columns, columns, **draw))
        blocks.append((q * r.diagonal().sign()).T)
    lengths = torch.randn(rows, columns, **draw).norm(dim=1, keepdim=True)
    return torch.cat(blocks)[:rows] * lengths


class FeatureKernel(Kernel, ABC):
    """A kernel that is the inner product of features."""

    omega: Tensor  # of random features: the rows drawn, [r, d]

    @abstractmethod
    def features(self) -> FeatureMap:
        """The feature maps of queries and keys."""

    def forward(self, query: Query, key: Key) -> Scores:
        features = self.features()
        return features.query(query) @ features.key(key).mT

    def log(self, query: Query, key: Key) -> Scores:
        if self.signed:
            name = type(self).__name__
            raise ValueError(
                f"{name}: its values may be negative and have no logarithm; call the kernel itself"
            )
        values = self(query, key)
        nothing = values <= 0  # features that underflow: zero similarity, zero gradient
        return values.masked_fill(nothing, 1.0).log().masked_fill(nothing, -torch.inf)


def _elu_plus_one(vectors: Tensor) -> Tensor:
    """elu(x) + 1, in operations whose gradients keep their strides when traced; torch's elu does not."""
    return vectors.clamp(max=0).exp() + vectors.relu()


class Elu(FeatureKernel):
    r"""The kernel of the linear transformer.

    $$\kappa(q, k) = \varphi(q)^\top \varphi(k), \qquad \varphi(x) = \operatorname{elu}(x) + 1$$

    References:
        Katharopoulos et al., Transformers are RNNs, 2020, equation 7. Chapter 11 teaches it.
    """

    def features(self) -> FeatureMap:
        return FeatureMap(_elu_plus_one, _elu_plus_one)


class Dot(FeatureKernel):
    r"""The plain dot product, which may be negative.

    $$\kappa(q, k) = q^\top k$$

    References:
        Wang et al., Non-local neural networks, 2018, equation 4. Chapter 5 teaches it.
    """

    signed = True

    def features(self) -> FeatureMap:
        return FeatureMap(lambda query: query, lambda key: key)


class PositiveRandom(FeatureKernel):
    r"""Positive random features of the exponential dot-product kernel (FAVOR+).

    $$\varphi(x) = \tfrac{1}{\sqrt r}\big[\exp(\sqrt s\,\omega^\top x - \tfrac s2\|x\|^2 - c) + \delta\big],
    \qquad \mathbb E\,\varphi(q)^\top\varphi(k) = \exp(s\,q^\top k) \text{ if } c = \delta = 0$$

    Args:
        head_dim: d.
        num_features: r, the number of rows of ω, which are orthogonal in blocks of d.
        scale: s > 0, a number, 0-d tensor or one value per head ``[h]``; None is 1/√d.
        seed: of the rows drawn.
        stabilizer: c, which keeps exponentials in range. ``"none"`` is zero. ``"row"`` is the largest
            exponent of each query; it cancels when a row is normalized. ``"max"`` is that, and for keys the
            largest exponent of all keys of a head; it cancels too, but needs all keys at once.
        floor: δ ≥ 0, added to each feature after stabilizing. It biases the kernel, and with ``"max"`` under
            a causal mask it lets a later key change an earlier output.

    Raises:
        ValueError: if a count is below 1, ``scale`` is not positive and finite, ``floor`` is negative or the
            stabilizer unknown.

    References:
        Choromanski et al., Rethinking attention with Performers, 2021, lemma 1; performer-pytorch has
        ``stabilizer="max", floor=1e-4``. Chapter 11 teaches it.
    """

    def __init__(
        self,
        head_dim: int,
        num_features: int,
        *,
        scale: float | Tensor | None = None,
        seed: int = 0,
        stabilizer: str = "none",
        floor: float = 0.0,
    ):
        super().__init__()
        check_counts("PositiveRandom", head_dim=head_dim, num_features=num_features)
        check_known("PositiveRandom", "stabilizer", stabilizer, STABILIZERS)
        check_not_negative("PositiveRandom", "floor", floor)
        self.scale = positive("PositiveRandom", "scale", 1 / math.sqrt(head_dim) if scale is None else scale)
        self.stabilizer, self.floor = stabilizer, floor
        self.register_buffer("omega", orthogonal_gaussian(num_features, head_dim, seed=seed))

    def features(self) -> FeatureMap:
        over = STABILIZERS[self.stabilizer]
        return FeatureMap(
            lambda query: self._features(query, over["query"]),
            lambda key: self._features(key, over["key"]),
            one_by_one=not over["key"],
        )

    def heads(self) -> int | None:
        return heads_of(self.scale)

    def _features(self, vectors: Tensor, over: tuple[int, ...]) -> Tensor:
        scale = over_heads(self.scale)
        vectors = vectors * (scale.sqrt() if isinstance(scale, Tensor) else math.sqrt(scale))
        half_norm = vectors.square().sum(-1, keepdim=True) / 2
        exponents = vectors @ self.omega.to(vectors).mT - half_norm
        if over:
            exponents = exponents - exponents.amax(over, keepdim=True)
        return (exponents.exp() + self.floor) / math.sqrt(self.omega.shape[0])


class RandomFourier(FeatureKernel):
    r"""Random Fourier features of the Gaussian kernel; the estimate may be negative.

    $$\varphi(x) = \frac{1}{\sqrt r}[\cos(\omega^\top x/\sigma), \sin(\omega^\top x/\sigma)], \qquad
    \mathbb E\,\varphi(q)^\top\varphi(k) = e^{-\|q-k\|^2/2\sigma^2}$$

    Args:
        head_dim: d.
        num_features: r, the number of rows of ω, which are orthogonal in blocks of d; 2r features.
        sigma: σ, the bandwidth, in the units of q: a number, 0-d tensor or one value per head ``[h]``.
        seed: of the rows drawn.

    Raises:
        ValueError: if a count is below 1 or ``sigma`` is not positive and finite.

    References:
        Rahimi and Recht, Random features for large-scale kernel machines, 2007. Chapters 3 and 11 teach it.
    """

    signed = True

    def __init__(self, head_dim: int, num_features: int, *, sigma: float | Tensor = 1.0, seed: int = 0):
        super().__init__()
        check_counts("RandomFourier", head_dim=head_dim, num_features=num_features)
        self.sigma = positive("RandomFourier", "sigma", sigma)
        self.register_buffer("omega", orthogonal_gaussian(num_features, head_dim, seed=seed))

    def features(self) -> FeatureMap:
        def waves(vectors: Tensor) -> Tensor:
            phase = vectors @ self.omega.to(vectors).mT / over_heads(self.sigma)
            return torch.cat([phase.cos(), phase.sin()], dim=-1) / math.sqrt(self.omega.shape[0])

        return FeatureMap(waves, waves)

    def heads(self) -> int | None:
        return heads_of(self.sigma)

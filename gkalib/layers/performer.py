"""Performer: softmax attention's kernel estimated by positive random features."""

from typing import Any

from gkalib.kernels import PositiveRandom
from gkalib.kernels.base import positive
from gkalib.kernels.features import STABILIZERS, orthogonal_gaussian
from gkalib.layers.base import Smoother
from gkalib.layers.parts import drawn_seed, feature_count
from gkalib.shapes import check_known, check_not_negative

__all__ = ["PerformerAttention"]


class PerformerAttention(Smoother):
    r"""Softmax attention with a random kernel whose mean is the exponential dot product (FAVOR+).

    $$w_{ij} \propto \varphi(q_i)^\top \varphi(k_j), \qquad
    \varphi(x) = \frac{1}{\sqrt r} \exp\left(\sqrt s\,\omega^\top x - \tfrac{s}{2}\|x\|^2\right)$$

    The rows of ω are drawn once, saved with the layer, and may be drawn again. With ``cache=Recurrent()`` it
    decodes from sums of a fixed size, unless the stabilizer is ``"max"``.

    Args:
        dim: D.
        num_heads: h; all heads share the rows.
        num_features: r; None is ⌊d ln d⌋.
        scale: s; None is 1/√d.
        seed: of the rows; None takes one from PyTorch's generator, as a parameter does.
        stabilizer: ``"none"``, ``"row"`` or ``"max"``; all give the same output until an exponential leaves
            the range of its type. The paper has none.
        floor: added to each feature, zero in the paper; see ``PositiveRandom``.
        layer: the arguments of ``Smoother``.

    Raises:
        ValueError: if ``num_features`` is below 1, ``scale`` not positive, ``floor`` negative or the
            stabilizer unknown.

    References:
        Choromanski et al., Rethinking attention with Performers, 2021; r and the alternatives for stabilizer
        and floor are performer-pytorch's. Chapter 11 teaches it.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        *,
        num_features: int | None = None,
        scale: float | None = None,
        seed: int | None = None,
        stabilizer: str = "row",
        floor: float = 0.0,
        **layer: Any,
    ):
        super().__init__(dim, num_heads, **layer)
        count = feature_count("performer", self.head_dim, num_features)
        if scale is not None:
            positive("performer", "scale", scale)
        check_known("performer", "stabilizer", stabilizer, STABILIZERS)
        check_not_negative("performer", "floor", floor)
        kernel = PositiveRandom(
            self.head_dim, count, scale=scale, seed=drawn_seed(seed), stabilizer=stabilizer, floor=floor
        )
        self.kernel = kernel.to(**self.factory)

    def redraw(self, seed: int | None = None) -> None:
        """Draw the rows of ω again; None takes the seed from PyTorch's generator.

        Raises:
            ValueError: if the kernel assigned has no such rows.
        """
        if not isinstance(self.kernel, PositiveRandom):
            raise ValueError(f"performer: {self.kernel!r} has no random rows to draw again")
        rows, columns = self.kernel.omega.shape
        self.kernel.omega.copy_(orthogonal_gaussian(rows, columns, seed=drawn_seed(seed)))

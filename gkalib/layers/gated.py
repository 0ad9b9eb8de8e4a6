"""A memory that fades: linear attention with a gate, Mamba-2's, or with a fixed clock, retention."""

from typing import Any

import torch
from torch import Tensor

from gkalib.layers.memory import MemoryAttention
from gkalib.layers.parts import retention
from gkalib.shapes import check_known

__all__ = ["GatedAttention"]


class GatedAttention(MemoryAttention):
    r"""Linear attention in which old pairs weigh less, by a clock that tokens set.

    $$S_t = a_t S_{t-1} + v_t k_t^\top, \qquad
    \mathrm{out}_i = \sum_{j \le i} (q_i^\top k_j)\, e^{\tau_i - \tau_j} v_j, \qquad
    \tau_t = \sum_{s \le t} \log a_s$$

    Args:
        dim: D.
        num_heads: h.
        clock: ``"learned"``, a from the token, or ``"fixed"``, RetNet's a = 1 − 2⁻⁵, 1 − 2⁻⁶, … of the heads.
        layer: the arguments of ``MemoryAttention``.

    Raises:
        ValueError: if ``clock`` is unknown, or as ``MemoryAttention``.

    References:
        Sun et al., Retentive network, 2023; Dao and Gu, Transformers are SSMs, 2024. Chapter 15 teaches it.
    """

    rule = "gated"
    gates = ("decay",)

    def __init__(self, dim: int, num_heads: int = 8, *, clock: str = "learned", **layer: Any):
        check_known("gated", "clock", clock, ("learned", "fixed"))
        super().__init__(dim, num_heads, **layer)
        self.clock = clock
        if clock == "fixed":
            del self.decay

    def reset_parameters(self) -> None:
        if self.clock == "learned":
            super().reset_parameters()

    def log_decay(self, x: Tensor) -> Tensor | None:
        if self.clock == "learned":
            return super().log_decay(x)
        fixed = torch.log1p(-retention(self.num_heads)).to(
            x.device, torch.promote_types(x.dtype, torch.float32)
        )
        return fixed[:, None].expand(x.shape[0], -1, x.shape[1])

"""The Forgetting Transformer: softmax attention on a clock that the model learns."""

from typing import Any

import torch
from torch import Tensor, nn

from gkalib.kernels import ExpDot
from gkalib.layers.base import Smoother
from gkalib.layers.parts import log_gate, start_as_retention
from gkalib.masks import added
from gkalib.smoothing import Cache, Problem
from gkalib.smoothing.problem import autocasts

__all__ = ["ForgettingAttention"]


class ClockedCache(Cache):
    """A cache that also keeps what the clock showed at each token, in float32 at least."""

    def __init__(self, batch: int, length: int):
        super().__init__(batch, length)
        self._clock, self._now = Cache(batch, length), 0.0

    def tick(self, decay: Tensor) -> tuple[Tensor, Tensor]:
        """Read new tokens' log f ``[b h n]``; τ of them, and of all tokens left to be seen."""
        self._clock.window = self.window
        new = self._now + decay.cumsum(-1)
        self._now = new[..., -1:]
        column = new[..., None]
        return new, self._clock.append(column, column)[0][..., 0]

    @property
    def numbers(self) -> int:
        return super().numbers + self._clock.numbers


class ForgettingAttention(Smoother):
    r"""Softmax attention times the exponential of the time between two tokens, on a clock that tokens set.

    $$w_{ij} \propto \exp\big(q_i^\top k_j / \sqrt d\big)\, e^{\tau_i - \tau_j}, \quad j \le i, \qquad
    \tau_t = \sum_{s \le t} \log f_s, \qquad f_t = \sigma(x_t W_f + b_f)$$

    τ_i cancels in the row sum, so that the clock is a bias of the keys; with f constant it is ALiBi's. It is
    added in float32 as τ_newest − τ_j; in half precision, in which a method may round it, as τ_i − τ_j. b_f
    starts so that f is RetNet's γ, 1 − 2⁻⁵, 1 − 2⁻⁶, … of the heads.

    Args:
        dim: D.
        num_heads: h.
        layer: the arguments of ``Smoother``.

    Raises:
        ValueError: in use, if the mask is not causal.

    References:
        Lin et al., Forgetting Transformer, 2025. Chapter 15 teaches it.
    """

    gates = ("decay",)
    only_causal = True
    why_not = "a clock weighs what came before a token"
    decay: nn.Linear

    def __init__(self, dim: int, num_heads: int = 8, **layer: Any):
        super().__init__(dim, num_heads, **layer)
        self.kernel = ExpDot()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        start_as_retention(self.decay)

    def cache(self, batch: int, length: int) -> ClockedCache:
        return ClockedCache(batch, length)

    def problem(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False, **options: Any
    ) -> Problem:
        context, cache = options.get("context"), options.get("cache")
        decay = log_gate(self.decay, x if context is None else context)
        if isinstance(cache, ClockedCache):
            new, clock = cache.tick(decay)
        else:
            new = clock = decay.cumsum(-1)
        bias = (new[..., -1:] - clock)[..., None, :]
        if x.dtype.itemsize == 2 or autocasts(x.device):
            at = torch.arange(new.shape[-1] - x.shape[1], new.shape[-1], device=x.device).clamp(min=0)
            bias = new[..., at, None] - clock[..., None, :]
        options["bias"] = added(options.get("bias"), bias)
        return super().problem(x, attn_mask, is_causal, **options)

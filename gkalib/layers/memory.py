"""What layers with a memory of fixed size share: unit keys, gates, a state for a cache."""

from abc import ABC
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from gkalib.kernels import Dot
from gkalib.layers.base import Smoother
from gkalib.layers.parts import log_gate, start_as_retention
from gkalib.normalizers import Unnormalized
from gkalib.smoothing import Memory, MemoryProblem, Method, State


class MemoryAttention(Smoother, ABC):
    r"""A linear map from keys to values, fitted while tokens are read, and asked at their queries.

    $$\mathrm{out}_t = S_t q_t, \qquad \|q\| = \|k\| = 1, \qquad
    a_t = \sigma(x_t W_a + b_a), \qquad \beta_t = \sigma(x_t W_\beta + b_\beta)$$

    It is causal only, and its cache is the state. b_a starts so that a is RetNet's γ, 1 − 2⁻⁵, 1 − 2⁻⁶, …
    Convolutions, output gates and norms that the papers put around it are not part of it.

    Args:
        dim: D.
        num_heads: h.
        method: ``"auto"``, which is ``"chunked"``; ``"recurrent"``, ``"fla"``; or a ``Memory``.
        layer: the arguments of ``Smoother``; ``qk_norm`` and ``norm_layer`` change nothing.

    Raises:
        ValueError: in use, if the mask is not causal, or what ``Memory`` refuses.
    """

    only_causal = True
    why_not = "a state holds the tokens read so far"
    rule: ClassVar[str]
    """Which of the rules of ``Memory``."""
    decay: nn.Linear
    rate: nn.Linear

    def __init__(self, dim: int, num_heads: int = 8, *, method: str | Method = "auto", **layer: Any):
        super().__init__(dim, num_heads, **{**layer, "qk_norm": False})
        self.kernel, self.normalizer = Dot(), Unnormalized()
        form = "chunked" if method == "auto" else method
        self.method = Memory(self.rule, form) if isinstance(form, str) else form
        MemoryAttention.reset_parameters(self)

    def reset_parameters(self) -> None:
        if "decay" in self.gates:
            start_as_retention(self.decay)
        if "rate" in self.gates:
            nn.init.zeros_(self.rate.bias)

    def cache(self, batch: int, length: int) -> State:  # pyright: ignore[reportIncompatibleMethodOverride]
        """An empty state; a ``length`` is not needed."""
        return State(batch)

    def log_decay(self, x: Tensor) -> Tensor | None:
        """log a of every token, ``[b h n]``; None where nothing fades."""
        return log_gate(self.decay, x) if "decay" in self.gates else None

    def ridge(self) -> Tensor | None:
        """λ, ``[h]``; None where there is none."""
        return None

    def problem(
        self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False, **options: Any
    ) -> MemoryProblem:
        problem = super().problem(x, attn_mask, is_causal, **options)
        problem.query, key = normalize(problem.query, dim=-1), normalize(problem.grouped_key, dim=-1)
        problem.grouped_key = key
        tokens = x if options.get("context") is None else options["context"]
        rate = torch.sigmoid(self.rate(tokens)).mT if "rate" in self.gates else None
        state = options.get("cache")
        gates = {"decay": self.log_decay(tokens), "rate": rate, "ridge": self.ridge()}
        return MemoryProblem.of(problem, **gates, state=state if isinstance(state, State) else None)

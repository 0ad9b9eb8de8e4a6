"""A layer of learned functions, one for each input and output: what Kolmogorov–Arnold networks stack."""

import math
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from gkalib.normalizers.bases import Basis

BASE_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor] | None] = {
    "zero": None,
    "identity": lambda x: x,
    "silu": silu,
    "gelu": gelu,
}


@final
class Units(nn.Module):
    r"""A p × q table of learned functions, each applied to its input, summed over the inputs.

    $$y_p = \sum_q s^{b}_{pq}\, b(x_q) + s_{pq}\, \varphi(x_q; c_{pq})$$

    Args:
        heads: h, one table each.
        inputs: the number of x_q.
        outputs: the number of y_p.
        basis: φ.
        base: b, ``"zero"``, ``"identity"``, ``"silu"`` or ``"gelu"``.
        unit_scales: whether $s^b$ and $s$ are learned; else they are one. They are two numbers per unit also
            where b is zero and $s^b$ does nothing.
        init: ``"damped"``, at which standard normal inputs give outputs of variance ``variance``, or
            ``"paper"``: coefficients N(0, 1), scales one.
        variance: what ``"damped"`` aims at.

    Raises:
        ValueError: if ``base`` or ``init`` is unknown.

    References:
        Liu et al., KAN, 2025; KArAt, 2025, equation 2. Chapter 9 teaches it.
    """

    def __init__(
        self,
        heads: int,
        inputs: int,
        outputs: int,
        basis: Basis,
        *,
        base: str = "zero",
        unit_scales: bool = True,
        init: str = "damped",
        variance: float = 1.0,
        device: Any = None,
        dtype: Any = None,
    ):
        super().__init__()
        if base not in BASE_ACTIVATIONS:
            raise ValueError(f"no base activation {base!r}. Known: {', '.join(BASE_ACTIVATIONS)}")
        if init not in ("damped", "paper"):
            raise ValueError(f"init must be 'damped' or 'paper', not {init!r}")
        self.basis, self.base = basis, base
        shape, factory = (heads, outputs, inputs), {"device": device, "dtype": dtype}
        self.coefficients = nn.Parameter(torch.empty(*shape, basis.coefficients, **factory))
        # Where b is zero they have no gradient, and processes that train together must know.
        ones = torch.ones(shape, **factory)
        self.base_scale = nn.Parameter(ones, requires_grad=base != "zero") if unit_scales else None
        self.basis_scale = nn.Parameter(torch.ones(shape, **factory)) if unit_scales else None
        with torch.no_grad():
            basis.start(self.coefficients)
            if init == "damped":
                self.coefficients[..., basis.linear] *= math.sqrt(variance / (inputs * basis.mean_square()))
                if self.base_scale is not None:
                    self.base_scale.normal_(std=math.sqrt(variance / inputs))

    @property
    def macs(self) -> int:
        """Multiplications for one row of one head, every unit evaluating its own function."""
        _, outputs, inputs, _ = self.coefficients.shape
        return outputs * inputs * self.basis.macs

    def forward(self, x: Tensor) -> Tensor:
        """y ``[b h n p]`` of x ``[b h n q]``."""
        coefficients = self.coefficients.to(x.dtype)
        scale = None if self.basis_scale is None else self.basis_scale.to(x.dtype)
        out = self.basis(x, coefficients, scale)
        base = BASE_ACTIVATIONS[self.base]
        if base is None:
            return out
        if self.base_scale is None:
            return out + base(x).sum(-1, keepdim=True)
        return out + base(x) @ self.base_scale.to(x.dtype).mT

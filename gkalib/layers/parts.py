"""What layers are made of: heads of tokens, norms of their vectors, positions written into them."""

import math

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, rms_norm

from gkalib.shapes import check_counts


def split(x: Tensor, num_heads: int) -> Tensor:
    """Tokens ``[b n (h d)]`` as heads ``[b h n d]``."""
    return rearrange(x, "b n (h d) -> b h n d", h=num_heads)


def merge(heads: Tensor) -> Tensor:
    """Heads ``[b h n d]`` as tokens ``[b n (h d)]``."""
    return rearrange(heads, "b h n d -> b n (h d)")


def feature_count(name: str, head_dim: int, num_features: int | None) -> int:
    """How many random features a layer has: as given, else ⌊d ln d⌋."""
    if num_features is None:
        return max(1, math.floor(head_dim * math.log(head_dim)))
    check_counts(name, num_features=num_features)
    return num_features


def drawn_seed(seed: int | None) -> int:
    """The seed given, else one from PyTorch's generator, as a parameter is drawn."""
    return int(torch.randint(2**31, (), device="cpu")) if seed is None else seed


def log_gate(gate: nn.Linear, x: Tensor) -> Tensor:
    """log σ(W x + b) of every token and head, ``[b h n]``, in float32 at least."""
    logits = gate(x)
    return logsigmoid(logits.float() if logits.dtype.itemsize == 2 else logits).mT


def retention(num_heads: int) -> Tensor:
    """RetNet's 1 − γ of each head, 2⁻⁵, 2⁻⁶, …, in float64."""
    return 0.5 ** torch.arange(5, 5 + num_heads, dtype=torch.float64)


@torch.no_grad()
def start_as_retention(gate: nn.Linear) -> None:
    """Set a gate's bias so that a token of zeros keeps γ = 1 − 2⁻⁵, 1 − 2⁻⁶, … of what was there."""
    gate.bias.copy_((1 / retention(gate.out_features) - 1).log())


class HeadNorm(nn.Module):
    r"""Each head's vector at root mean square one, without parameters: length √d on a sphere.

    $$\operatorname{norm}(x) = \sqrt d\, x / \|x\|$$

    Args:
        head_dim: d; it is read from the vectors, and taken so that the class fits where norms are built.

    References:
        nanochat's QK norm. Chapter 6 shows what the sphere does to a Gaussian kernel.
    """

    def __init__(self, head_dim: int, **_):
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, x.shape[-1:], eps=torch.finfo(torch.float32).eps)


def frequencies(head_dim: int, base: float) -> Tensor:
    """ω_m = base^(−2m/d) for m = 0 … d/2 − 1, in float64."""
    return base ** -(torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)


def _phases(positions: Tensor, omega: Tensor) -> Tensor:
    """Angles ``[n, d/2]``, or ``[b, 1, n, d/2]`` for positions that differ within the batch."""
    phase = positions[..., None].to(omega.dtype) * omega
    return phase if positions.ndim == 1 else phase[:, None]


class Rope(nn.Module):
    r"""Rotary positions: the pairs (x_m, x_{m+d/2}) turned by the angle p ω_m at position p.

    $$\langle R_i q, R_j k\rangle = \langle R_{i-j}\, q, k\rangle, \qquad \omega_m = \mathrm{base}^{-2m/d}$$

    Positions below zero, where registers stand, are not turned.

    Args:
        num_heads: h; the same angles serve all.
        head_dim: d, even.
        base: the base of the frequencies; the slowest turns by about one radian in ``base`` tokens.

    Raises:
        ValueError: if ``head_dim`` is odd.

    References:
        Su et al., RoFormer, 2021. Chapter 4 reads it as a kernel of the lag.
    """

    omega: Tensor

    def __init__(self, num_heads: int, head_dim: int, *, base: float = 10000.0, registers: int = 0):
        super().__init__()
        if head_dim % 2:
            raise ValueError(f"Rope: head_dim must be even, not {head_dim}")
        self.register_buffer("omega", frequencies(head_dim, base).float(), persistent=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        phase = _phases(positions.clamp(min=0), self.omega)
        cos, sin = phase.cos().to(x.dtype), phase.sin().to(x.dtype)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


class SuSiE(nn.Module):
    r"""Weighted sinusoids added to query and key, so that a distance of vectors includes one of positions.

    $$P_p = (w \odot \sin(p\,\omega),\; w \odot \cos(p\,\omega)), \qquad
    \|P_i - P_j\|^2 = \sum_m 2 w_m^2 \big(1 - \cos \omega_m (i-j)\big)$$

    Registers stand at the positions −R … −1, each with a learned vector of its own instead of P.

    Args:
        num_heads: h; w is learned per head, ``[h, d/2]``, 0.5 at the start.
        head_dim: d, even.
        base: the base of the frequencies.
        registers: R, the number of registers; their vectors ``[h, R, d]`` start at 0.02 times a normal draw.

    Raises:
        ValueError: if ``head_dim`` is odd.

    References:
        RBF attention, "Subspace Sinusoidal Embeddings". Chapter 28 tests what its penalty can do.
    """

    omega: Tensor

    def __init__(self, num_heads: int, head_dim: int, *, base: float = 10000.0, registers: int = 0):
        super().__init__()
        if head_dim % 2:
            raise ValueError(f"SuSiE: head_dim must be even, not {head_dim}")
        self.register_buffer("omega", frequencies(head_dim, base).float(), persistent=False)
        self.weight = nn.Parameter(torch.full((num_heads, head_dim // 2), 0.5))
        own = 0.02 * torch.randn(num_heads, registers, head_dim)
        self.registers = nn.Parameter(own) if registers else None

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + self.table(positions).to(x.dtype)

    def table(self, positions: Tensor) -> Tensor:
        """P of each position, ``[h, n, d]`` or ``[b, h, n, d]``."""
        phase = _phases(positions, self.omega)
        weight = self.weight[:, None]
        table = torch.cat([phase.sin() * weight, phase.cos() * weight], dim=-1)
        if self.registers is None:
            return table
        count = self.registers.shape[1]
        own = self.registers[:, (positions + count).clamp(0, count - 1)]
        own = own.transpose(0, 1) if positions.ndim == 2 else own
        is_register = (positions < 0)[..., None] if positions.ndim == 1 else (positions < 0)[:, None, :, None]
        return torch.where(is_register, own, table)


POSITIONS = {"rope": Rope, "susie": SuSiE}

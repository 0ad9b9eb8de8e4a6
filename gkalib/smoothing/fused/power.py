r"""The table of KERPLE's logarithmic kernel, formed by one program, and its parameters' gradient by another.

$t(\Delta) = -r_1 \log(1 + r_2 |\Delta|)$ is the same at both signs of a lag and each is formed once.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gkalib.kernels import Power
from gkalib.smoothing.fused.configs import Config
from gkalib.smoothing.fused.launch import launch, statistics_type

BLOCK = Config(256, 1)
"""Lags of a block."""


@triton.jit
def load_rates(power, head, ACC: tl.constexpr):
    """r₁ and r₂ of a head, in the type of sums."""
    return tl.exp(tl.load(power.log_power + head).to(ACC)), tl.exp(tl.load(power.log_rate + head).to(ACC))


@triton.jit
def power_table_kernel(power, table, queries, keys, blocks, BLOCK_ROWS: tl.constexpr):
    """t at one block of lags Δ of one head, written at Δ and at −Δ."""
    head, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    ACC: tl.constexpr = table.dtype.element_ty
    strength, rate = load_rates(power, head, ACC)
    lag = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    value = -strength * tl.log(1 + rate * lag.to(ACC))
    zero = table + head.to(tl.int64) * (queries + keys - 1) + queries - 1
    tl.store(zero + lag, value, mask=lag < keys)
    tl.store(zero - lag, value, mask=lag < queries)


@triton.jit
def power_gradient_kernel(grad_table, power, grad, queries, keys, BLOCK_ROWS: tl.constexpr):
    """The gradients for log r₁, Σ g t, and log r₂, −r₁ Σ g r₂Δ / (1 + r₂Δ), of one head; g is dL/dt(Δ)."""
    head = tl.program_id(0)
    ACC: tl.constexpr = grad_table.dtype.element_ty
    strength, rate = load_rates(power, head, ACC)
    zero = grad_table + head.to(tl.int64) * (queries + keys - 1) + queries - 1
    of_power = tl.zeros([BLOCK_ROWS], ACC)
    of_rate = tl.zeros([BLOCK_ROWS], ACC)
    for first in tl.range(0, tl.maximum(queries, keys), BLOCK_ROWS):
        lag = first + tl.arange(0, BLOCK_ROWS)
        # [BLOCK_ROWS]; lag 0 adds nothing to either sum
        given = tl.load(zero + lag, mask=lag < keys, other=0.0)
        given += tl.load(zero - lag, mask=lag < queries, other=0.0)
        far = rate * lag.to(ACC)
        of_power += given * tl.log(1 + far)
        of_rate += given * far / (1 + far)
    tl.store(grad.log_power + head, -strength * tl.sum(of_power, 0))
    tl.store(grad.log_rate + head, -strength * tl.sum(of_rate, 0))


def power_table(power: Power, queries: int, keys: int) -> Tensor:
    """t at the lags 1 − n … m − 1, ``[h n+m−1]``, in the type of statistics."""
    power = Power(*(parameter.contiguous() for parameter in power))
    (heads,) = power.log_power.shape
    table = power.log_power.new_empty(heads, queries + keys - 1, dtype=statistics_type(power.log_power))
    blocks = triton.cdiv(max(queries, keys), BLOCK.rows)
    sizes = {"queries": queries, "keys": keys, "blocks": blocks}
    launch(power_table_kernel, heads * blocks, BLOCK, power=power, table=table, **sizes)
    return table


def power_gradient(grad_table: Tensor, power: Power, queries: int) -> Power:
    """The gradients of the parameters, ``[h]`` each; sums run in one order, so the same bits every time."""
    power = Power(*(parameter.contiguous() for parameter in power))
    grad = Power(*(torch.empty_like(parameter) for parameter in power))
    sizes = {"queries": queries, "keys": grad_table.shape[1] - queries + 1}
    given = {"grad_table": grad_table.contiguous(), "power": power, "grad": grad}
    launch(power_gradient_kernel, len(power.log_power), BLOCK, **given, **sizes)
    return grad

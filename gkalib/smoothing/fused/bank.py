r"""The table of a bank of decaying periodic kernels, formed by one program, and its parameters' gradient.

$G(\Delta) = \sum_m \sigma_m^2 w_m(\Delta)$ with
$w_m = e^{-\Delta / \ell_m} \exp(-2 \alpha_m^2 \sin^2(\Delta / \tau_m))$ is the same at both signs of a lag
and each is formed once. Chapter 19 teaches what reads the table.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gkalib.kernels import Bank
from gkalib.smoothing.fused.configs import Config
from gkalib.smoothing.fused.launch import launch, statistics_type

TABLE = Config(16, 64)
"""Lags and terms of a block of the program that adds terms up."""
GRADIENT = Config(256, 4)
"""Likewise of the one that adds lags up: a few terms each, so that there are programs enough."""


class Terms(NamedTuple):
    """Some terms of a head, ``[1 BLOCK]``; past the last σ is 0."""

    alpha: Any
    sigma: Any
    length: Any
    tau: Any


@triton.jit
def load_terms(bank, at, inside, ACC: tl.constexpr):
    """The terms at these places, in the type of sums."""
    alpha = tl.load(bank.alpha + at, mask=inside, other=0.0).to(ACC)
    sigma = tl.load(bank.sigma + at, mask=inside, other=0.0).to(ACC)
    log_length = tl.load(bank.log_length + at, mask=inside, other=0.0).to(ACC)
    log_tau = tl.load(bank.log_tau + at, mask=inside, other=0.0).to(ACC)
    return Terms(alpha, sigma, tl.exp(log_length), tl.exp(log_tau))


@triton.jit
def weights_of(terms, lag):
    """w_m(Δ) for lags ``[ROWS 1]``, [ROWS BLOCK], and the phases Δ/τ_m."""
    phase = lag / terms.tau
    sharp = terms.alpha * tl.sin(phase)
    return tl.exp(-lag / terms.length) * tl.exp(-2 * sharp * sharp), phase


@triton.jit
def bank_table_kernel(
    bank, table, lags, terms, queries, keys, blocks, BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr
):  # fmt: skip
    """G at one block of lags Δ of one head, written at Δ and at −Δ; or of the lags of one query, as given."""
    head, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    ACC: tl.constexpr = table.dtype.element_ty
    place = block * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    lag = place if lags is None else tl.abs(tl.load(lags + place, mask=place < keys, other=0))
    total = tl.zeros([BLOCK_ROWS], ACC)
    for first in tl.range(0, terms, BLOCK_COLUMNS):
        term = first + tl.arange(0, BLOCK_COLUMNS)[None, :]
        own = load_terms(bank, head * terms + term, term < terms, ACC)
        weight, _ = weights_of(own, lag[:, None].to(ACC))
        total += tl.sum(own.sigma * own.sigma * weight, 1)
    zero = table + head.to(tl.int64) * (queries + keys - 1) + queries - 1
    tl.store(zero + place, total, mask=place < keys)
    tl.store(zero - place, total, mask=place < queries)


@triton.jit
def bank_gradient_kernel(
    grad_table, bank, grad, terms, queries, keys, blocks, BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
):  # fmt: skip
    """The gradients of one block of terms of one head, from the table's at all its lags."""
    head, block = tl.program_id(0) // blocks, tl.program_id(0) % blocks
    ACC: tl.constexpr = grad_table.dtype.element_ty
    term = block * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)[None, :]
    at, inside = head * terms + term, term < terms
    own = load_terms(bank, at, inside, ACC)
    zero = grad_table + head.to(tl.int64) * (queries + keys - 1) + queries - 1
    # of g w, g w sin², g w Δ and g w Δ sin cos, each [BLOCK_ROWS BLOCK_COLUMNS], where g is dL/dG(Δ)
    plain = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], ACC)
    sharp, far, turned = plain, plain, plain
    for first in tl.range(0, tl.maximum(queries, keys), BLOCK_ROWS):
        lag = first + tl.arange(0, BLOCK_ROWS)[:, None]
        # [BLOCK_ROWS 1]; lag 0 has one place
        given = tl.load(zero + lag, mask=lag < keys, other=0.0)
        given += tl.load(zero - lag, mask=(lag > 0) & (lag < queries), other=0.0)
        lag = lag.to(ACC)
        weight, phase = weights_of(own, lag)
        sine, part = tl.sin(phase), given * weight
        plain += part
        sharp += part * sine * sine
        far += part * lag
        turned += part * lag * sine * tl.cos(phase)
    square = own.sigma * own.sigma
    tl.store(grad.alpha + at, -4 * own.alpha * square * tl.sum(sharp, 0)[None, :], mask=inside)
    tl.store(grad.sigma + at, 2 * own.sigma * tl.sum(plain, 0)[None, :], mask=inside)
    tl.store(grad.log_length + at, square / own.length * tl.sum(far, 0)[None, :], mask=inside)
    slope = 4 * own.alpha * own.alpha * square / own.tau
    tl.store(grad.log_tau + at, slope * tl.sum(turned, 0)[None, :], mask=inside)


def bank_table(bank: Bank, queries: int, keys: int, lags: Tensor | None = None) -> Tensor:
    """G at the lags 1 − n … m − 1, ``[h n+m−1]``, in the type of sums; or at m given ones, for one query."""
    bank = Bank(*(parameter.contiguous() for parameter in bank))
    heads, terms = bank.alpha.shape
    table = bank.alpha.new_empty(heads, queries + keys - 1, dtype=statistics_type(bank.alpha))
    blocks = triton.cdiv(max(queries, keys), TABLE.rows)
    sizes = {"terms": terms, "queries": queries, "keys": keys, "blocks": blocks}
    launch(bank_table_kernel, heads * blocks, TABLE, bank=bank, table=table, lags=lags, **sizes)
    return table


def bank_gradient(grad_table: Tensor, bank: Bank, queries: int) -> Bank:
    """The gradients of the parameters, each ``[h M]``; sums run in one order, so the same bits every time."""
    bank = Bank(*(parameter.contiguous() for parameter in bank))
    heads, terms = bank.alpha.shape
    grad = Bank(*(torch.empty_like(parameter) for parameter in bank))
    blocks = triton.cdiv(terms, GRADIENT.columns)
    keys = grad_table.shape[1] - queries + 1
    sizes = {"terms": terms, "queries": queries, "keys": keys, "blocks": blocks}
    given = {"grad_table": grad_table.contiguous(), "bank": bank, "grad": grad}
    launch(bank_gradient_kernel, heads * blocks, GRADIENT, **given, **sizes)
    return grad

"""The fused operations as PyTorch operators: types, gradients, fake results and counts of operations."""

import functools

import torch
from torch import Tensor
from torch.library import register_fake
from torch.utils.flop_counter import register_flop_formula

from gkalib.kernels import Bank
from gkalib.smoothing.fused import backward, forward, lag_bias, row_operator, symmetric
from gkalib.smoothing.fused import decode as decoding
from gkalib.smoothing.fused.launch import interpreting, statistics, token_major
from gkalib.smoothing.fused.register import differentiable, once_only, operator
from gkalib.smoothing.spans import Spans


def _runnable(*tensors: Tensor | None) -> list[Tensor | None]:
    """Triton's interpreter computes nonsense in bfloat16: there the same numbers go in as float32."""
    if not interpreting():
        return [*tensors]
    return [one.float() if one is not None and one.dtype == torch.bfloat16 else one for one in tensors]


def _number_gradient(share: Tensor, numbers: Tensor) -> Tensor:
    """The gradient for a number of each head, or one for all, from each row's share of it ``[b h n]``."""
    return share.sum((0, 2)) if len(numbers) == share.shape[1] else share.sum().reshape(1)


# Query, key and value, or one tensor that is all three


@operator
def smooth(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    scale: Tensor | None,
    norm: Tensor | None,
    sigma: Tensor | None,
    table: Tensor | None,
    left: int,
    right: int,
    first: Tensor | None,
    last: Tensor | None,
    normalize: bool,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """A kernel with a form over key ``[b g m d]`` and value ``[b g m e]``; output and log₂ of the row sums.

    Without ``normalize`` there are no sums and the second result is empty. Without key and value the query
    is smoothed by itself, and the second result are the row sums.
    """
    given, spans = _runnable(query, key, value), Spans(left, right, first, last)
    out, sums = forward.smooth_forward(*given, scale, norm, table, spans, normalize, sigma, eps)
    return out.to(query.dtype), sums


@register_fake(smooth)
def _(query, key, value, *slots):
    *_, normalize, _ = slots
    out = token_major(query, (query if value is None else value).shape[-1])
    return out, statistics(query, *(query.shape[:3] if normalize else (0,)))


@operator
def gka_backward(
    grad_out: Tensor,
    x: Tensor,
    out: Tensor,
    total: Tensor,
    sigma: Tensor,
    left: int,
    right: int,
    first: Tensor | None,
    last: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The gradient for one tensor x, and each row's share of that for σ."""
    given, spans = _runnable(grad_out, x, out), Spans(left, right, first, last)
    grad_x, share = symmetric.gka_backward(*given, total, sigma, spans)
    return grad_x.to(x.dtype), share


@register_fake(gka_backward)
def _(grad_out, x, *_):
    return token_major(x), statistics(x, *x.shape[:3])


@operator
def smooth_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sum: Tensor,
    scale: Tensor | None,
    norm: Tensor | None,
    sigma: Tensor | None,
    table: Tensor | None,
    left: int,
    right: int,
    first: Tensor | None,
    last: Tensor | None,
    normalize: bool,
    want_table: bool,
    want_numbers: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients for query, key and value, and what those for scale, norm or σ, and table are sums of.

    The last three are empty where there is nothing to say or nobody wants them.
    """
    results = backward.smooth_backward(
        *_runnable(grad_out, query, key, value, out),
        log_sum,
        scale,
        norm,
        table,
        Spans(left, right, first, last),
        normalize,
        want_table,
        sigma,
        want_numbers,
    )
    grads = (result.to(query.dtype) for result in results[:3])
    return *grads, *(statistics(query, 0) if result is None else result for result in results[3:])


@register_fake(smooth_backward)
def _(grad_out, query, key, value, out, log_sum, scale, norm, sigma, table, left, right, first, last,
      normalize, want_table, want_numbers):  # fmt: skip
    batch, heads, rows, _ = query.shape
    has_norm = norm is not None or sigma is not None
    return (
        *(token_major(tensor) for tensor in (query, key, value)),
        statistics(query, *((batch, heads, rows) if want_numbers and sigma is None else (0,))),
        statistics(query, *((batch, heads, rows + key.shape[2]) if want_numbers and has_norm else (0,))),
        statistics(query, *(table.shape if want_table else (0,))),
    )


def _keep_smooth(ctx, inputs, output):
    query, key, value, scale, norm, sigma, table, left, right, first, last, normalize, _ = inputs
    ctx.save_for_backward(query, key, value, *output, scale, norm, sigma, table, first, last)
    ctx.band, ctx.normalize = (left, right), normalize
    ctx.set_materialize_grads(False)


def _smooth_gradients(ctx, grad_out, _):
    if grad_out is None:
        return (None,) * 13
    *tensors, first, last = ctx.saved_tensors
    query, key, _, out, sums, scale, norm, sigma, _ = tensors
    *_, for_scale, for_norm, for_sigma, for_table = ctx.needs_input_grad[:7]
    if key is None:
        grad, of_norm = gka_backward(grad_out, query, out, sums, sigma, *ctx.band, first, last)
        grads, of_scale, grad_table = (grad, None, None), None, None
    else:
        wanted = for_table, for_scale or for_norm or for_sigma
        *grads, of_scale, of_norm, grad_table = smooth_backward(
            grad_out, *tensors, *ctx.band, first, last, ctx.normalize, *wanted
        )
    numbers = (
        _number_gradient(of_scale, scale) if for_scale else None,
        _number_gradient(of_norm, norm) if for_norm else None,
        _number_gradient(of_norm, sigma) if for_sigma else None,
    )
    return *grads, *numbers, grad_table if for_table else None, *[None] * 6


differentiable(smooth, _smooth_gradients, _keep_smooth)
once_only(gka_backward)
once_only(smooth_backward)


# The table of a bank


@operator
def bank_table(
    alpha: Tensor,
    sigma: Tensor,
    log_length: Tensor,
    log_tau: Tensor,
    queries: int,
    keys: int,
    lags: Tensor | None,
) -> Tensor:
    """The table ``[h n+m−1]`` of a bank with parameters ``[h M]``; or G at m lags, without a gradient."""
    return lag_bias.bank_table(Bank(alpha, sigma, log_length, log_tau), queries, keys, lags)


@register_fake(bank_table)
def _(alpha, sigma, log_length, log_tau, queries, keys, lags):
    return statistics(alpha, alpha.shape[0], queries + keys - 1)


@operator
def bank_gradient(
    grad_table: Tensor, alpha: Tensor, sigma: Tensor, log_length: Tensor, log_tau: Tensor, queries: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients for the four parameters."""
    return tuple(lag_bias.bank_gradient(grad_table, Bank(alpha, sigma, log_length, log_tau), queries))


@register_fake(bank_gradient)
def _(grad_table, alpha, sigma, log_length, log_tau, queries):
    return tuple(map(torch.empty_like, (alpha, sigma, log_length, log_tau)))


def _keep_bank(ctx, inputs, output):
    *parameters, ctx.queries, _, lags = inputs
    assert lags is None
    ctx.save_for_backward(*parameters)


def _bank_gradients(ctx, grad_table):
    return *bank_gradient(grad_table, *ctx.saved_tensors, ctx.queries), None, None, None


differentiable(bank_table, _bank_gradients, _keep_bank)
once_only(bank_gradient)


# A learned operator on rows


@operator
def row_features(query: Tensor, key: Tensor, coefficients: Tensor, scale: Tensor) -> Tensor:
    """The r numbers ``[b h n r]`` of each row of scores scale · q·k, Fourier coefficients ``[h 2G m r]``."""
    return row_operator.row_features(*_runnable(query, key), coefficients, scale)


@register_fake(row_features)
def _(query, key, coefficients, scale):
    return statistics(query, *query.shape[:3], coefficients.shape[-1])


@operator
def row_features_backward(
    grad_features: Tensor, query: Tensor, key: Tensor, coefficients: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients for query, key and coefficients."""
    grad_query, grad_key, grad_coefficients = row_operator.row_features_backward(
        grad_features, *_runnable(query, key), coefficients, scale
    )
    return grad_query.to(query.dtype), grad_key.to(key.dtype), grad_coefficients


@register_fake(row_features_backward)
def _(_, query, key, coefficients, scale):
    return token_major(query), token_major(key), torch.empty_like(coefficients)


def _keep_rows(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


def _row_gradients(ctx, grad_features):
    query, _, _, scale = ctx.saved_tensors
    grad_query, grad_key, grad_coefficients = row_features_backward(grad_features, *ctx.saved_tensors)
    grad_scale = None
    if ctx.needs_input_grad[3]:
        grad_scale = (query.to(scale.dtype) * grad_query).sum((0, 2, 3)) / scale
    return grad_query, grad_key, grad_coefficients, grad_scale


differentiable(row_features, _row_gradients, _keep_rows)
once_only(row_features_backward)


# One token against a cache


def _caches(arguments: tuple) -> tuple[int, ...]:
    """Key and value grow, and a row of lags; that of a mask would have other strides with each token."""
    return (1, 2, 6) if arguments[7] is None else ()


@functools.partial(operator, growing=_caches)
def decode(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    scale: Tensor | None,
    norm: Tensor | None,
    sigma: Tensor | None,
    lag_scores: Tensor | None,
    allowed: Tensor | None,
    lengths: Tensor | None,
    normalize: bool,
    eps: float,
) -> Tensor:
    """One query ``[b h 1 d]`` over a cache; without a value the keys are the values too."""
    given = _runnable(query, key, value)
    slots = {"lengths": lengths, "sigma": sigma, "eps": eps}
    return decoding.decode(*given, scale, norm, lag_scores, allowed, normalize, **slots).to(query.dtype)


@register_fake(decode)
def _(query, key, value, *_):
    return token_major(query, (key if value is None else value).shape[-1])


# Counts of operations: two for each multiplication of a matrix product, every pair of query and key counted,
# the masked ones too, as PyTorch counts its own attention; five products in a backward pass.


def _flops(query: tuple, keys: int, widths: int) -> int:
    """Of products that are so wide together."""
    batch, heads, queries, _ = query
    return 2 * batch * heads * queries * keys * widths


@register_flop_formula(torch.ops.gkalib.gka_backward)
def _(grad_out, x, *_, **__) -> int:
    return _flops(x, x[2], 5 * x[3])


@register_flop_formula([torch.ops.gkalib.smooth, torch.ops.gkalib.decode])
def _(query, key, value, *_, **__) -> int:
    key = key or query
    return _flops(query, key[2], query[3] + (value or key)[3])


@register_flop_formula(torch.ops.gkalib.smooth_backward)
def _(grad_out, query, key, value, *_, **__) -> int:
    return _flops(query, key[2], 3 * query[3] + 2 * value[3])


@register_flop_formula(torch.ops.gkalib.row_features)
def _(query, key, coefficients, *_, **__) -> int:
    return _flops(query, key[2], query[3] + coefficients[1] * coefficients[3])


@register_flop_formula(torch.ops.gkalib.row_features_backward)
def _(grad_features, query, key, coefficients, *_, **__) -> int:
    return _flops(query, key[2], 3 * query[3] + 2 * coefficients[1] * coefficients[3])

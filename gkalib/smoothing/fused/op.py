"""The fused operations as PyTorch operators: types, gradients, fake results and counts of operations."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.library import custom_op, register_autograd
from torch.utils.flop_counter import register_flop_formula

from gkalib.smoothing.fused import backward, forward, row_operator, symmetric
from gkalib.smoothing.fused import decode as decoding
from gkalib.smoothing.fused.launch import interpreting, statistics_type, token_major
from gkalib.smoothing.spans import Spans

NO_SECOND = (
    "smooth: the fused operations have no second derivative. Use method='dense' where one is needed, such as "
    "for a gradient penalty"
)


def _runnable(tensor: Tensor) -> Tensor:
    """Triton's interpreter computes nonsense in bfloat16: there the same numbers go in as float32."""
    return tensor.float() if interpreting() and tensor.dtype == torch.bfloat16 else tensor


def _statistics(tensor: Tensor, *shape: int) -> Tensor:
    return tensor.new_empty(shape, dtype=statistics_type(tensor))


def _once_only(operator: Callable) -> None:
    """Give a backward operator a derivative that says there is none."""

    def refuse(ctx, *gradients):
        raise RuntimeError(NO_SECOND)

    register_autograd(operator, refuse)


# One tensor: query, key and value are x


@custom_op("gkalib::gka", mutates_args=())
def gka(
    x: Tensor,
    scale: Tensor,
    left: int,
    right: int,
    first: Tensor | None,
    last: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """Gaussian smoothing of x ``[b h n d]`` by itself; the output and the row sums ``[b h n]``."""
    out, total = symmetric.gka_forward(_runnable(x), scale, Spans(left, right, first, last), eps)
    return out.to(x.dtype), total


@gka.register_fake
def _(x, scale, left, right, first, last, eps):
    return token_major(x), _statistics(x, *x.shape[:3])


@custom_op("gkalib::gka_backward", mutates_args=())
def gka_backward(
    grad_out: Tensor,
    x: Tensor,
    out: Tensor,
    total: Tensor,
    scale: Tensor,
    left: int,
    right: int,
    first: Tensor | None,
    last: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The gradient for x, and each row's share ⟨O, dO⟩ − ⟨x, dx⟩ of the gradient for log σ."""
    given = (_runnable(tensor) for tensor in (grad_out, x, out))
    grad_x, share = symmetric.gka_backward(*given, total, scale, Spans(left, right, first, last))
    return grad_x.to(x.dtype), share


@gka_backward.register_fake
def _(grad_out, x, out, total, scale, left, right, first, last):
    return token_major(x), _statistics(x, *x.shape[:3])


def _keep_gka(ctx, inputs, output):
    x, scale, left, right, first, last, _ = inputs
    ctx.save_for_backward(x, *output, scale, first, last)
    ctx.band = left, right
    ctx.set_materialize_grads(False)


def _gka_gradients(ctx, grad_out, _):
    if grad_out is None:
        return (None,) * 7
    x, out, total, scale, first, last = ctx.saved_tensors
    grad_x, share = gka_backward(grad_out, x, out, total, scale, *ctx.band, first, last)
    # Euler: O(λx, λσ) = λ O(x, σ), and scale is σ to the power −2.
    grad_scale = share.sum((0, 2)) / (-2 * scale) if ctx.needs_input_grad[1] else None
    return grad_x, grad_scale, None, None, None, None, None


register_autograd(gka, _gka_gradients, setup_context=_keep_gka)
_once_only(gka_backward)


# Query, key and value


@custom_op("gkalib::smooth", mutates_args=())
def smooth(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: Tensor,
    norm: Tensor | None,
    table: Tensor | None,
    left: int,
    right: int,
    first: Tensor | None,
    last: Tensor | None,
    normalize: bool,
) -> tuple[Tensor, Tensor]:
    """A kernel with a form over key ``[b g m d]`` and value ``[b g m e]``; output and log₂ of the row sums.

    Without ``normalize`` there are no sums and the second result is empty.
    """
    given = (_runnable(tensor) for tensor in (query, key, value))
    spans = Spans(left, right, first, last)
    out, log_sum = forward.smooth_forward(*given, scale, norm, table, spans, normalize)
    return out.to(query.dtype), log_sum


@smooth.register_fake
def _(query, key, value, scale, norm, table, left, right, first, last, normalize):
    return token_major(query, value.shape[-1]), _statistics(query, *(query.shape[:3] if normalize else (0,)))


@custom_op("gkalib::smooth_backward", mutates_args=())
def smooth_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    log_sum: Tensor,
    scale: Tensor,
    norm: Tensor | None,
    table: Tensor | None,
    left: int,
    right: int,
    first: Tensor | None,
    last: Tensor | None,
    normalize: bool,
    want_table: bool,
) -> list[Tensor]:
    """The gradients for query, key and value, and what those for scale, norm and table are made of.

    The last three are empty where there is nothing to say: the sums of dS over rows, which are 0 under
    ``normalize``, over columns, which only norms need, and the table's gradient.
    """
    given = [_runnable(tensor) for tensor in (grad_out, query, key, value, out)]
    results = backward.smooth_backward(
        *given,
        log_sum,
        scale,
        norm,
        table,
        Spans(left, right, first, last),
        normalize,
        want_table,
    )
    grads = [result.to(query.dtype) for result in results[:3]]
    # Cloned: the table's gradient is cut out of a longer one, and what an operator returns has no offset.
    return grads + [_statistics(query, 0) if result is None else result.clone() for result in results[3:]]


@smooth_backward.register_fake
def _(grad_out, query, key, value, out, log_sum, scale, norm, table, left, right, first, last, normalize,
      want_table):  # fmt: skip
    rows, columns = query.shape[:3], (*query.shape[:2], key.shape[2])
    return [
        *(token_major(tensor) for tensor in (query, key, value)),
        _statistics(query, *((0,) if normalize else rows)),
        _statistics(query, *((0,) if norm is None else columns)),
        _statistics(query, *(table.shape if want_table else (0,))),
    ]


def _keep_smooth(ctx, inputs, output):
    query, key, value, scale, norm, table, left, right, first, last, normalize = inputs
    ctx.save_for_backward(query, key, value, *output, scale, norm, table, first, last)
    ctx.band, ctx.normalize = (left, right), normalize
    ctx.set_materialize_grads(False)


def _smooth_gradients(ctx, grad_out, _):
    if grad_out is None:
        return (None,) * 11
    query, key, value, out, log_sum, scale, norm, table, first, last = ctx.saved_tensors
    wants = ctx.needs_input_grad
    *grads, row_sum, key_sum, grad_table = smooth_backward(
        grad_out,
        query,
        key,
        value,
        out,
        log_sum,
        scale,
        norm,
        table,
        *ctx.band,
        first,
        last,
        ctx.normalize,
        wants[5],
    )
    grad_scale = grad_norm = None
    if wants[3] or wants[4]:
        # dS_ij = s dS q·k − ν/2 (|q|² + |k|²): what is left of ⟨q, dq⟩ without the norms is the scale's.
        by_norm = _norm_sums(query, row_sum) + _norm_sums(key, key_sum)
        grad_scale = (query.to(scale.dtype) * grads[0]).sum((0, 2, 3))
        if norm is not None:
            grad_scale = grad_scale + norm * _norm_sums(query, row_sum)
            grad_norm = -0.5 * by_norm if wants[4] else None
        grad_scale = grad_scale / scale if wants[3] else None
    return *grads, grad_scale, grad_norm, grad_table if wants[5] else None, *[None] * 5


def _norm_sums(vectors: Tensor, weights: Tensor) -> Tensor | float:
    """Σ w |x|² of each head ``[h]``, the weights ``[b h n]``; zero without weights."""
    if weights.numel() == 0:
        return 0.0
    squares = vectors.to(weights.dtype).square().sum(-1)
    return (weights * squares.repeat_interleave(weights.shape[1] // squares.shape[1], 1)).sum((0, 2))


register_autograd(smooth, _smooth_gradients, setup_context=_keep_smooth)
_once_only(smooth_backward)


# A learned operator on rows


@custom_op("gkalib::row_features", mutates_args=())
def row_features(query: Tensor, key: Tensor, coefficients: Tensor, scale: Tensor) -> Tensor:
    """The r numbers ``[b h n r]`` of each row of scores scale · q·k, Fourier coefficients ``[h 2G m r]``."""
    return row_operator.row_features(_runnable(query), _runnable(key), coefficients, scale)


@row_features.register_fake
def _(query, key, coefficients, scale):
    return _statistics(query, *query.shape[:3], coefficients.shape[-1])


@custom_op("gkalib::row_features_backward", mutates_args=())
def row_features_backward(
    grad_features: Tensor, query: Tensor, key: Tensor, coefficients: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients for query, key and coefficients."""
    grad_query, grad_key, grad_coefficients = row_operator.row_features_backward(
        grad_features, _runnable(query), _runnable(key), coefficients, scale
    )
    return grad_query.to(query.dtype), grad_key.to(key.dtype), grad_coefficients


@row_features_backward.register_fake
def _(grad_features, query, key, coefficients, scale):
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


register_autograd(row_features, _row_gradients, setup_context=_keep_rows)
_once_only(row_features_backward)


# One token against a cache


@custom_op("gkalib::decode", mutates_args=())
def decode(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    scale: Tensor,
    norm: Tensor | None,
    lag_scores: Tensor | None,
    allowed: Tensor | None,
    normalize: bool,
    eps: float = 0.0,
) -> Tensor:
    """One query ``[b h 1 d]`` over a cache; without a value the keys are the values too."""
    key_given = _runnable(key)
    value_given = key_given if value is None else _runnable(value)
    given = (_runnable(query), key_given, value_given)
    return decoding.decode(*given, scale, norm, lag_scores, allowed, normalize, eps=eps).to(query.dtype)


@decode.register_fake
def _(query, key, value, scale, norm, lag_scores, allowed, normalize, eps=0.0):
    return token_major(query, (key if value is None else value).shape[-1])


# Counts of operations: two for each multiplication of a matrix product, every pair of query and key counted,
# the masked ones too, as PyTorch counts its own attention; five products in a backward pass.


@register_flop_formula(torch.ops.gkalib.gka)
def _(x, *_, **__) -> int:
    batch, heads, length, width = x
    return 4 * batch * heads * length * length * width


@register_flop_formula(torch.ops.gkalib.gka_backward)
def _(grad_out, x, *_, **__) -> int:
    batch, heads, length, width = x
    return 10 * batch * heads * length * length * width


@register_flop_formula([torch.ops.gkalib.smooth, torch.ops.gkalib.decode])
def _(query, key, value, *_, **__) -> int:
    batch, heads, queries, width = query
    return 2 * batch * heads * queries * key[2] * (width + (key if value is None else value)[3])


@register_flop_formula(torch.ops.gkalib.smooth_backward)
def _(grad_out, query, key, value, *_, **__) -> int:
    batch, heads, queries, width = query
    return 2 * batch * heads * queries * key[2] * (3 * width + 2 * value[3])


@register_flop_formula(torch.ops.gkalib.row_features)
def _(query, key, coefficients, *_, **__) -> int:
    batch, heads, queries, width = query
    return 2 * batch * heads * queries * key[2] * (width + coefficients[1] * coefficients[3])


@register_flop_formula(torch.ops.gkalib.row_features_backward)
def _(grad_features, query, key, coefficients, *_, **__) -> int:
    batch, heads, queries, width = query
    return 2 * batch * heads * queries * key[2] * (3 * width + 2 * coefficients[1] * coefficients[3])

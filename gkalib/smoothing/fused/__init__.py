"""Fused operations: GPU programs that compute a whole problem without an array of n × m numbers."""

import importlib.util
import os

import torch
from torch import Tensor
from torch._subclasses import FakeTensor
from torch.nn.functional import pad

from gkalib.kernels import Bank, Form
from gkalib.kernels.lags import of_lags
from gkalib.masks import Causal, KeyPadding
from gkalib.normalizers import Fourier, RowOperator, RowSum, Unnormalized
from gkalib.shapes import readable
from gkalib.smoothing.fused import cards
from gkalib.smoothing.methods.method import Method, no_form, warn_if_lost, wide
from gkalib.smoothing.problem import Problem
from gkalib.smoothing.spans import spans_of, why_not

HAS_TRITON = importlib.util.find_spec("triton") is not None
WIDTHS = (16, 32, 64, 128, 256)
WIDEST = WIDTHS[-1]
MOST_CONSTANTS = 1000
TYPES = (torch.float16, torch.bfloat16, torch.float32)


class Fused(Method):
    r"""Triton programs that form each block of scores once, use it, and forget it.

    Four kinds of problem have one: one tensor and a Gaussian (GKA), any kernel with a form under a row sum or
    no normalizer, one query against a cache, and a rank-r Fourier operator on rows (KArAt). A CUDA device
    runs them; with ``TRITON_INTERPRET=1`` Triton's interpreter does, on a CPU, float64 included.

    Decoding measures distances; the others form them of products, in which a Gaussian far from the origin
    loses its digits, as the other methods do not: a warning says so on a CPU, on a card nothing does.

    ``method="auto"`` takes one only where the card's file says that it was right there, and no slower than
    PyTorch's own methods: `gkalib ready` writes the file.

    Args:
        center: whether the mean of each head's tokens is taken off before and added after, where one tensor
            is smoothed by a Gaussian. The result is the same in exact arithmetic; in half precision the
            gradient of tokens that lie far from the origin keeps more digits.
        ordered: is gone with the programs that formed sums in no fixed order; only True is taken.

    Raises:
        ValueError: for ``ordered=False``.

    Chapters 17 to 20 teach them.
    """

    name = "fused"

    def __init__(self, *, center: bool = False, ordered: bool = True):
        if not ordered:
            raise ValueError(
                "Fused: ordered=False is gone: every sum has one order, so that gradients are the same bits "
                "every time; leave the argument out"
            )
        self.center = center

    def refuses(self, problem: Problem) -> str | None:
        reason = _no_machine(problem) or no_operation(problem)
        reason = reason or (_no_center(problem) if self.center else None)
        return reason or cards.refusal(_asked(problem))

    def unproved(self, problem: Problem) -> str | None:
        return cards.passed_over(_asked(problem))

    def __call__(self, problem: Problem) -> Tensor:
        if isinstance(problem.normalizer, RowOperator):
            return _rows(problem)
        if _one_token(problem):
            return _decode(problem)
        form = problem.form
        assert form is not None  # else it refuses
        of_itself = _of_itself(problem, form)
        if form.has_norm and readable(problem.query) and not (of_itself and self.center):
            warn_if_lost(problem, form.key_term(wide(problem.key)))
        return _smooth(problem, form, of_itself, self.center and of_itself)


def _interpreting() -> bool:
    return os.environ.get("TRITON_INTERPRET", "0") in ("1", "true", "on", "yes", "y")


def _no_machine(problem: Problem) -> str | None:
    """Why fused operations do not run here, or on this type."""
    device, dtype = problem.query.device, problem.query.dtype
    if not HAS_TRITON:
        return "fused operations need Triton, which is not installed"
    if device.type == "cpu":
        if not _interpreting():
            return "fused operations run on a CUDA device, or in Triton's interpreter (TRITON_INTERPRET=1)"
        return None
    if device.type != "cuda":
        return f"fused operations run on a CUDA device, and the query is on {device}"
    if dtype not in TYPES:
        return f"fused operations take float16, bfloat16 and float32 on a GPU, not {dtype}"
    return None


def no_operation(problem: Problem) -> str | None:
    """Why no fused operation computes this problem, on whatever machine."""
    width, value_width = problem.query.shape[-1], problem.grouped_value.shape[-1]
    if max(width, value_width) > WIDEST:
        return f"heads are at most {WIDEST} wide, and here they are {max(width, value_width)}"
    form = problem.form
    if form is None:
        return no_form(problem)
    if form.key_bias is not None:
        kernel = type(problem.kernel).__name__
        return f"the fused operations have no place for a key_bias, and the form of {kernel} has one"
    if problem.bias is not None:
        return "the fused operations read no bias of each pair; a kernel of the lag is one that they read"
    normalizer = problem.normalizer
    if isinstance(normalizer, RowOperator):
        return _no_rows(problem, form, normalizer)
    if not isinstance(normalizer, (RowSum, Unnormalized)):  # joined by | they take longer to form than to ask
        return (
            f"the fused operations divide by the row sum, or by nothing, and are not made for {normalizer!r}"
        )
    if _one_token(problem):
        return None
    if isinstance(normalizer, RowSum) and normalizer.eps and not _of_itself(problem, form):
        return "an eps beside the row sum is part of the operations on one tensor and on one token only"
    return why_not(problem)


def _no_center(problem: Problem) -> str | None:
    """Why the mean of one tensor cannot be taken off: beside an eps a token takes one number more."""
    if problem.query.shape[-1] < WIDEST or not problem.one_tensor or _one_token(problem):
        return None
    if isinstance(problem.normalizer, RowSum) and problem.normalizer.eps:
        return f"beside an eps heads that are centered are at most {WIDEST - 1} wide"
    return None


def _no_rows(problem: Problem, form: Form, operator: RowOperator) -> str | None:
    """Why an operator on rows is not the one that has a fused operation."""
    basis = operator.first.basis if hasattr(operator.first, "basis") else None
    if operator.mix is None or operator.projection is not None or not isinstance(basis, Fourier):
        return "of the operators on rows only W Φ̂(a) with Fourier units and no projection is fused"
    if operator.first.base != "zero":
        return f"the operator's base {operator.first.base!r} is not part of the fused operation"
    if operator.mix.shape[-1] > 64:
        return f"the operator's rank is {operator.mix.shape[-1]}, above 64"
    if form.has_norm or form.lag_table is not None:
        return "the fused operator on rows takes scores scale · q·k only"
    if problem.mask is not None:
        return "the operator takes no mask"
    return None


def _of_itself(problem: Problem, form: Form) -> bool:
    """Whether one tensor is smoothed by a Gaussian under masks that let every token see itself."""
    return (
        problem.one_tensor
        and form.sigma is not None
        and form.lag_table is None
        and isinstance(problem.normalizer, RowSum)
        and problem.positions is None
        and not any(isinstance(rule, KeyPadding) for rule in problem.rules)
    )


def operation_of(problem: Problem) -> str:
    """What is compiled and proved together; no operation refuses the problem.

    ``rows`` or ``gka``; or ``decode`` or ``smooth``, alone or with ``-gaussian``, ``-lags`` and
    ``-unnormalized`` behind it.
    """
    form = problem.form
    assert form is not None  # else it refuses
    if isinstance(problem.normalizer, RowOperator):
        return "rows"
    if not _one_token(problem) and _of_itself(problem, form):
        return "gka"
    return cards.operation(
        "decode" if _one_token(problem) else "smooth",
        gaussian=form.has_norm,
        lags=form.lag_table is not None,
        normalize=isinstance(problem.normalizer, RowSum),
    )


def _asked(problem: Problem) -> cards.Asked:
    """What a card's file is asked."""
    query, widest = problem.query, max(problem.query.shape[-1], problem.grouped_value.shape[-1])
    if isinstance(problem.normalizer, RowOperator):
        widest = query.shape[-1]  # values are mixed by PyTorch
    width = next(width for width in WIDTHS if widest <= width)
    length = cards.length_class(max(query.shape[2], problem.grouped_key.shape[2]))
    return operation_of(problem), problem.needs_grad, query.dtype, width, length, query.device


def _one_token(problem: Problem) -> bool:
    """Whether this is a step of decoding: one query, and no gradient."""
    return problem.query.shape[2] == 1 and not problem.needs_grad


_constants: dict[tuple[float, int, torch.dtype, torch.device], Tensor] = {}


def _constant(number: float, problem: Problem) -> Tensor:
    """A number for each head ``[h]``, kept so that not every call fills it in."""
    query, heads, dtype = problem.query, problem.query.shape[1], _statistics(problem)
    key = number, heads, dtype, query.device
    traced = torch.compiler.is_compiling() or isinstance(query, FakeTensor)
    if key in _constants and not traced:
        return _constants[key]
    # A traced graph cannot ask; what is kept is kept for good, as a captured graph may read it.
    captured = not traced and query.is_cuda and torch.cuda.is_current_stream_capturing()
    if traced or captured or len(_constants) == MOST_CONSTANTS:
        return torch.full((heads,), number, dtype=dtype, device=query.device)
    with torch.inference_mode(False):
        # From the host, which waits for the copy: another stream may read it at once.
        _constants[key] = torch.tensor([number] * heads, dtype=dtype, device=query.device)
    return _constants[key]


def _per_head(number: float | Tensor, problem: Problem) -> Tensor:
    """A number, or one per head, as ``[h]`` in the type of sums."""
    if not isinstance(number, Tensor):
        return _constant(number, problem)
    return _summed(number, problem).reshape(-1).expand(problem.sizes[1]).contiguous()


def _sigma(form: Form, problem: Problem) -> Tensor | None:
    """σ in the type of sums, ``[h]``, or ``[1]`` where it is one for all heads; None where there is none."""
    if not isinstance(form.sigma, Tensor):
        return None if form.sigma is None else _constant(form.sigma, problem)
    sigma = _summed(form.sigma, problem)
    return sigma if sigma.ndim and sigma.is_contiguous() else sigma.reshape(-1).contiguous()


def _numbers(form: Form, problem: Problem) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """s, ν or None for 0, and None; or None, None and σ."""
    sigma = _sigma(form, problem)
    if sigma is not None:
        return None, None, sigma
    return _per_head(form.scale, problem), _per_head(form.norm, problem) if form.has_norm else None, None


def _table(problem: Problem, form: Form) -> Tensor | None:
    """t at the lags 1 − n … m − 1, ``[h n+m−1]``."""
    if form.lag_table is None:
        return None
    _, heads, queries, keys = problem.sizes
    if form.formed_of is not None:
        table = _formed(form.formed_of, problem, queries, keys)
    else:
        table = form.lag_table(queries, keys).to(problem.query.device, _statistics(problem))
    return table if table.shape[0] == heads else table.expand(heads, -1)


def _formed(bank: Bank, problem: Problem, queries: int, keys: int, lags: Tensor | None = None) -> Tensor:
    """A table at the lags 1 − n … m − 1, by one program; or at m given ones, for one query."""
    from gkalib.smoothing.fused import op

    device = problem.query.device
    return _summed(op.bank_table(*(one.to(device) for one in bank), queries, keys, lags), problem)


def _lag_row(problem: Problem, form: Form) -> Tensor | None:
    """t between the one query and each key, ``[b h m]`` or ``[1 h m]``."""
    if form.lag_table is None:
        return None
    _, heads, _, keys = problem.sizes
    if problem.positions is not None and form.formed_of is not None:
        lags = problem.lag().reshape(-1).to(problem.query.device)
        # [h b·m] to [b h m], or [1 h m]
        row = _formed(form.formed_of, problem, 1, len(lags), lags).unflatten(1, (-1, keys)).transpose(0, 1)
    elif problem.positions is not None:
        # [h 1 m] or [b h 1 m]
        row = problem.lag_scores().squeeze(-2)
        row = _summed(row if row.ndim == 3 else row[None], problem)
    else:
        from gkalib.smoothing.fused.plans import GRAIN

        # Where it starts moves while a cache grows, and its memory stays as it is: so do the plans.
        places = -(-keys // GRAIN) * GRAIN
        if form.formed_of is not None:  # alike at both signs of a lag
            row = _formed(form.formed_of, problem, places, 1)[None, :, places - keys :]
        else:
            # [h m], lag 0 first
            table = _summed(form.lag_table(1, keys).to(problem.query.device), problem)
            row = table.new_empty(1, table.shape[0], places)[:, :, places - keys :]
            order = of_lags("falls to 0", torch.neg, keys, 1, table)
            torch.index_select(table, 1, order, out=row[0])
    return row if row.shape[1] == heads else row.expand(-1, heads, -1)


def _statistics(problem: Problem) -> torch.dtype:
    """The type of sums."""
    return torch.float64 if problem.query.dtype == torch.float64 else torch.float32


def _summed(numbers: Tensor, problem: Problem) -> Tensor:
    """Numbers in the type of sums."""
    dtype = _statistics(problem)
    return numbers if numbers.dtype == dtype else numbers.to(dtype)


def _smooth(problem: Problem, form: Form, of_itself: bool, center: bool) -> Tensor:
    from gkalib.smoothing.fused import op

    query, mean, (normalize, eps) = problem.query, None, _divisor(problem)
    if center:
        mean = query.mean(2, keepdim=True)
        query = query - mean
        # Beside an eps the weights do not sum to one: a column of ones is smoothed to what the mean takes.
        query = pad(query, (0, 1), value=1.0) if eps else query
    key, value = (None, None) if of_itself else (problem.grouped_key, problem.grouped_value)
    slots = *_numbers(form, problem), _table(problem, form), *spans_of(problem), normalize, eps
    out, _ = op.smooth(query, key, value, *slots)
    if mean is None:
        return out
    return out[..., :-1] + out[..., -1:] * mean if eps else out + mean


def _divisor(problem: Problem) -> tuple[bool, float]:
    """Whether the sum is divided, and what is added to the divisor."""
    normalizer = problem.normalizer
    return (True, normalizer.eps) if isinstance(normalizer, RowSum) else (False, 0.0)


def _decode(problem: Problem) -> Tensor:
    from gkalib.smoothing.fused import op

    form = problem.form
    assert form is not None  # else it refuses
    # The newest token sees all of a cache that only causality limits, or a length, which the device keeps.
    lengths, rules = None, [rule for rule in problem.rules if not isinstance(rule, Causal)]
    if len(rules) == 1 and isinstance(rules[0], KeyPadding):
        lengths, rules = rules[0].lengths, []
    sees_all = problem.positions is None and not rules
    key, value = problem.grouped_key, problem.grouped_value
    return op.decode(
        problem.query,
        key,
        None if value is key else value,
        *_numbers(form, problem),
        _lag_row(problem, form),
        None if sees_all else problem.allowed(),
        lengths if sees_all else None,
        *_divisor(problem),
    )


def _rows(problem: Problem) -> Tensor:
    """H (Wᵀ V): the operator's r numbers of each row, and the values mixed into r rows once."""
    from gkalib.smoothing.fused import op

    operator, form = problem.normalizer, problem.form
    assert isinstance(operator, RowOperator) and operator.mix is not None and form is not None
    operator.check_sizes(problem.sizes[1], problem.sizes[3])
    units = operator.first
    table = units.coefficients
    if units.basis_scale is not None:
        table = units.basis_scale[..., None] * table
    # [h r m 2G] to [h 2G m r]
    table = table.permute(0, 3, 2, 1).to(_statistics(problem)).contiguous()
    query, key, value = problem.query, problem.grouped_key, problem.grouped_value
    features = op.row_features(query, key, table, _per_head(form.scale, problem))
    mixed = operator.mix.mT.to(value.dtype) @ value
    return features.to(value.dtype) @ mixed

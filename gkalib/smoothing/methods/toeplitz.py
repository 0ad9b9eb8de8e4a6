"""Feature kernels times a kernel of the lag, whose sums are convolutions: by the fast Fourier transform."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from gkalib.kernels import Kernel
from gkalib.masks import Causal, KeyPadding, Mask, Window
from gkalib.normalizers import RowSum
from gkalib.shapes import readable
from gkalib.smoothing.methods.method import Method, existing_keys, no_pairs, no_rule_but, no_sums
from gkalib.smoothing.problem import Problem, factors

RESOLVED = 1e-9  # of the largest row's sum: a smaller sum has lost the digits that float32 would show


class Toeplitz(Method):
    r"""Sums under a feature kernel times a kernel of the lag, as convolutions along the keys.

    $$\sum_j \varphi(q_i)^\top\varphi(k_j)\, e^{t(i-j)}\, v_j
    = \sum_r \varphi_r(q_i) \sum_j e^{t(i-j)} \big(\varphi_r(k_j)\, v_j\big)$$

    The inner sum is a product with a Toeplitz matrix, by Fourier transforms of length n + m. Causal masks and
    windows are zeros of the kernel of the lag. Without a feature kernel φ is the number 1.

    The transforms run in float64 whatever the input's type, since their rounding error is relative to the
    largest sum of a sequence and not to a row's own: a row whose weights sum to 10⁻⁸ of the largest keeps
    eight digits. So ``auto`` never takes this method; it is chosen by name.

    Args:
        memory: bytes for the transforms of a block of features; a few such blocks live at once.

    Raises:
        ValueError: in use, on a CPU, if a row's weights sum to less than 10⁻⁹ of the largest row's and
            have to be divided by that sum.

    References:
        Luo et al., Stable, Fast and Accurate: Kernelized Attention with Relative Positional Encoding, 2021,
        section 3. Chapter 13 teaches it.
    """

    name = "toeplitz"

    def __init__(self, memory: int = 2**28):
        if memory <= 0:
            raise ValueError(f"Toeplitz: memory must be a positive number of bytes, not {memory}")
        self.memory = memory

    def refuses(self, problem: Problem) -> str | None:
        of_lag, of_content = factors(problem.kernel)
        if not of_lag:
            return f"{type(problem.kernel).__name__} has no factor that is a kernel of the lag alone"
        if len(of_content) > 1:
            return "the kernel has more than one factor beside its kernels of the lag"
        if of_content and of_content[0].features() is None:
            return f"{type(of_content[0]).__name__} is not a finite inner product of features"
        why = "is no function of the lag; Causal, Window and KeyPadding are or split off"
        reason = no_sums(problem) or no_rule_but(problem, Causal, Window, KeyPadding, why=why)
        if reason:
            return reason
        if problem.positions is not None and not _consecutive(problem):
            return "its convolutions need consecutive whole positions, the same for the whole batch"
        return no_pairs(problem)

    def __call__(self, problem: Problem) -> Tensor:
        of_lag, of_content = factors(problem.kernel)
        query, key, value = problem.upcast()
        if of_content:
            features = of_content[0].features()
            assert features is not None  # else it refuses
            query, key = features.query(query), features.key(key)
        else:
            query, key = torch.ones_like(query[..., :1]), torch.ones_like(key[..., :1])
        query, key, value = query.double(), key.double(), value.double()
        exists, padded = torch.ones_like(key[..., :1]), existing_keys(problem)
        exists = exists if padded is None else exists * padded
        lags = _lags(problem)
        allowed = _allowed(lags, [rule for rule in problem.rules if not isinstance(rule, KeyPadding)])
        table = torch.stack([_log_table(kernel, query, lags) for kernel in of_lag]).sum(0)
        table = torch.fft.rfft(table.masked_fill(~allowed, -torch.inf).exp(), dim=-1)[..., None]
        # One more value column, of ones, sums the weights.
        value = torch.cat([value, torch.ones_like(exists)], dim=-1) * exists
        sums = self._sums(query, key, value, table, needs_grad=problem.needs_grad)
        out, total, largest = sums.split([sums.shape[-1] - 2, 1, 1], dim=-1)
        # A row without a key has sums of rounding noise: the number of its keys tells it exactly.
        count = torch.fft.rfft(allowed.double(), dim=-1)[:, None]
        nothing = _convolved(count, exists, query.shape[2]) < 0.5
        if isinstance(problem.normalizer, RowSum):
            _check_resolved(total, largest, nothing)
            out = out / (total + problem.normalizer.eps).masked_fill(nothing, 1.0)
        return out.masked_fill(nothing, 0.0).to(problem.query.dtype)

    def _sums(self, query: Tensor, key: Tensor, value: Tensor, table: Tensor, *, needs_grad: bool) -> Tensor:
        """Σ_r φ_r(q_i) Σ_j e^{t(i−j)} φ_r(k_j) v_j, a block of features at a time, and what the last column
        would be if the inner sum were at its largest in every row.
        """
        batch, heads, queries, features = query.shape
        numbers = max(batch, 1) * heads * (queries + key.shape[2]) * value.shape[-1]
        block = max(1, self.memory // (numbers * value.element_size()))
        total = value.new_zeros(batch, heads, queries, value.shape[-1] + 1)
        for start in range(0, features, block):
            rows = slice(start, start + block)
            pieces = (query[..., rows], key[..., rows], value, table)
            if needs_grad and block < features:  # the transforms are computed again instead of kept
                part = checkpoint(_block, *pieces, use_reentrant=False)
                assert part is not None
            else:
                part = _block(*pieces)
            total = total + part
        return total


def _block(query: Tensor, key: Tensor, value: Tensor, table: Tensor) -> Tensor:
    """The part of ``_sums`` that some of the features give."""
    products = (key[..., :, None] * value[..., None, :]).flatten(-2)
    sums = _convolved(table, products, query.shape[2]).unflatten(-1, (key.shape[-1], value.shape[-1]))
    largest = (query * sums[..., -1].detach().amax(2, keepdim=True)).sum(-1, keepdim=True)
    return torch.cat([(query[..., None] * sums).sum(-2), largest], dim=-1)


def _check_resolved(total: Tensor, largest: Tensor, nothing: Tensor) -> None:
    """Raise if the sum of a row drowns in the rounding of the largest; in eager mode and on the CPU only."""
    if not readable(total) or not total.numel():
        return
    share = (total.detach() / largest.detach()).masked_fill(nothing, 1.0).min().item()
    if share <= RESOLVED:
        raise ValueError(
            f"smooth: toeplitz: the weights of a row sum to less than {RESOLVED:.0e} of the largest row's, "
            "which its Fourier transforms do not resolve; dense does"
        )


def _convolved(table: Tensor, columns: Tensor, queries: int) -> Tensor:
    """Σ_j table(i − j) columns_j for every query i, from the transform of the table; both sums wrap around
    after n + m, which is far enough that nothing meets.
    """
    length = queries + columns.shape[2]
    return torch.fft.irfft(table * torch.fft.rfft(columns, length, dim=2), length, dim=2)[:, :, :queries]


def _lags(problem: Problem) -> Tensor:
    """The lag of each of the n + m places of the circle: 0 … n − 1, then −m … −1, from the first lag on."""
    _, _, queries, keys = problem.sizes
    first = problem.query_position[0] - problem.key_position[0]
    steps = torch.arange(queries + keys, device=problem.query.device)
    return first + torch.where(steps < queries, steps, steps - queries - keys)


def _allowed(lags: Tensor, rules: list[Mask]) -> Tensor:
    """Which lags masks of the lag allow."""
    allowed = torch.ones_like(lags, dtype=torch.bool)
    for rule in rules:
        zero = torch.zeros_like(lags)
        allowed = allowed & rule.allows(zero, zero, lags, zero)
    return allowed


def _log_table(kernel: Kernel, query: Tensor, lags: Tensor) -> Tensor:
    """The logarithm of a kernel of the lag at each lag, ``[h, n + m]``, by its definition."""
    nothing = query.new_zeros(1, query.shape[1], 1, 1)
    return kernel.log(nothing, nothing.expand(-1, -1, lags.shape[0], -1), lags[None])[0, :, 0].double()


def _consecutive(problem: Problem) -> bool:
    """Whether positions count up by one, in eager mode only: a traced graph cannot ask."""
    if torch.compiler.is_compiling():
        return False
    return all(
        position.ndim == 1 and not position.is_floating_point() and bool((position.diff() == 1).all())
        for position in (problem.query_position, problem.key_position)
    )

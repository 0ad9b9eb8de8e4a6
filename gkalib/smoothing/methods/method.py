"""What a method is: one way to compute a smoothing problem, which says what it cannot do."""

import math
import warnings
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from gkalib.masks import Causal, KeyPadding, Mask
from gkalib.normalizers import RowSum, Unnormalized
from gkalib.shapes import readable
from gkalib.smoothing.problem import Problem

NEAR = 32.0
"""Up to this |k|²/2σ² a score is wrong by some spacings only."""
LOST = {dtype: 0.01 / torch.finfo(dtype).eps for dtype in (torch.float32, torch.float64)}
"""Above this it is wrong by a hundredth, and so is a weight."""


class Method(ABC):
    """A way to compute a problem's output; ``exact`` says whether it is the definition up to rounding."""

    name: str
    exact: bool = True
    remembers: bool = False  # True if a call changes what the next one gives

    @abstractmethod
    def refuses(self, problem: Problem) -> str | None:
        """Why this method cannot compute the problem, or None if it can."""

    def unproved(self, problem: Problem) -> str | None:
        """Why ``auto`` passes this method over though it can compute the problem, or None if it does not."""
        return None

    @abstractmethod
    def __call__(self, problem: Problem) -> Tensor:
        """The output ``[b h n e]``, in the query's dtype."""


def no_form(problem: Problem) -> str | None:
    """The reason of a method that needs the kernel's form, where there is none."""
    if problem.form is not None:
        return None
    name = type(problem.kernel).__name__
    return f"{name} has no form scale · q·k − norm · (|q|² + |k|²)/2 + b(k) + t(lag)"


def no_sums(problem: Problem) -> str | None:
    """The reason of a method that forms sums over keys, where the normalizer needs more."""
    if isinstance(problem.normalizer, RowSum | Unnormalized):
        return None
    return f"{problem.normalizer!r} needs the weights one by one"


def no_rule_but(problem: Problem, *kinds: type[Mask], why: str) -> str | None:
    """The reason of a method that knows some masks only, where there is another."""
    rule = next((rule for rule in problem.rules if not isinstance(rule, kinds)), None)
    return None if rule is None else f"{rule!r} {why}"


def no_pairs(problem: Problem) -> str | None:
    """The reason of a method that forms no scores, where there is a bias to add to them."""
    return None if problem.bias is None else "it forms no score of each pair, to which a bias could be added"


def lengths_of(problem: Problem) -> Tensor | None:
    """How many keys of each sequence exist, ``[b]``; None where all do."""
    lengths = [rule.lengths for rule in problem.rules if isinstance(rule, KeyPadding)]
    return torch.stack(lengths).amin(0).to(problem.query.device) if lengths else None


def existing_keys(problem: Problem) -> Tensor | None:
    """True for each key that exists, ``[b 1 m 1]``; None where all do."""
    lengths = lengths_of(problem)
    if lengths is None:
        return None
    return (torch.arange(problem.sizes[3], device=lengths.device) < lengths[:, None])[:, None, :, None]


def centered(problem: Problem, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    r"""Query and key of every head so that products tell their distances, and what the form adds to each key.

    $$\|q - k\|^2 = \|q - p\|^2 + \|k - p\|^2 - 2 (q - p)^\top (k - p)$$

    Far from the origin the right side with p = 0 has no digits of the left. Where the form is of a distance
    alone both are moved by a key of each head that is seen, which then has no gradient. Keys near the origin
    stay, where that can be known: in eager mode on a CPU. There a warning says if moving does not help.
    """
    form = problem.form
    assert form is not None  # else the method refuses
    looks = readable(key)
    if form.sigma is None or looks:
        term = form.key_term(wide(key))
        if term is None or not form.has_norm or not looks or _largest(term) < NEAR:
            return query, key, term
        if form.sigma is None:  # beside a distance the origin matters
            warn_if_lost(problem, term)
            return query, key, term
    point, given = _point(problem, key.detach()), key
    key = key - point
    query = key if query is given else query - point
    term = form.key_term(wide(key), wide(given))
    if looks:
        warn_if_lost(problem, term)
    return query, key, term


def wide(tensor: Tensor) -> Tensor:
    """In float32 where it is in half precision."""
    return tensor.float() if tensor.dtype.itemsize == 2 else tensor


def _largest(term: Tensor) -> float:
    """The largest |k|²/2σ², zero if there is no key."""
    return -term.detach().amin().item() if term.numel() else 0.0


def _point(problem: Problem, key: Tensor) -> Tensor:
    """A key of each head that is seen, ``[b h 1 d]``, or zero: one in the middle if there is no mask, else
    the first that the first query or the last one sees.
    """
    seen = _seen(problem)
    if seen is None:
        at = 0 if problem.rules else key.shape[2] // 2
        point = key[:, :, at : at + 1]
    else:
        index = seen.int().argmax(-1, keepdim=True).expand(*key.shape[:2], 1)
        point = key.gather(2, index[..., None].expand(-1, -1, -1, key.shape[3]))
        point = point.where(point.isfinite() & seen.any(-1)[..., None, None], 0.0)
    if key.dtype.itemsize == 2:
        # A difference is rounded, unless it is small beside its terms: then it is exact.
        near = (key - point).abs() <= point.abs() / 8
        point = point * (near.float().mean(2, keepdim=True) > 0.5)
    return point


def _seen(problem: Problem) -> Tensor | None:
    """Which keys the first query or the last one sees, ``[b h m]``; None where the last sees all, and every
    query the first.
    """
    _, _, queries, keys = problem.sizes
    causal = all(isinstance(rule, Causal) for rule in problem.rules) and queries <= keys
    if causal and problem.positions is None and problem.bias is None:
        return None
    rows = slice(0, queries, max(queries - 1, 1))
    seen, bias = problem.allowed(rows), problem.bias_of(rows)
    seen = problem.query.new_ones(1, 1, 1, keys, dtype=torch.bool) if seen is None else seen
    seen = seen if bias is None else seen & ~bias.isneginf()
    return seen[(None,) * (4 - seen.ndim)].any(2).expand(*problem.sizes[:2], keys)


def warn_if_lost(problem: Problem, term: Tensor | None) -> None:
    """Warn if keys are seen that lie so far from where they are compared that scores have lost their digits.

    Args:
        problem: what is computed.
        term: what is added for each key, ``[b h m]``.
    """
    if term is None or _largest(term) < LOST[term.dtype]:
        return
    seen = _seen(problem)
    largest = _largest(term if seen is None else term.masked_fill(~seen, 0.0))
    if LOST[term.dtype] < largest < math.inf:
        warnings.warn(
            f"smooth: keys lie {math.sqrt(2 * largest):.2g} bandwidths away, too far for products in "
            f"{term.dtype} to tell near ones from each other; float64 does, or method='reference', which "
            "subtracts first",
            stacklevel=2,
        )

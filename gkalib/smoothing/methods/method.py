"""What a method is: one way to compute a smoothing problem, which says what it cannot do."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from gkalib.masks import KeyPadding, Mask
from gkalib.normalizers import RowSum, Unnormalized
from gkalib.smoothing.problem import Problem


class Method(ABC):
    """A way to compute a problem's output; ``exact`` says whether it is the definition up to rounding."""

    name: str
    exact: bool = True

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

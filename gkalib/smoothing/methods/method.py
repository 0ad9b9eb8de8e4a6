"""What a method is: one way to compute a smoothing problem, which says what it cannot do."""

from abc import ABC, abstractmethod

from torch import Tensor

from gkalib.smoothing.problem import Problem


class Method(ABC):
    """A way to compute a problem's output; ``exact`` says whether it is the definition up to rounding."""

    name: str
    exact: bool = True

    @abstractmethod
    def refuses(self, problem: Problem) -> str | None:
        """Why this method cannot compute the problem, or None if it can."""

    @abstractmethod
    def __call__(self, problem: Problem) -> Tensor:
        """The output ``[b h n e]``, in the query's dtype."""


def no_form(problem: Problem) -> str | None:
    """The reason of a method that needs the kernel's form, where there is none."""
    if problem.form is not None:
        return None
    name = type(problem.kernel).__name__
    return f"{name} has no form scale · q·k − norm · (|q|² + |k|²)/2 + b(k) + t(lag)"


def no_pairs(problem: Problem) -> str | None:
    """The reason of a method that forms no scores, where there is a bias to add to them."""
    return None if problem.bias is None else "it forms no score of each pair, to which a bias could be added"

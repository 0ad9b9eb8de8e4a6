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

"""A feature kernel read token by token: sums of a fixed size stand in for all earlier keys and values."""

import torch
from torch import Tensor

from gkalib.masks import KeyPadding, parts
from gkalib.smoothing.methods.linear import Linear, feature_sums
from gkalib.smoothing.methods.method import Method
from gkalib.smoothing.problem import Problem


class Recurrent(Method):
    r"""The sums over all keys read so far, which is all that a feature kernel needs of them.

    $$S_i = S_{i-1} + \varphi(k_i)\, [v_i^\top, 1], \qquad
    [a_i^\top, b_i] = \varphi(q_i)^\top S_i, \qquad \mathrm{out}_i = a_i / (b_i + \varepsilon)$$

    An object is one sequence, or one batch of them: each call reads the next tokens, one or many, and adds
    their keys. It stands as a method in ``smooth`` and as a cache in a layer; its size is r (e + 1) numbers
    a head, however many tokens it has read. Without a causal mask the new queries see all new keys.

    Raises:
        ValueError: in use, if the problem has no feature map, its mask is more than ``Causal``, or it does
            not continue what was read before.

    References:
        Katharopoulos et al., Transformers are RNNs, 2020, equations 18 to 20. Chapter 11 teaches it.
    """

    name = "recurrent"

    def __init__(self):
        self.filled = 0
        self.sums: Tensor | None = None

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The new tokens as they are, and their indices: what a layer asks of a cache."""
        stop = self.filled + key.shape[2]
        return key, value, torch.arange(self.filled, stop, device=key.device)

    def refuses(self, problem: Problem) -> str | None:
        reason = Linear().refuses(problem)
        if reason:
            return reason
        if any(isinstance(part, KeyPadding) for part in parts(problem.mask)):
            return "a sum forgets which key was which, so KeyPadding cannot be applied to earlier ones"
        features = problem.kernel.features()
        assert features is not None  # else refused above
        if not features.one_by_one:
            return f"a key's features in {type(problem.kernel).__name__} depend on the other keys"
        if self.sums is not None:
            batch, heads, _, width = self.sums.shape
            held, given = (batch, heads, width - 1), (*problem.value.shape[:2], problem.value.shape[-1])
            if held != given:
                return f"it has read b h e = {_spaced(held)} and cannot go on with {_spaced(given)}"
        return None

    def __call__(self, problem: Problem) -> Tensor:
        out, self.sums = feature_sums(problem, self.sums)
        self.filled += problem.sizes[3]
        return out

    def detach(self) -> None:
        """Forget how the sums came about, so that gradients end here."""
        self.sums = None if self.sums is None else self.sums.detach()

    @property
    def numbers(self) -> int:
        """How many numbers are kept: its length in memory, before the size of one number."""
        return 0 if self.sums is None else self.sums.numel()


def _spaced(sizes: tuple[int, ...]) -> str:
    return " ".join(map(str, sizes))

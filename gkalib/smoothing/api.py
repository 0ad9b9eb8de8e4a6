"""The functions that users call, and the choice of a method."""

import logging
from dataclasses import dataclass

import torch
from torch import Tensor

from gkalib.kernels import Kernel
from gkalib.masks import Mask
from gkalib.normalizers import Normalizer
from gkalib.shapes import Key, Output, Query, Value, Weights
from gkalib.smoothing.fused import Fused
from gkalib.smoothing.methods.dense import Dense, dense_weights
from gkalib.smoothing.methods.flex import Flex
from gkalib.smoothing.methods.linear import Linear
from gkalib.smoothing.methods.method import Method
from gkalib.smoothing.methods.padded import Padded
from gkalib.smoothing.methods.toeplitz import Toeplitz
from gkalib.smoothing.problem import Positions, Problem, pose
from gkalib.smoothing.reference import Reference, reference_weights

METHODS: dict[str, Method] = {
    method.name: method for method in (Fused(), Flex(), Padded(), Linear(), Toeplitz(), Dense(), Reference())
}
WEIGHTS = {"reference": reference_weights, "dense": dense_weights}

_logger = logging.getLogger("gkalib")
_logged: set[tuple[str, str]] = set()


@dataclass(frozen=True)
class Explanation:
    """Which methods can compute a problem, which cannot and why, and which one ``auto`` takes.

    Args:
        choice: the name of the method that ``auto`` takes.
        refusals: for each exact method the reason why it cannot, or None if it can.
    """

    choice: str
    refusals: dict[str, str | None]

    def __str__(self) -> str:
        width = max(map(len, self.refusals))
        lines = [
            f"{name:<{width}}  {'no:  ' + reason if reason else 'yes'}"
            for name, reason in self.refusals.items()
        ]
        return "\n".join([*lines, f"auto takes {self.choice}"])


def smooth(
    query: Query,
    key: Key,
    value: Value,
    kernel: Kernel,
    *,
    mask: Mask | Tensor | None = None,
    normalizer: Normalizer | None = None,
    positions: Positions | None = None,
    method: str | Method = "auto",
) -> Output:
    r"""Smooth values over keys: every attention of this library, and Nadaraya–Watson regression.

    $$\mathrm{out}_i = \sum_j w_{ij} v_j, \qquad
    w_{i\cdot} = \mathrm{normalize}_j(\mathrm{mask}_{ij} \cdot \kappa(q_i, k_j))$$

    Args:
        query: ``[b h n d]``.
        key: ``[b h m d]``, or with fewer heads that divide the query's: each serves a group of query heads.
        value: ``[b h m e]``, grouped like the key.
        kernel: κ.
        mask: which keys a query may see; a boolean tensor is taken pair by pair. None is all.
        normalizer: from scores to weights; None is ``RowSum()``.
        positions: (query positions, key positions), each ``[n]``/``[m]`` or with a batch axis in front. None
            puts the last query on the last key.
        method: ``"auto"``, the name of a method, or a method object. An exact method gives the same result up
            to rounding; one that cannot run raises instead of handing over to another.

    Returns:
        ``[b h n e]``. A row without an allowed key is zero.

    Raises:
        ValueError: if shapes, types, slots or positions do not fit, or the method named cannot compute this.

    Chapters 1 to 5 teach it.
    """
    problem = pose(
        query, key, value, kernel, mask=mask, normalizer=normalizer, positions=positions, name="smooth"
    )
    return solve(problem, method)


def attention_weights(
    query: Query,
    key: Key,
    kernel: Kernel,
    *,
    mask: Mask | Tensor | None = None,
    normalizer: Normalizer | None = None,
    positions: Positions | None = None,
    method: str = "reference",
) -> Weights:
    r"""The weights w_ij that ``smooth`` would give the values.

    $$w_{i\cdot} = \mathrm{normalize}_j(\mathrm{mask}_{ij} \cdot \kappa(q_i, k_j))$$

    Args:
        query, key, kernel, mask, normalizer, positions: as for ``smooth``.
        method: ``"reference"`` or ``"dense"``.

    Returns:
        ``[b h n m]``, in float32 for half-precision inputs.

    Raises:
        ValueError: as ``smooth``, or if the method does not form weights.

    Chapter 4 teaches it.
    """
    problem = pose(
        query,
        key,
        None,
        kernel,
        mask=mask,
        normalizer=normalizer,
        positions=positions,
        name="attention_weights",
    )
    return weights_of(problem, method)


def solve(problem: Problem, method: str | Method = "auto") -> Tensor:
    """The output of a problem already posed, such as an attention layer's; ``smooth`` is ``pose`` and this.

    Args:
        problem: what ``pose`` made.
        method: as for ``smooth``.

    Raises:
        ValueError: if the method named cannot compute it.
    """
    return _method(problem, method)(problem)


def weights_of(problem: Problem, method: str = "reference") -> Tensor:
    """The weights ``[b h n m]`` of a problem already posed; ``attention_weights`` is ``pose`` and this.

    Args:
        problem: what ``pose``, or the ``problem`` of an attention layer, made.
        method: ``"reference"`` or ``"dense"``.

    Raises:
        ValueError: if the method does not form weights.
    """
    if method not in WEIGHTS:
        raise ValueError(
            f"attention_weights: no method {method!r} that forms weights. Known: {', '.join(WEIGHTS)}"
        )
    return WEIGHTS[method](problem)


def explain(
    query: Query,
    key: Key,
    value: Value,
    kernel: Kernel,
    *,
    mask: Mask | Tensor | None = None,
    normalizer: Normalizer | None = None,
    positions: Positions | None = None,
) -> Explanation:
    """Which methods can compute this problem, which cannot and why, and which one ``auto`` takes.

    Args:
        query, key, value, kernel, mask, normalizer, positions: as for ``smooth``.

    Returns:
        An ``Explanation``; print it for a table.

    Raises:
        ValueError: if the problem itself does not fit together.

    Chapter 14 teaches it.
    """
    problem = pose(
        query, key, value, kernel, mask=mask, normalizer=normalizer, positions=positions, name="explain"
    )
    return Explanation(
        _choose(problem).name, {name: method.refuses(problem) for name, method in METHODS.items()}
    )


def _method(problem: Problem, method: str | Method) -> Method:
    """The method asked for, or an error that says why it cannot run and which ones can."""
    if method == "auto":
        chosen = _choose(problem)
        _log_once(problem, chosen)
        return chosen
    if isinstance(method, str):
        if method not in METHODS:
            raise ValueError(f"smooth: no method named {method!r}. Known: auto, {', '.join(METHODS)}")
        method = METHODS[method]
    reason = method.refuses(problem)
    if reason:
        able = [name for name, other in METHODS.items() if other.refuses(problem) is None]
        raise ValueError(f"smooth: {method.name} cannot compute this: {reason}. These can: {', '.join(able)}")
    return method


def _preference(problem: Problem) -> list[str]:
    """The methods to try, fastest first: measured on a CPU, on a GPU not yet.

    ``toeplitz`` is not among them: how far it rounds depends on the numbers in the kernel of the lag.
    """
    if problem.query.device.type == "cuda":
        return ["fused", "linear", "flex", "padded", "dense"]
    return ["linear", "padded", "dense"]


def _choose(problem: Problem) -> Method:
    return next(METHODS[name] for name in _preference(problem) if METHODS[name].refuses(problem) is None)


def _log_once(problem: Problem, method: Method) -> None:
    """Say once per kernel and method what ``auto`` took; silent while a graph is traced."""
    event = (type(problem.kernel).__name__, method.name)
    if not torch.compiler.is_compiling() and event not in _logged:
        _logged.add(event)
        _logger.info("smooth: auto takes %s for %s", method.name, event[0])

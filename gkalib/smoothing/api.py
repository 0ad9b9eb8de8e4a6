"""The functions that users call, and the choice of a method."""

import logging
import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gkalib.kernels import ExpDot, Kernel
from gkalib.normalizers import Normalizer, Unnormalized
from gkalib.shapes import readable
from gkalib.smoothing.axes import Array, problem_of
from gkalib.smoothing.fused import Fused
from gkalib.smoothing.methods.conjugate import Conjugate
from gkalib.smoothing.methods.dense import Dense, dense_weights
from gkalib.smoothing.methods.flex import Flex
from gkalib.smoothing.methods.linear import Linear
from gkalib.smoothing.methods.method import Method
from gkalib.smoothing.methods.padded import Padded
from gkalib.smoothing.methods.toeplitz import Toeplitz
from gkalib.smoothing.problem import ROW_SUM, Positions, Problem, Rule, autocasts
from gkalib.smoothing.reference import Reference, reference_weights

EXP_DOT = ExpDot()
METHODS: dict[str, Method] = {
    method.name: method
    for method in (Fused(), Flex(), Padded(), Linear(), Toeplitz(), Conjugate(), Dense(), Reference())
}
FEW = 16  # keys, below which PyTorch's attention on a CPU answers a query of NaN with zeros
WEIGHTS = {"reference": reference_weights, "dense": dense_weights}

_logger = logging.getLogger("gkalib")
_logged: set[tuple[type, str]] = set()


@dataclass(frozen=True)
class Explanation:
    """Which methods can compute a problem, which cannot and why, and which one ``auto`` takes.

    Args:
        choice: the name of the method that ``auto`` takes.
        refusals: for each exact method the reason why it cannot, or None if it can.
        unproved: for a method that can and that ``auto`` passes over all the same, the reason.
    """

    choice: str
    refusals: dict[str, str | None]
    unproved: dict[str, str]

    def __str__(self) -> str:
        width = max(map(len, self.refusals))
        lines = [
            f"{name:<{width}}  {'no:  ' + reason if reason else 'yes' + self._caveat(name)}"
            for name, reason in self.refusals.items()
        ]
        return "\n".join([*lines, f"auto takes {self.choice}"])

    def _caveat(self, name: str) -> str:
        return f", but only by name: {self.unproved[name]}" if name in self.unproved else ""


def smooth(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    kernel: Kernel = EXP_DOT,
    *,
    mask: Rule | np.ndarray | None = None,
    bias: Tensor | np.ndarray | None = None,
    normalizer: Normalizer = ROW_SUM,
    positions: Positions | tuple[np.ndarray, np.ndarray] | None = None,
    degree: int = 0,
    ridge: float | Array | None = None,
    method: str | Method = "auto",
) -> Array:
    r"""Smooth values over keys: every attention of this library, and Nadaraya–Watson regression.

    $$\mathrm{out}_i = \sum_j w_{ij} v_j, \qquad
    w_{i\cdot} = \mathrm{normalize}_j(\mathrm{mask}_{ij}\, e^{b_{ij}}\, \kappa(q_i, k_j))$$

    ``smooth(q, k, v)`` is softmax attention; ``smooth(x, kernel=Gaussian(2.0))`` smooths one tensor over
    itself.

    Args:
        query: ``[b h n d]``; without a batch ``[h n d]``, without heads ``[n d]``, in one dimension ``[n]``.
            A tensor or a NumPy array; whole numbers are taken as floating point.
        key: likewise ``[b h m d]``, or with fewer heads that divide the query's: each serves a group of query
            heads. None is the query.
        value: likewise ``[b h m e]``, grouped like the key; or ``[m]`` or ``[m e]``, one for every head and
            sequence. None is the key.
        kernel: κ.
        mask: which keys a query may see: a mask, a boolean tensor taken pair by pair, or a function
            ``(b, h, q, k) -> bool`` of whole numbers, as FlexAttention has it. None is all.
        bias: added to log κ; broadcasts to ``[b h n m]``, −∞ hides a key.
        normalizer: from scores to weights.
        positions: (query positions, key positions), each ``[n]``/``[m]`` or with a batch axis in front. None
            puts the last query on the last key.
        degree: 0 fits a constant at every query, which is the sum above; 1 a line, with weights ``RowSum()``:
            the answer is b of $\min_{b, A} \sum_j w_{ij} \|v_j - b - A (k_j - q_i)\|^2 + \lambda \|A\|^2$.
        ridge: λ, a number from 0, or a positive tensor, 0-d or one value a head ``[h]``; None is 0. With it
            a query may see fewer keys than it has dimensions; where it grows the line becomes the constant.
        method: ``"auto"``, the name of a method, or a method object. An exact method gives the same result up
            to rounding; one that cannot run raises instead of handing over to another.

    Returns:
        ``[b h n e]``, or with the axes of the query that were given, and with e where the value has it; an
        array for arrays. A row without an allowed key is zero.

    Raises:
        ValueError: if shapes, types, slots or positions do not fit, or the method named cannot compute this.

    References:
        With ``degree=1`` Cleveland, 1979; Zuo et al., Local Linear Attention, 2025, whose penalty stands
        beside weights that are not normalized (see ``LocalLine``). Chapters 1 to 5 teach it.
    """
    slots = (kernel, mask, bias, normalizer, positions)
    problem, back = problem_of("smooth", query, key, value, *slots, degree=degree, ridge=ridge)
    return back(compute_output(problem, method))


def attention_weights(
    query: Array,
    key: Array | None = None,
    kernel: Kernel = EXP_DOT,
    *,
    mask: Rule | np.ndarray | None = None,
    bias: Tensor | np.ndarray | None = None,
    normalizer: Normalizer = ROW_SUM,
    positions: Positions | tuple[np.ndarray, np.ndarray] | None = None,
    degree: int = 0,
    ridge: float | Array | None = None,
    method: str = "reference",
) -> Array:
    r"""The weights w_ij that ``smooth`` would give the values.

    $$w_{i\cdot} = \mathrm{normalize}_j(\mathrm{mask}_{ij}\, e^{b_{ij}}\, \kappa(q_i, k_j))$$

    Args:
        query, key, kernel, mask, bias, normalizer, positions, degree, ridge: as for ``smooth``.
        method: ``"reference"`` or ``"dense"``.

    Returns:
        ``[b h n m]``, ``[h n m]`` or ``[n m]``, in float32 for half-precision inputs. With ``degree=1`` they
        may be negative.

    Raises:
        ValueError: as ``smooth``, or if the method does not form weights.

    Chapter 4 teaches it.
    """
    slots = (kernel, mask, bias, normalizer, positions)
    problem, back = problem_of("attention_weights", query, key, None, *slots, degree=degree, ridge=ridge)
    return back(compute_weights(problem, method), of_values=False)


def compute_output(problem: Problem, method: str | Method = "auto") -> Tensor:
    """The output of a problem, such as an attention layer's; ``smooth`` checks its arguments and calls this.

    Args:
        problem: what ``make_problem``, or the ``problem`` of an attention layer, returned.
        method: as for ``smooth``.
    """
    chosen = _method(problem, method)
    if autocasts(problem.query.device):
        with torch.autocast(problem.query.device.type, enabled=False):
            return _computed(chosen, problem)
    return _computed(chosen, problem)


def compute_weights(problem: Problem, method: str = "reference") -> Tensor:
    """The weights ``[b h n m]`` of a problem; ``attention_weights`` checks its arguments and calls this.

    Args:
        problem: as for ``compute_output``.
        method: ``"reference"`` or ``"dense"``.
    """
    if method not in WEIGHTS:
        raise ValueError(
            f"attention_weights: no method {method!r} that forms weights. Known: {', '.join(WEIGHTS)}"
        )
    if autocasts(problem.query.device):
        with torch.autocast(problem.query.device.type, enabled=False):
            return WEIGHTS[method](problem)
    return WEIGHTS[method](problem)


def explain(
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    kernel: Kernel = EXP_DOT,
    *,
    mask: Rule | np.ndarray | None = None,
    bias: Tensor | np.ndarray | None = None,
    normalizer: Normalizer = ROW_SUM,
    positions: Positions | tuple[np.ndarray, np.ndarray] | None = None,
    degree: int = 0,
    ridge: float | Array | None = None,
) -> Explanation:
    """Which methods can compute this problem, which cannot and why, and which one ``auto`` takes.

    Args:
        query, key, value, kernel, mask, bias, normalizer, positions, degree, ridge: as for ``smooth``.

    Returns:
        An ``Explanation``; print it for a table.

    Raises:
        ValueError: if the problem itself does not fit together.

    Chapter 13 uses it.
    """
    slots = (kernel, mask, bias, normalizer, positions)
    problem, _ = problem_of("explain", query, key, value, *slots, degree=degree, ridge=ridge)
    refusals = {name: method.refuses(problem) for name, method in METHODS.items()}
    able = [name for name, refusal in refusals.items() if refusal is None]
    unproved = {name: reason for name in able if (reason := METHODS[name].unproved(problem))}
    return Explanation(_choose(problem).name, refusals, unproved)


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


# What `auto` tries, fastest first: measured on a CPU, on a GPU not yet. `toeplitz` is not among them: how far
# it rounds depends on the numbers in the kernel of the lag.
ON_CPU = [METHODS[name] for name in ("linear", "padded", "dense")]
ON_GPU = [METHODS[name] for name in ("fused", "linear", "flex", "padded", "dense")]


def _choose(problem: Problem) -> Method:
    methods = ON_GPU if problem.query.device.type == "cuda" else ON_CPU
    return next(method for method in methods if not (method.refuses(problem) or method.unproved(problem)))


def _log_once(problem: Problem, method: Method) -> None:
    """Say once per kernel and method what ``auto`` took; silent while a graph is traced."""
    event = (type(problem.kernel), method.name)
    if not torch.compiler.is_compiling() and event not in _logged:
        _logged.add(event)
        _logger.info("smooth: auto takes %s for %s", method.name, event[0].__name__)


def _computed(method: Method, problem: Problem) -> Tensor:
    """A method's output, NaN in rows whose query has a NaN or that see one, and in no others.

    PyTorch's attention adds −∞ to a hidden NaN, sums over keys multiply it by zero, and so do gradients.
    Where numbers are ``readable`` such a problem is computed once more, with zeros in the place of vectors
    that are not finite. An output without numbers is ``dense``'s: some loops and transforms stop there, one
    with the process.
    """
    if not problem.grouped_value.numel() and not method.remembers:
        method = METHODS["dense"]
    out = method(problem)
    if not readable(out) or method.remembers or not any(map(_has_nan, _suspects(problem, out))):
        return out
    of_query, of_key = _are_finite(problem.query), _are_finite(problem.key) & _are_finite(problem.value)
    if of_query.all() and of_key.all():
        return out
    finite, sees = method(_finite(problem)), _sees(problem, ~of_key)
    change = (out - finite).detach().masked_fill(of_query & ~sees, 0.0)
    return finite + change.masked_fill(problem.query.isnan().any(-1, keepdim=True), torch.nan)


def _sees(problem: Problem, marked: Tensor) -> Tensor:
    """Which queries see a key that is marked, ``[b h m 1]``: by the sum of the marks over all keys alike."""
    bias = problem.bias
    if bias is not None:
        bias = torch.zeros_like(bias).masked_fill(bias.isneginf(), -torch.inf)
    marks = marked.to(problem.query.dtype)
    query, slots = (
        marks.new_zeros(*problem.query.shape[:3], 1),
        {"kernel": EXP_DOT, "normalizer": Unnormalized()},
    )
    alike = {"query": query, "grouped_key": torch.zeros_like(marks), "grouped_value": marks, "bias": bias}
    return METHODS["dense"](replace(problem, **alike, **slots, one_tensor=False)) > 0


def _suspects(problem: Problem, out: Tensor) -> tuple[Tensor, ...]:
    """The tensors in which a NaN would show: as few as tell, since a look takes a tiny problem's time."""
    hides, few = problem.mask is not None or problem.bias is not None, problem.grouped_key.shape[2] < FEW
    if problem.one_tensor:
        return (problem.query,) if hides or few else ()
    seen = (problem.grouped_key, problem.grouped_value) if out.requires_grad else (out,)
    return (*(seen if hides else ()), *((problem.query,) if few else ()))


def _has_nan(tensor: Tensor) -> bool:
    return math.isnan((tensor.detach() if tensor.requires_grad else tensor).sum().item())


def _are_finite(vectors: Tensor) -> Tensor:
    return vectors.isfinite().all(-1, keepdim=True)


def _finite(problem: Problem) -> Problem:
    """The problem with zeros in the place of vectors that are not finite; what was one tensor stays one."""
    given = problem.query, problem.grouped_key, problem.grouped_value
    finite = {id(each): each.where(_are_finite(each), 0.0) for each in given}
    query, key, value = (finite[id(each)] for each in given)
    return replace(problem, query=query, grouped_key=key, grouped_value=value)

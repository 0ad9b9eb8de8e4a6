"""A learned metric: a linear map of the places before a Gaussian kernel, chosen by leaving each reading out.

Every function takes several data sets at once: places ``[s 1 n d]``, readings ``[s 1 n e]``, and a map for
each of them, a matrix ``[s r d]`` or the logarithms of a diagonal, ``[s d]`` or ``[s 1]``.
"""

import torch
from torch import Tensor

from gkalib.kernels import Gaussian
from gkalib.smoothing import make_problem, smooth
from gkalib.smoothing.methods.method import centered


def predict(x: Tensor, y: Tensor, queries: Tensor, A: Tensor, *, mask: Tensor | None = None) -> Tensor:
    r"""The local averages at the queries in the metric of A.

    $$\hat m(x) = \sum_j w_j(x)\, y_j, \qquad w_j(x) \propto e^{-\|A(x - x_j)\|^2/2}$$

    Args:
        x: places, ``[s 1 n d]``.
        y: readings, ``[s 1 n e]``.
        queries: where to predict, ``[s 1 q d]``.
        A: the maps, ``[s r d]``, or the logarithms of diagonals, ``[s d]`` or ``[s 1]``.
        mask: which readings each query may see, as for ``smooth``.

    Returns:
        ``[s 1 q e]``.

    Raises:
        ValueError: if A has another number of data sets or of features than x.

    References:
        Weinberger and Tesauro, Metric learning for kernel regression, 2007. Taught in: chapter 2.
    """
    # Far from the origin a map would round more than the distances are.
    problem = make_problem(queries, x, y, Gaussian(1.0), mask=mask, name="metric")
    queries, x, _ = centered(problem, queries, x)
    return smooth(_mapped(queries, A), _mapped(x, A), y, Gaussian(1.0), mask=mask)


def leave_one_out(x: Tensor, y: Tensor, A: Tensor) -> Tensor:
    """The prediction at each place from all other readings of its data set, ``[s 1 n e]``.

    Raises:
        ValueError: as ``predict``.
    """
    return predict(x, y, x, A, mask=~torch.eye(x.shape[2], dtype=torch.bool, device=x.device))


def learn(x: Tensor, y: Tensor, A: Tensor, *, steps: int = 20, rate: float = 0.3) -> Tensor:
    """The maps after some steps of Adam on the mean squared errors of ``leave_one_out``.

    Args:
        x: places, ``[s 1 n d]``.
        y: readings, ``[s 1 n e]``.
        A: where to start; it is left as it is.
        steps: how many.
        rate: the learning rate.

    Raises:
        ValueError: as ``predict``.
    """
    A = A.clone().requires_grad_()
    optimizer = torch.optim.Adam([A], lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        (leave_one_out(x, y, A) - y).square().mean(dim=(1, 2, 3)).sum().backward()
        optimizer.step()
    return A.detach()


def linear_direction(x: Tensor, y: Tensor, bandwidth: float) -> Tensor:
    """Maps of one row: the direction of a linear regression, with this bandwidth along it, ``[s 1 d]``.

    Args:
        x: places, ``[s 1 n d]``.
        y: readings, ``[s 1 n 1]``.
        bandwidth: positive.

    Raises:
        ValueError: if there is more than one reading a place.
    """
    if y.shape[-1] != 1:
        raise ValueError(f"linear_direction: one reading a place, y {list(y.shape)} has {y.shape[-1]}")
    centered = x[:, 0] - x[:, 0].mean(1, keepdim=True)
    row = torch.linalg.lstsq(centered, y[:, 0]).solution.mT
    return row / (bandwidth * row.norm(dim=2, keepdim=True))


def _mapped(x: Tensor, A: Tensor) -> Tensor:
    """A x of every data set: ``[s 1 n d]`` to ``[s 1 n r]``."""
    widths = {2: (1, x.shape[-1]), 3: (x.shape[-1],)}.get(A.ndim, ())
    if len(A) != len(x) or A.shape[-1] not in widths:
        raise ValueError(
            f"metric: A is [s r d], [s d] or [s 1]; {list(A.shape)} does not fit places {list(x.shape)}"
        )
    return x * A.exp()[:, None, None] if A.ndim == 2 else x @ A[:, None].mT

"""How sharp a minimum is: the Hessian's extreme eigenvalues, as they stand and relative to the weights."""

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gkalib.analysis.landscape import Loss
from gkalib.layers.base import Smoother
from gkalib.smoothing import Dense

Product = Callable[[Tensor], Tensor]
WHOLE = Dense(memory=2**62)  # in one block: blocks would be computed again within a derivative


class Curvature(NamedTuple):
    """The extreme eigenvalues of a symmetric matrix A, their residual |A v − λ v|, and the products taken."""

    largest: float
    smallest: float
    residual: float
    products: int


def sharpness(
    model: nn.Module, loss: Loss, *, steps: int = 100, tolerance: float = 1e-3, seed: int = 0
) -> Curvature:
    r"""The extreme eigenvalues of the loss's Hessian in the weights.

    $$\lambda_{\max}(H), \qquad H = \nabla^2_\theta L$$

    It is no property of the function that the model computes: W_V → α W_V with W_O → W_O / α changes it as
    much as one likes (Dinh et al., 2017). H is never formed; the Lanczos process needs its products with
    vectors, for which attention is computed by matrix products: fused programs differentiate only once.

    Args:
        model: whose parameters with gradients are meant.
        loss: of the model, the same whenever it is called.
        steps: the most products.
        tolerance: stop at residuals below this share of the largest magnitude.
        seed: of the first vector.

    Raises:
        ValueError: if the loss is not finite, depends on no parameter or cannot be differentiated twice.

    Taught in: chapter 26.
    """
    options = {"steps": steps, "tolerance": tolerance, "seed": seed}
    return _curvature("sharpness", model, loss, torch.ones_like, **options)


def relative_sharpness(
    model: nn.Module, loss: Loss, *, steps: int = 100, tolerance: float = 1e-3, seed: int = 0
) -> Curvature:
    r"""The same for changes that are measured in units of each weight's own size.

    $$\lambda_{\max}(T H T), \qquad T = \operatorname{diag} |\theta|$$

    Twice the rise of the loss, per ρ², at the worst of the changes ε with |T⁻¹ ε| ≤ ρ, where the gradient is
    small. A rescaling of weights by numbers above zero that leaves the function alone leaves it too. A weight
    of exactly zero counts as one that cannot change.

    Args:
        model, loss, steps, tolerance, seed: as for ``sharpness``.

    Raises:
        ValueError: as ``sharpness``.

    References:
        Kwon et al., ASAM: adaptive sharpness-aware minimization, 2021, with η = 0. Taught in: chapter 26.
    """
    options = {"steps": steps, "tolerance": tolerance, "seed": seed}
    return _curvature("relative_sharpness", model, loss, torch.abs, **options)


def _curvature(
    name: str, model: nn.Module, loss: Loss, unit: Product, *, steps: int, tolerance: float, seed: int
) -> Curvature:
    if steps < 1:
        raise ValueError(f"{name}: steps must be at least 1, not {steps}")
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with _differentiable(model), torch.enable_grad():
        value = loss(model)
        if not bool(value.isfinite()):
            raise ValueError(f"{name}: the loss is {value.item()}, which has no curvature")
        if not value.requires_grad:
            raise ValueError(f"{name}: the loss depends on no parameter of the model that has a gradient")
        gradients = torch.autograd.grad(value, parameters, create_graph=True, materialize_grads=True)
        gradient = torch.cat([part.flatten() for part in gradients])
        size = unit(torch.cat([parameter.detach().flatten() for parameter in parameters]))

        def product(vector: Tensor) -> Tensor:
            if not gradient.requires_grad:  # the loss is linear
                return torch.zeros_like(vector)
            try:
                parts = torch.autograd.grad(
                    gradient, parameters, size * vector, retain_graph=True, materialize_grads=True
                )
            except NotImplementedError as error:
                raise ValueError(f"{name}: the loss cannot be differentiated twice: {error}") from None
            return size * torch.cat([part.flatten() for part in parts])

        start = torch.randn(size.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return lanczos(product, start.to(size), steps=steps, tolerance=tolerance)


@contextlib.contextmanager
def _differentiable(model: nn.Module) -> Iterator[None]:
    """Attention by matrix products for a while, where the choice was among exact methods."""
    layers = [m for m in model.modules() if isinstance(m, Smoother) and isinstance(m.method, str)]
    before = [layer.method for layer in layers]
    try:
        for layer in layers:
            layer.method = WHOLE
        yield
    finally:
        for layer, method in zip(layers, before, strict=True):
            layer.method = method


def lanczos(product: Product, start: Tensor, *, steps: int, tolerance: float) -> Curvature:
    """The extreme eigenvalues of a symmetric matrix from its products with vectors.

    The basis is kept and every new vector made orthogonal to all of it, twice: without, rounding would bring
    back what has converged.

    Args:
        product: A applied to a vector.
        start: ``[size]``, the first vector, which must not be zero.
        steps, tolerance: as for ``sharpness``.

    References:
        Golub and Van Loan, Matrix computations, section 10.3. Taught in: chapter 26.
    """
    steps = min(steps, len(start))
    basis = torch.empty(steps, len(start), dtype=start.dtype, device=start.device)
    projected = torch.zeros(steps, steps, dtype=torch.float64)
    vector = start / start.norm()
    values, residual, done = torch.zeros(1), 0.0, 0
    for done in range(1, steps + 1):
        basis[done - 1] = vector
        vector = product(vector)
        projected[done - 1, done - 1] = float(vector @ basis[done - 1])
        for _ in range(2):
            vector = vector - basis[:done].T @ (basis[:done] @ vector)
        length = float(vector.norm())
        values, vectors = torch.linalg.eigh(projected[:done, :done])
        residual = length * float(vectors[-1, [0, -1]].abs().max())
        if residual <= tolerance * float(values.abs().max()) or done == steps:
            break
        projected[done, done - 1] = projected[done - 1, done] = length
        vector = vector / length
    return Curvature(float(values[-1]), float(values[0]), residual, done)

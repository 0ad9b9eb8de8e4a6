"""Eigenvalues agree with a dense Hessian, and only one of the two sharpnesses survives a rescaling."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev
from torch.nn.functional import cross_entropy

from chapters.experiments.sharpness import lanczos, relative_sharpness, sharpness
from gkalib.kernels import Laplace
from gkalib.layers import Smoother, attention
from gkalib.models import ViTConfig, vit

SIZES = ViTConfig(
    image_size=4, patch_size=2, channels=1, dim=4, depth=1, num_heads=2, mlp_ratio=1.0, num_classes=3
)
LOOSE = 1e-6  # of an iteration that is stopped at this residual; the eigenvalue's error is its square


def model_of(name: str) -> nn.Module:
    """A small transformer with weights that are not near zero."""
    options = {"rank": 3} if name == "karat" else {}
    model = vit(SIZES, attention=attention(name, **options)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 2)
    return model


def loss_of() -> Callable[[nn.Module], Tensor]:
    """The cross-entropy of six made-up pictures."""
    images, labels = torch.randn(6, 1, 4, 4).double(), torch.arange(6) % 3
    return lambda model: cross_entropy(model(images), labels)


def dense(model: nn.Module, loss: Callable[[nn.Module], Tensor]) -> tuple[Tensor, Tensor]:
    """The whole Hessian over all parameters in a row, and the parameters."""
    names, shapes = zip(*((name, one.shape) for name, one in model.named_parameters()), strict=True)
    start = torch.cat([one.detach().flatten() for one in model.parameters()])

    class Called(nn.Module):
        """The model with these parameters, called as the model is."""

        def __init__(self, row: Tensor):
            super().__init__()
            parts = row.split([shape.numel() for shape in shapes])
            self.row = {
                name: part.reshape(shape) for name, part, shape in zip(names, parts, shapes, strict=True)
            }

        def forward(self, *inputs: Tensor) -> Tensor:
            return functional_call(model, self.row, inputs)

    for module in model.modules():
        if hasattr(module, "method"):
            module.method = "dense"
    return jacrev(grad(lambda row: loss(Called(row))))(start), start


@pytest.mark.parametrize("name", ["softmax", "karat", "gka", "qk_norm"])
def test_the_extreme_eigenvalues_are_those_of_the_dense_hessian(name: str):
    model, loss = model_of(name), loss_of()
    made = [one(model, loss, steps=400, tolerance=LOOSE) for one in (sharpness, relative_sharpness)]
    matrix, start = dense(model, loss)
    for found, exact in zip(made, (matrix, start[:, None] * matrix * start), strict=True):
        values = torch.linalg.eigvalsh(exact)
        assert found.largest == pytest.approx(values[-1].item(), rel=LOOSE)
        assert found.smallest == pytest.approx(values[0].item(), rel=LOOSE, abs=LOOSE * found.largest)
        assert found.residual <= LOOSE * max(found.largest, -found.smallest)


def test_one_sharpness_survives_rescaling_and_one_does_not():
    """W_V → α W_V with W_O → W_O / α, biases with their matrices, is the same function."""
    model, loss = model_of("softmax"), loss_of()
    plain, relative = (
        sharpness(model, loss, tolerance=LOOSE),
        relative_sharpness(model, loss, tolerance=LOOSE),
    )
    before, alpha = loss(model), 8.0
    layer = model.get_submodule("blocks.0.attn")
    with torch.no_grad():
        layer.value.weight.mul_(alpha)  # pyright: ignore
        layer.value.bias.mul_(alpha)  # pyright: ignore
        layer.proj.weight.div_(alpha)  # pyright: ignore
    assert loss(model).item() == pytest.approx(before.item(), rel=1e-12)
    after, relative_after = (
        sharpness(model, loss, tolerance=LOOSE),
        relative_sharpness(model, loss, tolerance=LOOSE),
    )
    assert relative_after.largest == pytest.approx(relative.largest, rel=1e-5)
    assert relative_after.smallest == pytest.approx(relative.smallest, rel=1e-5)
    assert after.largest > 3 * plain.largest


def test_the_model_is_left_as_it_was():
    model, loss = model_of("softmax"), loss_of()
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    sharpness(model, loss, steps=3)
    assert all(torch.equal(before[name], one) for name, one in model.named_parameters())
    assert all(one.grad is None for one in model.parameters())
    assert model.get_submodule("blocks.0.attn").method == "auto"


def test_lanczos_ends_where_the_space_does():
    """On a matrix with three different eigenvalues it needs three products, and 50 on one with 50."""
    basis = torch.linalg.qr(torch.randn(50, 50, dtype=torch.float64))[0]
    values = torch.tensor([-3.0, 1.0, 2.0], dtype=torch.float64).repeat(17)[:50]
    start = torch.randn(50, dtype=torch.float64)
    few = lanczos(lambda v: basis @ (values * (basis.T @ v)), start, steps=50, tolerance=1e-9)
    assert few.products == 3
    assert (few.largest, few.smallest) == (pytest.approx(2.0), pytest.approx(-3.0))
    spread = torch.linspace(-1, 5, 50, dtype=torch.float64)
    many = lanczos(lambda v: spread * v, start, steps=200, tolerance=0.0)
    assert many.products <= 50
    assert (many.largest, many.smallest) == (pytest.approx(5.0), pytest.approx(-1.0))


def test_a_distance_that_differentiates_once_is_said():
    """Laplace's kernel goes through a function of torch that has no second derivative."""
    images = torch.randn(6, 1, 4, 4).double()
    model = model_of("vlt")
    for module in model.modules():
        if isinstance(module, Smoother):
            module.kernel = Laplace(1.0)
    with pytest.raises(ValueError, match=r"^sharpness: the loss cannot be differentiated twice: .*cdist"):
        sharpness(model, lambda model: model(images).square().mean())


def test_a_linear_loss_has_no_curvature():
    model = nn.Linear(3, 1)
    found = sharpness(model, lambda one: one(torch.ones(1, 3)).sum())
    assert (found.largest, found.smallest) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda model: model.weight.sum() * float("nan"), "the loss is nan"),
        (lambda model: torch.ones(()), "the loss depends on no parameter"),
    ],
)
def test_what_has_no_curvature_is_refused(loss: Callable, message: str):
    with pytest.raises(ValueError, match=f"^sharpness: {message}"):
        sharpness(nn.Linear(2, 2), loss)
    with pytest.raises(ValueError, match="steps must be at least 1, not 0"):
        sharpness(nn.Linear(2, 2), loss, steps=0)

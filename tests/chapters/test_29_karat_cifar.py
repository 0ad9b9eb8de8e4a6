"""What chapter 29 proves: the space of W, what a backward pass keeps, ranks and sizes that are built in."""

import torch
from torch import Tensor

from gkalib.analysis.spectrum import effective_rank, singular_values
from gkalib.normalizers import Fourier, RowOperator
from tests.tolerance import equal, oracle

F64 = torch.float64


def test_no_operator_beats_the_space_of_w():
    """The error of any rows in a space of dimension r is at least the tail of the target's second moments."""
    target = torch.randn(50, 8, dtype=F64).mul(2).softmax(-1)
    values = torch.linalg.eigvalsh(target.mT @ target).flip(-1)
    best = torch.linalg.eigh(target.mT @ target).eigenvectors[:, -3:]
    equal((target - target @ best @ best.mT).square().sum(), values[3:].sum())
    for _ in range(20):
        operator = RowOperator(1, 8, rank=3, dtype=F64)
        weights = operator(torch.randn(1, 1, 50, 8, dtype=F64))[0, 0]
        space = torch.linalg.qr(operator.mix[0]).Q
        equal(weights, weights @ space @ space.mT)
        nearest = target @ space @ space.mT
        assert (target - weights).square().sum() >= (target - nearest).square().sum() >= values[3:].sum()


def test_an_operator_gives_matrices_of_its_rank():
    weights = RowOperator(2, 11, rank=3, dtype=F64)(torch.randn(4, 2, 11, 11, dtype=F64))
    values = singular_values(weights)
    assert (values[..., 2] > 1e-6).all()
    assert (values[..., 3:] < 1e-10).all()


def test_the_size_of_a_spectrum_counts_neighbors():
    weights = (2 * torch.randn(6, 9, 9, dtype=F64)).softmax(-1)
    values = singular_values(weights)
    neighbors = 1 / weights.square().sum(-1)
    oracle(values.square().sum(-1), (1 / neighbors).sum(-1))
    equal(effective_rank(values), effective_rank(5 * values))


def _kept(function, *tensors: Tensor) -> int:
    """How many numbers autograd keeps for the backward pass, each storage once, those given not counted."""
    given = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    kept: dict[int, int] = {}
    alive = []

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        alive.append(tensor)
        if storage.data_ptr() not in given:
            kept[storage.data_ptr()] = storage.nbytes() // tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function(*tensors)
    return sum(kept.values())


def test_values_kept_for_the_backward_pass():
    scores = torch.randn(1, 1, 20, 16, requires_grad=True)
    for grid, rank in ((1, 4), (3, 16)):
        coefficients = torch.randn(1, rank, 16, 2 * grid, requires_grad=True)

        def shared(a: Tensor, c: Tensor, grid: int = grid) -> Tensor:
            return Fourier(grid)(a, c, None)

        def per_unit(a: Tensor, c: Tensor, grid: int = grid, rank: int = rank) -> Tensor:
            angle = a[..., None, :, None].expand(-1, -1, -1, rank, -1, 1) * torch.arange(1, grid + 1)
            cos, sin = c[:, None].chunk(2, dim=-1)
            return (angle.cos() * cos + angle.sin() * sin).sum((-2, -1))

        assert torch.allclose(shared(scores, coefficients), per_unit(scores, coefficients), atol=1e-4)
        table = rank * 16 * 2 * grid
        assert 0 <= _kept(shared, scores, coefficients) - 3 * grid * 20 * 16 <= table + grid
        assert abs(_kept(per_unit, scores, coefficients) - 3 * grid * rank * 20 * 16) <= grid

"""KERPLE's table formed by one program, and its parameters' gradient by another."""

import pytest
import torch
from torch import Tensor

from gkalib.kernels import Kerple
from gkalib.smoothing.fused import op
from gkalib.smoothing.fused.power import BLOCK
from tests.smoothing.fused.test_backward import FLOAT64
from tests.tolerance import agree, oracle


def kerple(dtype: torch.dtype, device: torch.device) -> Kerple:
    """Of two heads, each another."""
    kernel = Kerple(2, power=0.8, rate=0.5).to(device, dtype)
    for parameter in kernel.parameters():
        parameter.data += torch.linspace(0, 1, 2, dtype=dtype, device=device)
    return kernel


def table_and_gradients(table: Tensor, kernel: Kerple) -> list[Tensor]:
    weights = torch.linspace(-1, 1.5, table.numel(), dtype=table.dtype, device=table.device).view_as(table)
    return [table.detach(), *torch.autograd.grad(table, [*kernel.parameters()], weights)]


@FLOAT64
@pytest.mark.parametrize(
    ("queries", "keys"), [(21, 21), (BLOCK.rows + 1, 40), (9, BLOCK.rows), (1, 33), (33, 1)]
)
def test_the_table_and_its_gradient_are_the_formulas(queries: int, keys: int, device: torch.device):
    """And to the bit the same a second time."""
    kernel = kerple(torch.float64, device)
    parameters = [*kernel.parameters()]
    actual, again = (
        table_and_gradients(op.power_table(*parameters, queries, keys), kernel) for _ in range(2)
    )
    exact = table_and_gradients(kernel.table(queries, keys), kernel)
    for fused, same, reference in zip(actual, again, exact, strict=True):
        oracle(fused, reference)
        assert torch.equal(fused, same)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_in_other_types_it_is_as_exact_as_the_formula(dtype: torch.dtype, device: torch.device):
    kernel = kerple(dtype, device)
    fused = table_and_gradients(op.power_table(*kernel.parameters(), 300, 300), kernel)
    plain = table_and_gradients(kernel.table(300, 300), kernel)
    assert fused[0].dtype == torch.float32 and fused[1].dtype == dtype
    wide = kernel.double()
    exact = table_and_gradients(wide.table(300, 300), wide)
    for one, reference, same in zip(fused, exact, plain, strict=True):
        agree(one, reference, same.to(one.dtype))

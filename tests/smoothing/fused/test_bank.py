"""A bank's table formed by one program, and its parameters' gradient by another."""

import pytest
import torch
from torch import Tensor

from gkalib import smooth
from gkalib.kernels import ALiBi, Bank, DecayingPeriodicBank, ExpDot, Gaussian, Kernel
from gkalib.smoothing import make_problem
from gkalib.smoothing.fused import _lag_row, op
from gkalib.smoothing.fused.lag_bias import GRADIENT, TABLE
from gkalib.smoothing.fused.launch import LAUNCHES, collected
from gkalib.smoothing.fused.plans import GRAIN
from tests.smoothing.fused.test_backward import FLOAT64
from tests.smoothing.fused.test_small_kernels import SmallKernels
from tests.tolerance import agree, oracle

# One lag more than a block has, terms that fill a block and one more, one query, one key.
SIZES = [
    (21, 21, 3),
    (TABLE.rows + 1, 40, TABLE.columns + 1),
    (GRADIENT.rows + 1, 9, 5),
    (1, 33, 4),
    (33, 1, 4),
]


def random_bank(terms: int, dtype: torch.dtype, device: torch.device) -> DecayingPeriodicBank:
    """Of two heads, each term another."""
    bank = DecayingPeriodicBank(2, terms, length=8.0, tau=(2.0, 6.0)).to(device, dtype)
    for parameter in bank.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return bank


def table_and_gradients(table: Tensor, bank: DecayingPeriodicBank) -> list[Tensor]:
    weights = torch.linspace(-1, 1, table.numel(), dtype=table.dtype, device=table.device).view_as(table)
    return [table.detach(), *torch.autograd.grad(table, [*bank.bank()], weights)]


@FLOAT64
@pytest.mark.parametrize(("queries", "keys", "terms"), SIZES)
def test_the_table_and_its_gradient_are_the_formulas(
    queries: int, keys: int, terms: int, device: torch.device
):
    """And to the bit the same a second time."""
    bank = random_bank(terms, torch.float64, device)
    actual, again = (
        table_and_gradients(op.bank_table(*bank.bank(), queries, keys, None), bank) for _ in range(2)
    )
    exact = table_and_gradients(bank.table(queries, keys), bank)
    for fused, same, reference in zip(actual, again, exact, strict=True):
        oracle(fused, reference)
        assert torch.equal(fused, same)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_in_other_types_it_is_as_exact_as_the_formula(dtype: torch.dtype, device: torch.device):
    """Sums are float32 at least: a lag above 256 is no number of half precision's shortest type."""
    bank = random_bank(5, dtype, device)
    fused = table_and_gradients(op.bank_table(*bank.bank(), 300, 300, None), bank)
    plain = table_and_gradients(bank.table(300, 300), bank)
    assert fused[0].dtype == torch.float32 and fused[1].dtype == dtype
    wide = bank.double()
    exact = table_and_gradients(wide.table(300, 300), wide)
    for one, reference, same in zip(fused, exact, plain, strict=True):
        agree(one, reference, same)


KERNELS = {
    "content and bank": lambda bank: ExpDot() * bank,
    "bank and content": lambda bank: bank * Gaussian(1.3),
    "bank": lambda bank: bank,
}
QUERIES, KEYS = 19, 25


def programs(kernel: Kernel) -> tuple[list[str], list[str]]:
    """What a forward and a backward pass start."""
    tensors = [torch.randn(1, 2, n, 16).requires_grad_() for n in (QUERIES, KEYS, KEYS)]
    with collected() as started:
        out = smooth(*tensors, kernel, method="fused")
        forward = [launch.name for launch in started]
        torch.autograd.grad(out.sum(), [*tensors, *kernel.parameters()])
    return forward, [launch.name for launch in started][len(forward) :]


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_with_a_bank_starts_its_program(name: str):
    forward, backward = programs(KERNELS[name](DecayingPeriodicBank(2, 3)))
    assert forward.count("bank_table_kernel") == 1 and forward[0] == "bank_table_kernel"
    assert backward.count("bank_gradient_kernel") == 1 and backward[-1] == "bank_gradient_kernel"


@FLOAT64
@pytest.mark.parametrize("keys", [1, GRAIN, GRAIN + 1])
@torch.no_grad()
def test_the_lags_of_one_query(keys: int, device: torch.device):
    """As its cache grows past a number of tokens that one plan serves."""
    kernel = ExpDot(0.3) * random_bank(3, torch.float64, device)
    query, key, value = (
        torch.randn(2, 2, n, 16, dtype=torch.float64, device=device) for n in (1, keys, keys)
    )
    before = LAUNCHES["bank_table_kernel"]
    fused = smooth(query, key, value, kernel, method="fused")
    assert LAUNCHES["bank_table_kernel"] == before + 1
    oracle(fused, smooth(query, key, value, kernel, method="reference"))


@FLOAT64
@pytest.mark.parametrize("batched", [False, True])
@torch.no_grad()
def test_a_window_that_overwrites_its_tokens_asks_for_any_lags(batched: bool, device: torch.device):
    """The token in a place is another at every step; one small kernel takes positions from each other."""
    kernel = ExpDot(0.3) * random_bank(3, torch.float64, device)
    query, key = (torch.randn(2, 2, n, 16, dtype=torch.float64, device=device) for n in (1, 21))
    places = (torch.arange(21, device=device) + 5) % 21 + 40
    positions = torch.tensor([60], device=device), places
    if batched:
        positions = torch.tensor([[60], [63]], device=device), torch.stack([places, places + 2])
    slots = {"positions": positions, "kernel": kernel}
    before = LAUNCHES["bank_table_kernel"]
    fused = smooth(query, key, key, method="fused", **slots)
    assert LAUNCHES["bank_table_kernel"] == before + 1
    oracle(fused, smooth(query, key, key, method="reference", **slots))
    with collected(), SmallKernels() as small:
        _lag_row(make_problem(query, key, key, **slots), kernel.form(16))
    assert small.names == ["sub"]


def test_two_tables_are_added_by_their_formulas():
    """One program forms the table of one bank; a sum of two is formed as any other kernel's of the lag."""
    for kernel in (
        DecayingPeriodicBank(2, 3) * DecayingPeriodicBank(2, 3),
        DecayingPeriodicBank(2) * ALiBi(2),
    ):
        assert kernel.form(16).formed_of is None
        assert all("bank_table_kernel" not in names for names in programs(kernel))


def test_a_table_in_the_place_of_the_parameters(device: torch.device):
    """Who levels a bank's table, to ask what a model loses without it, is heard."""
    bank = DecayingPeriodicBank(2, 3).to(device)
    query, key, value = (torch.randn(1, 2, n, 16, device=device) for n in (QUERIES, KEYS, KEYS))
    bank.lag_table = lambda length: torch.zeros(2, length, device=device)
    before = LAUNCHES["bank_table_kernel"]
    leveled, flat = (
        smooth(query, key, value, kernel, method="fused") for kernel in (ExpDot() * bank, ExpDot())
    )
    assert LAUNCHES["bank_table_kernel"] == before
    torch.testing.assert_close(leveled, flat)


def test_a_bank_is_read_as_it_is_on_its_device():
    """Views of longer tensors too."""
    bank = DecayingPeriodicBank(2, 4).bank()
    exact = op.bank_table(*bank, 9, 9, None)
    apart = Bank(*(torch.stack([one, one], -1)[..., 0] for one in bank))
    assert not apart.alpha.is_contiguous()
    assert torch.equal(op.bank_table(*apart, 9, 9, None), exact)

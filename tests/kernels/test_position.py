"""The kernel of the lag with a number for each lag."""

import pytest
import torch

import gkalib
from gkalib.kernels import DecayingPeriodicBank, Elu, Gaussian, LagTable
from tests.tolerance import equal


def _table(heads: int = 2, length: int = 5) -> LagTable:
    table = LagTable(heads, length)
    torch.nn.init.normal_(table.bias)
    return table.double()


def _points(count: int, batch: int = 1) -> torch.Tensor:
    return torch.randn(batch, 2, count, 3, dtype=torch.float64)


def test_one_number_for_each_signed_lag():
    table = _table()
    assert sum(parameter.numel() for parameter in table.parameters()) == 2 * 9
    assert not LagTable(3, 4).bias.any()
    for query in range(5):
        for key in range(5):
            lag = torch.tensor([[query - key]])
            found = table.log(_points(1), _points(1), lag)[0, :, 0, 0]
            equal(found, table.bias[:, query - key + 4])


def test_lags_beyond_the_table_take_its_ends():
    table = _table()
    lag = torch.tensor([[-100, -4, 4, 100]])
    found = table(_points(1), _points(4), lag)[0, :, 0]
    equal(found, table.bias[:, [0, 0, 8, 8]].exp())


def test_lags_may_differ_within_the_batch():
    table = _table()
    lag = torch.randint(-4, 5, (3, 6, 7))
    together = table.log(_points(6, 3), _points(7, 3), lag)
    for sequence in range(3):
        equal(together[sequence : sequence + 1], table.log(_points(6), _points(7), lag[sequence]))


@pytest.mark.parametrize("kernel", [lambda: _table(), lambda: Gaussian(1.0) * _table()])
def test_the_dense_method_computes_it(kernel):
    query, key, value, kernel = _points(4), _points(6), _points(6), kernel()
    for mask in (None, gkalib.masks.Causal()):
        dense = gkalib.smooth(query, key, value, kernel, mask=mask, method="dense")
        equal(dense, gkalib.smooth(query, key, value, kernel, mask=mask, method="reference"))


def test_a_table_of_a_bank_is_the_bank():
    bank, table = DecayingPeriodicBank(2, 3, sigma=0.5).double(), _table(2, 8)
    table.bias.data = bank.lag_table(8)[:, torch.arange(-7, 8).abs()].detach()
    query, key, lag = _points(8), _points(8), torch.arange(8)[:, None] - torch.arange(8)
    equal(table.log(query, key, lag), bank.log(query, key, lag))


def test_kernels_say_whether_they_read_the_content():
    alone = [_table(), DecayingPeriodicBank(2, 3), _table() * DecayingPeriodicBank(2, 3), _table() + _table()]
    assert not any(kernel.of_content for kernel in alone)
    both = [Elu() * _table(), _table() + Gaussian(1.0)]
    assert all(kernel.of_content and kernel.of_lag for kernel in both)
    assert Gaussian(1.0).of_content and not Gaussian(1.0).of_lag


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LagTable(0, 4), "LagTable: num_heads and length must be at least 1, not 0 and 4"),
        (lambda: LagTable(2, 0), "LagTable: num_heads and length must be at least 1, not 2 and 0"),
        (lambda: _table().log(_points(2), _points(2)), "LagTable: a kernel of the lag needs lag"),
        (
            lambda: _table().log(_points(2), _points(2), torch.zeros(2, 2)),
            "LagTable: positions must be whole numbers, so that lags are, not torch.float32",
        ),
    ],
)
def test_message(call, message):
    with pytest.raises(ValueError, match=message):
        call()

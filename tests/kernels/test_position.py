"""Kernels of the signed lag: each against an independent computation, and all by the dense method."""

import math

import pytest
import torch

import gkalib
from gkalib.kernels import ALiBi, DecayingPeriodicBank, Elu, ExpDot, Gaussian, Kerple, LagTable, T5Buckets
from gkalib.smoothing import METHODS
from tests.tolerance import equal

LAGS = torch.arange(-300, 301)


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


def test_kernels_say_whether_they_read_the_content():
    alone = [_table(), DecayingPeriodicBank(2, 3), _table() * DecayingPeriodicBank(2, 3), _table() + _table()]
    assert not any(kernel.of_content for kernel in alone)
    both = [Elu() * _table(), _table() + Gaussian(1.0)]
    assert all(kernel.of_content and kernel.of_lag for kernel in both)
    assert Gaussian(1.0).of_content and not Gaussian(1.0).of_lag


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LagTable(0, 4), "LagTable: num_heads must be at least 1, not 0"),
        (lambda: LagTable(2, 0), "LagTable: length must be at least 1, not 0"),
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


def _drawn(kernel):
    """The kernel with random parameters, in float64."""
    for parameter in kernel.parameters():
        torch.nn.init.normal_(parameter)
    return kernel.double()


OF_LAG = {
    "table": lambda: _table(),
    "t5": lambda: _drawn(T5Buckets(2, num_buckets=8, max_distance=20)),
    "t5-causal": lambda: _drawn(T5Buckets(2, num_buckets=8, max_distance=20, bidirectional=False)),
    "alibi": lambda: ALiBi(2).double(),
    "kerple": lambda: _drawn(Kerple(2)),
    "bank": lambda: DecayingPeriodicBank(2, 3, sigma=0.5).double(),
}


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "reach"), [(32, 128), (16, 100), (8, 20)])
def test_buckets_are_those_of_transformers(buckets, reach, bidirectional):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5").T5Attention
    ours = T5Buckets(2, num_buckets=buckets, max_distance=reach, bidirectional=bidirectional)
    # T5 counts the other way: key position minus query position
    theirs = t5._relative_position_bucket(
        -LAGS, bidirectional=bidirectional, num_buckets=buckets, max_distance=reach
    )
    # their first half is for keys behind the query, as ours is
    assert torch.equal(ours.bucket(LAGS), theirs)


@pytest.mark.parametrize("heads", [1, 2, 6, 8, 12, 16, 25])
def test_rates_are_those_of_transformers(heads):
    rates = pytest.importorskip("transformers.models.bloom.modeling_bloom").build_alibi_tensor
    slopes = rates(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
    torch.testing.assert_close(ALiBi(heads).slopes, slopes)
    by_lag = ALiBi(heads).at(torch.tensor([-3, 0, 3]))
    torch.testing.assert_close(by_lag, -slopes[:, None] * torch.tensor([3, 0, 3]))


def test_kerple_is_the_papers_formula():
    kernel = _drawn(Kerple(2))
    numbers = zip(kernel.log_power.exp().tolist(), kernel.log_rate.exp().tolist(), strict=True)
    by_hand = [[-power * math.log(1 + rate * abs(lag)) for lag in LAGS.tolist()] for power, rate in numbers]
    equal(kernel.at(LAGS).detach(), torch.tensor(by_hand, dtype=torch.float64))


@pytest.mark.parametrize("name", OF_LAG)
def test_the_form_is_the_table_of_signed_lags(name):
    kernel = OF_LAG[name]()
    for queries, keys in ((1, 1), (1, 7), (7, 1), (5, 8), (8, 5)):
        table = kernel.form(3).lag_table(queries, keys)
        assert table.shape == (2, queries + keys - 1)
        equal(table, kernel.at(torch.arange(1 - queries, keys)))


@pytest.mark.parametrize(("sizes", "mask"), [((6, 6), gkalib.masks.Causal()), ((3, 9), None)])
@pytest.mark.parametrize("name", OF_LAG)
def test_the_dense_method_computes_them_with_their_gradient(name, sizes, mask):
    kernel = ExpDot(1.0) * OF_LAG[name]()
    query, key, value = _points(sizes[0]), _points(sizes[1]), _points(sizes[1])
    leaves = [query.requires_grad_(), *kernel.parameters()]
    exact = gkalib.smooth(query, key, value, kernel, mask=mask, method="reference")
    weight = torch.randn_like(exact)
    wanted = torch.autograd.grad((exact * weight).sum(), leaves)
    out = gkalib.smooth(query, key, value, kernel, mask=mask, method="dense")
    equal(out, exact)
    for have, want in zip(torch.autograd.grad((out * weight).sum(), leaves), wanted, strict=True):
        equal(have, want)
    assert "n × m numbers" in METHODS["padded"].refuses(
        gkalib.smoothing.make_problem(query, key, value, kernel)
    )


def test_positions_given_read_the_same_table():
    positions = torch.tensor([[3, 9, 4], [0, 1, 30]]), torch.tensor([0, 5, 2, 11])
    query, key, value = _points(3, 2), _points(4, 2), _points(4, 2)
    for make in OF_LAG.values():
        kernel = ExpDot() * make()
        slots = {"positions": positions, "kernel": kernel}
        exact = gkalib.smooth(query, key, value, method="reference", **slots)
        equal(gkalib.smooth(query, key, value, method="dense", **slots), exact)


def test_a_gaussian_times_a_kernel_of_the_lag_keeps_its_bandwidth():
    for kernel in (Gaussian(2.0) * ALiBi(2), ALiBi(2) * Gaussian(2.0), _table() * (ALiBi(2) * Gaussian(2.0))):
        form = kernel.form(3)
        assert form.sigma == 2.0 and form.lag_table is not None
    assert (Gaussian(2.0) * ExpDot(1.0)).form(3).sigma is None
    assert (Gaussian(2.0) + ALiBi(2)).form(3) is None

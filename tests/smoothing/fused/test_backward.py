"""The gradients of the fused smoothing of queries, keys and values."""

import pytest
import torch
from torch import Tensor

from gkalib.smoothing.fused.backward import smooth_backward
from gkalib.smoothing.fused.configs import Config, forced
from gkalib.smoothing.fused.launch import LAUNCHES
from gkalib.smoothing.spans import Spans
from tests.smoothing.fused.formula import Inputs, random_inputs, smoothed
from tests.tolerance import agree

WHOLE, CAUSAL, WINDOW = Spans(300, 300), Spans(300, 0), Spans(9, 4)
FORMS = {
    "softmax": {},
    "gaussian": {"norm": True},
    "lags": {"table": True},
    "gaussian sums": {"norm": True, "normalize": False},
    "sums with lags": {"table": True, "normalize": False},
    "everything": {"norm": True, "table": True},
}
NAMES = ("query", "key", "value", "table")


def expected(inputs: Inputs, grad: Tensor) -> tuple[Tensor, ...]:
    """The gradients of query, key, value and table, those that there are, by autograd."""
    wanted = [each for name in NAMES if (each := getattr(inputs, name)) is not None]
    return torch.autograd.grad(smoothed(inputs)[0], wanted, grad)


def fused(inputs: Inputs, grad: Tensor, dtype: torch.dtype = torch.float64) -> tuple:
    """What ``smooth_backward`` returns after a plain forward pass."""
    inputs = inputs.to(dtype)
    out, log_sum = smoothed(inputs)
    arguments = inputs.all()
    given = grad.to(dtype), *arguments[:3], out, log_sum, *arguments[3:]
    return smooth_backward(*given, inputs.table is not None)


def gradients(results: tuple) -> list[Tensor]:
    """The gradients that there are among the results."""
    return [each for each in (*results[:3], results[5]) if each is not None]


def assert_same(inputs: Inputs) -> tuple:
    """Fused gradients are autograd's to 1e-12 of the largest; returns all results."""
    out = smoothed(inputs)[0]
    grad = torch.randn(out.shape, dtype=torch.float64)
    results, exact = fused(inputs, grad), expected(inputs, grad)
    largest = max(each.abs().max() for each in exact)  # with one key, that of queries is 0
    for actual, wanted in zip(gradients(results), exact, strict=True):
        error = (actual - wanted).abs().max() / max(wanted.abs().max(), 1e-3 * largest)
        assert error <= 1e-12, f"relative error {error:.1e}"
    return results


def packed(queries: int, keys: int) -> Spans:
    """Two causal documents, the first with queries that see nothing; and all keys but the last three."""
    at = torch.arange(queries) + keys - queries
    half = keys // 2
    first = torch.stack([torch.where(at < half, 0, half), torch.zeros_like(at)])
    last = torch.stack([at + 1, torch.full_like(at, keys - 3)])
    last[0, :2] = first[0, :2]
    return Spans(queries + keys, queries + keys, first.int(), last.clamp(0, keys).int())


FLOAT64 = pytest.mark.skipif(torch.cuda.is_available(), reason="float64 is the interpreter's oracle")


@FLOAT64
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("spans", [WHOLE, CAUSAL, WINDOW], ids=["whole", "causal", "window"])
def test_gradients_are_autograds(form: str, spans: Spans):
    """Every form under every band."""
    with forced(Config(32, 16)):
        assert_same(random_inputs(40, 40, spans, **FORMS[form]))


@FLOAT64
@pytest.mark.parametrize(("queries", "keys"), [(1, 17), (17, 1), (63, 17), (17, 63), (70, 70)])
def test_lengths(queries: int, keys: int):
    """Ragged lengths, and other numbers of queries than of keys."""
    for spans in (WHOLE, WINDOW):
        assert_same(random_inputs(queries, keys, spans, heads=1, groups=1, table=True))


@FLOAT64
@pytest.mark.parametrize("form", ["everything", "gaussian sums"])
def test_given_intervals(form: str):
    """Packed documents, padded keys and queries that see no key."""
    with forced(Config(16, 32)):
        results = assert_same(random_inputs(24, 40, packed(24, 40), batch=2, **FORMS[form]))
    assert (results[0][0, :, :2] == 0).all()


@FLOAT64
def test_intervals_of_all_sequences():
    """One row of intervals for the whole batch."""
    spans = packed(20, 20)
    assert spans.first is not None and spans.last is not None
    shared = Spans(40, 40, spans.first[:1], spans.last[:1])
    with forced(Config(16, 16)):
        assert_same(random_inputs(20, 20, shared, batch=2, heads=1, groups=1))


@FLOAT64
@pytest.mark.parametrize("form", ["everything", "gaussian sums"])
def test_grouped_heads(form: str):
    """Four query heads read two heads of keys; each has a scale and a norm of its own."""
    with forced(Config(32, 32)):
        assert_same(random_inputs(20, 33, CAUSAL, heads=4, groups=2, **FORMS[form]))


@FLOAT64
@pytest.mark.parametrize(("width", "value_width"), [(20, 33), (64, 16), (7, 7), (72, 16)])
def test_widths(width: int, value_width: int):
    """Odd widths, and values of another width than keys."""
    with forced(Config(32, 32)):
        sizes = {"heads": 1, "groups": 1, "width": width, "value_width": value_width}
        assert_same(random_inputs(33, 33, CAUSAL, norm=True, **sizes))


@FLOAT64
@pytest.mark.parametrize(
    ("config", "spans"),
    [(Config(16, 64), WHOLE), (Config(64, 16), WINDOW), (Config(64, 64), WINDOW)],
    ids=["16 64 whole", "64 16 window", "64 64 window"],
)
def test_block_sizes(config: Config, spans: Spans):
    """Any blocks give the same gradients."""
    with forced(config):
        assert_same(random_inputs(70, 70, spans, heads=1, groups=1, table=True))


@FLOAT64
def test_strided_inputs():
    """Rows with gaps between them, and a gradient that is one number broadcast."""
    inputs = random_inputs(20, 20, CAUSAL)
    wide = torch.randn(1, 20, 3, 2, 16, dtype=torch.float64)
    query, key, value = (wide[:, :, part].transpose(1, 2).requires_grad_() for part in range(3))
    inputs = Inputs(query, key, value, *inputs.all()[3:])
    grad = torch.ones((), dtype=torch.float64).expand(1, 2, 20, 16)
    exact = expected(inputs, grad)
    for actual, wanted in zip(gradients(fused(inputs, grad)), exact, strict=True):
        assert ((actual - wanted).abs().max() / wanted.abs().max()) <= 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_narrow_types(dtype: torch.dtype, device: torch.device):
    """No further from float64 than autograd in the same type."""
    inputs = random_inputs(63, 63, CAUSAL, norm=True, table=True, device=device)
    rounded = inputs.to(dtype).to(torch.float64)
    grad = torch.randn_like(rounded.value).to(dtype)

    def by_autograd(inputs: Inputs) -> tuple[Tensor, ...]:
        for name in NAMES:
            getattr(inputs, name).requires_grad_()
        return expected(inputs, grad.to(inputs.query.dtype))

    exact, same = by_autograd(rounded), by_autograd(inputs.to(dtype))
    for actual, wanted, other in zip(gradients(fused(inputs, grad, dtype)), exact, same, strict=True):
        agree(actual.to(dtype), wanted, other.to(dtype))  # the table's too: δ is formed from a rounded result


@FLOAT64
def test_launches():
    """Two programs, and norms of keys, and of queries where rows are not divided by their sum."""
    for form, squares in (("softmax", 0), ("gaussian", 1), ("gaussian sums", 2)):
        before = LAUNCHES.copy()
        inputs = random_inputs(17, 17, CAUSAL, **FORMS[form])
        fused(inputs, torch.randn_like(inputs.value))
        assert LAUNCHES - before == {
            "smooth_backward_query_kernel": 1,
            "smooth_backward_key_kernel": 1,
            **({"squared_norms_kernel": squares} if squares else {}),
        }

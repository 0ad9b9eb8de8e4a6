"""A Gaussian far from the origin: distances do not know it, so every method has their digits or says not."""

import warnings

import pytest
import torch

import gkalib
from gkalib import kernels, masks
from gkalib.normalizers import TopK
from gkalib.regression import metric
from gkalib.smoothing import FastGauss
from tests.cases import MASKS
from tests.tolerance import agree

METHODS = ["padded", "dense"]  # one of which is what auto takes
SIGMAS = torch.tensor([2.0, 2.5, 3.0, 4.0])
OFFSETS = (0.0, 100.0, 10000.0)
RULES = {
    **MASKS,
    "left padding": lambda b, n, m: (torch.arange(m) >= 3).expand(n, m),
    "heads": lambda b, n, m: (torch.arange(4)[:, None, None] <= torch.arange(m)).expand(4, n, m),
}


def _smoothed(inputs, sigma, method, **slots):
    """Output, and the gradients of query, key, value and σ under a fixed weight."""
    leaves = [*(one.detach().clone().requires_grad_() for one in inputs), sigma.clone().requires_grad_()]
    out = gkalib.smooth(*leaves[:3], kernels.Gaussian(leaves[3]), method=method, **slots)
    weight = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape).sin()
    return out.detach(), *torch.autograd.grad((out * weight.to(out.dtype)).sum(), leaves)


def _compared(inputs, sigma, method, **slots):
    have = _smoothed(inputs, sigma, method, **slots)
    same = _smoothed(inputs, sigma, "reference", **slots)
    exact = _smoothed([one.double() for one in inputs], sigma.double(), "reference", **slots)
    return zip(have, exact, same, strict=True)


def _references(inputs, kernel, **slots):
    """The definition in float64 and in the type given."""
    wide = [one.double() for one in inputs]
    return [gkalib.smooth(*each, kernel=kernel, method="reference", **slots) for each in (wide, inputs)]


def _inputs(offset, keys=20, groups=2, dtype=torch.float32):
    query, key = torch.randn(2, 4, 17, 8), torch.randn(2, groups, keys, 8)
    return [one.to(dtype) for one in (query + offset, key + offset, torch.randn(2, groups, keys, 5))]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("offset", "rule"), [(10.0, "causal"), *((10000.0, rule) for rule in RULES)])
def test_float32_has_the_digits_of_its_reference(offset, rule, method):
    inputs = _inputs(offset)
    slots = {"mask": RULES[rule](2, 17, 20)}
    for have, exact, same in _compared(inputs, SIGMAS, method, **slots):
        agree(have, exact, same)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("offset", OFFSETS)
def test_half_precision_has_the_digits_of_its_reference(offset, dtype, method):
    inputs, kernel = _inputs(offset, dtype=dtype), kernels.Gaussian(SIGMAS)
    out = gkalib.smooth(*inputs, kernel, mask=masks.Causal(), method=method)
    agree(out, *_references(inputs, kernel, mask=masks.Causal()))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("mask", [None, masks.Causal()])
def test_years_under_a_bandwidth_of_a_quarter(mask, method):
    x = (1990 + torch.arange(120) / 12)[None, None, :, None]
    (out, exact, same), *gradients = _compared((x, x, (2 * x).sin()), torch.tensor(0.25), method, mask=mask)
    agree(out, exact, same)
    for have, want, _ in gradients:  # sums of terms up to the square of ten years in bandwidths
        assert (have - want).norm() < 1e-3 * want.norm()


def test_one_tensor_is_smoothed_where_it_was():
    x = torch.randn(1, 2, 17, 8) + 10000
    for kernel in (kernels.Gaussian(2.0), kernels.Gaussian(3.0) * kernels.Gaussian(3.0)):
        agree(gkalib.smooth(x, kernel=kernel), *_references([x], kernel))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rule", ["padding", "left padding", "bias"])
def test_hidden_keys_have_no_part_in_where_the_others_are_compared(rule, method):
    query, key, value = _inputs(1000.0)
    hidden = (torch.arange(20) < 3) if rule != "padding" else torch.arange(20) >= 12
    key[:, :, hidden], value[:, :, hidden] = -1e9, 0.0
    slots = {
        "padding": {"mask": masks.KeyPadding(torch.tensor([12, 12]))},
        "left padding": {"mask": (~hidden).expand(17, 20)},
        "bias": {"bias": torch.zeros(20).masked_fill(hidden, -torch.inf)},
    }[rule]
    for have, exact, same in _compared((query, key, value), SIGMAS, method, **slots):
        agree(have, exact, same)
    key[:, :, hidden] = torch.nan
    if method == "dense" and rule != "bias":  # PyTorch's attention, and a sum, are no number then
        out = gkalib.smooth(query, key, value, kernels.Gaussian(SIGMAS), method=method, **slots)
        assert out.isfinite().all()


def test_decoding_far_from_the_origin_gives_the_rows_of_the_whole():
    query, key, value = _inputs(10000.0, keys=17, groups=4)
    kernel = kernels.Gaussian(SIGMAS)
    for mask in (masks.Causal(), masks.Causal() & masks.Window(5)):
        whole = gkalib.smooth(*(t.double() for t in (query, key, value)), kernel, mask=mask)
        for t in (1, 9, 17):
            given = (query[:, :, t - 1 : t], key[:, :, :t], value[:, :, :t])
            _, same = _references(given, kernel, mask=mask)
            agree(gkalib.smooth(*given, kernel, mask=mask), whole[:, :, t - 1 : t], same)


def test_what_forms_its_weights_or_expands_them_has_the_digits_too():
    query, key, value = inputs = _inputs(10000.0, groups=4)
    kernel, top, fast = kernels.Gaussian(2.0), TopK(3), FastGauss(eps=1e-4)
    agree(gkalib.smooth(*inputs, kernel, normalizer=top), *_references(inputs, kernel, normalizer=top))
    near = gkalib.smooth(query - 10000.0, key - 10000.0, value, kernel, method=fast)
    assert (gkalib.smooth(*inputs, kernel, method=fast) - near).abs().max() < 1e-3


def test_a_learned_metric_has_the_digits():
    x = (1990 + torch.arange(120) / 12)[None, None, :, None]
    y, A = (2 * x).sin(), torch.full((1, 1), 4.0).log()
    exact = metric.leave_one_out(x.double(), y.double(), A.double())
    _, same = _references([x, x, y], kernels.Gaussian(0.25), mask=~torch.eye(120).bool())
    agree(metric.leave_one_out(x, y, A), exact, same)


def test_a_bias_of_the_key_reads_the_key_as_it_is():
    class Voting(kernels.Kernel):
        def log(self, query, key):
            return key[..., 0].sin()[..., None, :].expand(*query.shape[:3], -1)

        def form(self, head_dim):
            return kernels.Form(key_bias=lambda key: key[..., 0].sin())

    inputs = _inputs(10000.0, groups=4)
    kernel = kernels.Gaussian(2.0) * Voting()
    for method in METHODS:
        agree(gkalib.smooth(*inputs, kernel, method=method), *_references(inputs, kernel))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rms", [10.0, 100.0, 1000.0])
def test_squared_lengths_beyond_float16_are_no_overflow(rms, method):
    x = (torch.randn(1, 2, 32, 64) * rms).half()
    value = torch.randn(1, 2, 32, 64).half()
    for sigma in (rms, torch.tensor([rms, 1.5 * rms])):
        for mask in (None, masks.Causal()):
            kernel = kernels.Gaussian(sigma)
            out = gkalib.smooth(x, x, value, kernel, mask=mask, method=method)
            agree(out, *_references([x, x, value], kernel, mask=mask))


@pytest.mark.parametrize("method", METHODS)
def test_a_warning_where_digits_are_lost_all_the_same(method):
    x = torch.linspace(0, 10000, 50)[None, None, :, None]
    with pytest.warns(UserWarning, match="bandwidths away"):
        gkalib.smooth(x, kernel=kernels.Gaussian(0.25), method=method)
    far = torch.randn(1, 2, 9, 8) + 10000
    with pytest.warns(UserWarning, match="bandwidths away"):  # no kernel of the distance alone
        gkalib.smooth(far, kernel=kernels.Gaussian(1.0) * kernels.ExpDot(0.1), method=method)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gkalib.smooth(x.double(), kernel=kernels.Gaussian(0.25), method=method)
        x[..., -1, :] = 1e9  # hidden: nobody compares it
        mask = masks.KeyPadding(torch.tensor([3]))
        gkalib.smooth(x, kernel=kernels.Gaussian(4.0), mask=mask, method=method)


def test_keys_near_the_origin_are_not_moved(monkeypatch):
    moved = []
    monkeypatch.setattr("gkalib.smoothing.methods.method._point", lambda *_: moved.append(1) or 0.0)
    near, far = _inputs(0.0, groups=4), _inputs(100.0, groups=4)
    for method in ("padded", "dense"):
        gkalib.smooth(*near, kernels.Gaussian(3.0), method=method)
        assert not moved
        gkalib.smooth(*far, kernels.ExpDot(), method=method)
        assert not moved
        gkalib.smooth(*far, kernels.Gaussian(3.0), method=method)
        assert moved.pop()


def test_what_has_no_numbers_of_its_own_is_moved():
    inputs, kernel = _inputs(10000.0, groups=4), kernels.Gaussian(2.0)
    smoothed = torch.vmap(lambda *given: gkalib.smooth(*given, kernel, method="dense"))
    agree(smoothed(*(torch.stack([one, one]) for one in inputs))[1], *_references(inputs, kernel))
    assert gkalib.smooth(*(one[:0] for one in inputs), kernel, method="padded").shape == (0, 4, 17, 5)

"""What `auto` takes, what `explain` says, and that memory is what `dense` states."""

import logging
import os
import subprocess
import sys
import textwrap

import pytest
import torch

import gkalib
from gkalib import kernels
from gkalib.normalizers import Dropout, RowSum
from gkalib.smoothing import METHODS, Dense, api, make_problem
from tests.tolerance import equal


def _noting(ran: list, method: type):
    """The method's own call, which also writes its name down."""
    call = method.__call__

    def noted(self, problem):
        ran.append(self.name)
        return call(self, problem)

    return noted


def _qkv(n: int, dtype=torch.float32):
    return [torch.randn(1, 2, n, 8, dtype=dtype) for _ in range(3)]


@pytest.mark.parametrize(
    ("n", "dtype", "kernel", "choice"),
    [
        (512, torch.float32, kernels.Gaussian(1.0), "padded"),
        (17, torch.float64, kernels.ExpDot(), "padded"),
        (17, torch.float32, kernels.Gaussian(1.0) + kernels.Laplace(1.0), "dense"),
        (512, torch.float32, kernels.Laplace(1.0), "dense"),
        (16, torch.float32, kernels.Elu(), "linear"),
    ],
)
def test_auto_takes_what_explain_says_and_logs_it_once(n, dtype, kernel, choice, caplog, monkeypatch):
    monkeypatch.setattr(api, "_logged", set())
    inputs = _qkv(n, dtype)
    explanation = gkalib.explain(*inputs, kernel)
    assert explanation.choice == choice
    assert f"auto takes {choice}" in str(explanation)
    ran = []
    monkeypatch.setattr(type(METHODS[choice]), "__call__", _noting(ran, type(METHODS[choice])))
    with caplog.at_level(logging.INFO, logger="gkalib"):
        for _ in range(2):
            gkalib.smooth(*inputs, kernel)
    assert ran and set(ran) == {choice}
    assert [record.getMessage() for record in caplog.records] == [
        f"smooth: auto takes {choice} for {type(kernel).__name__}"
    ]


def test_three_tensors_are_softmax_attention():
    q, k, v = _qkv(17, torch.float64)
    equal(gkalib.smooth(q, k, v), torch.nn.functional.scaled_dot_product_attention(q, k, v))
    equal(gkalib.smooth(q, k), gkalib.smooth(q, k, k))
    equal(gkalib.attention_weights(q, k) @ v, gkalib.smooth(q, k, v))
    equal(gkalib.attention_weights(q), gkalib.attention_weights(q, q, kernels.ExpDot()))


def test_one_tensor_is_smoothed_over_itself():
    (x,) = _qkv(17, torch.float64)[:1]
    kernel = kernels.Gaussian(2.0)
    equal(gkalib.smooth(x, kernel=kernel), gkalib.smooth(x, x, x, kernel))
    for arguments in ((x,), (x, x), (x, x, x)):
        assert make_problem(arguments[0], arguments[-1], arguments[-1], kernel).one_tensor
    assert gkalib.explain(x, kernel=kernel).choice == "padded"


BIASES = {
    "pairs": lambda n: torch.randn(2, n, n, dtype=torch.float64),
    "keys": lambda n: torch.randn(n, dtype=torch.float64),
    "hidden": lambda n: (
        torch.randn(n, n, dtype=torch.float64).tril().masked_fill(torch.eye(n) > 0, -torch.inf)
    ),
}


@pytest.mark.parametrize(
    ("method", "kernel"),
    [
        ("dense", kernels.Laplace(1.0)),
        (Dense(memory=2000), kernels.ExpDot()),
        ("padded", kernels.Gaussian(1.5)),
        ("padded", kernels.ExpDot()),
    ],
)
@pytest.mark.parametrize("mask", [None, gkalib.masks.Causal(), gkalib.masks.KeyPadding(torch.tensor([9]))])
@pytest.mark.parametrize("name", BIASES)
def test_a_bias_is_added_to_the_score_and_has_a_gradient(name, mask, method, kernel):
    q, k, v = (x.requires_grad_() for x in _qkv(17, torch.float64))
    bias = BIASES[name](17).requires_grad_()
    scores = kernel.log(q, k) + bias
    if mask is not None:
        scores = scores.masked_fill(~make_problem(q, k, v, kernel, mask=mask).allowed(), -torch.inf)
    by_hand = RowSum()(scores) @ v
    out = gkalib.smooth(q, k, v, kernel, bias=bias, mask=mask, method=method)
    equal(out, by_hand)
    weight = torch.randn_like(out)
    wanted = torch.autograd.grad((by_hand * weight).sum(), (q, k, v, bias))
    for have, want in zip(torch.autograd.grad((out * weight).sum(), (q, k, v, bias)), wanted, strict=True):
        equal(have, want)
    with torch.no_grad():
        equal(gkalib.smooth(q, k, v, kernel, bias=bias, mask=mask, method=method), by_hand)


def test_explain_says_which_methods_take_a_bias():
    x = _qkv(8)[0]
    table = gkalib.explain(x, kernel=kernels.Elu(), bias=torch.zeros(8))
    assert "no score of each pair" in table.refusals["linear"] and table.choice == "dense"
    assert "read no bias of each pair" in gkalib.explain(x, bias=torch.zeros(8)).refusals["fused"]


def test_a_gradient_through_what_a_kernel_was_given_is_asked_for():
    x, sigma = _qkv(8)[0], torch.tensor(2.0, requires_grad=True)
    for kernel in (kernels.Laplace(sigma), kernels.Gaussian(1.0) * kernels.ExpDot(sigma)):
        assert make_problem(x, x, x, kernel).needs_grad
        with torch.no_grad():
            assert not make_problem(x, x, x, kernel).needs_grad
    assert not make_problem(x, x, x, kernels.Laplace(2.0)).needs_grad
    assert make_problem(x, x, x, kernels.Laplace(2.0, learn=True)).needs_grad


def test_padded_drops_weights_as_dropout_does():
    x = _qkv(64)[0]
    normalizer = Dropout(RowSum(), 0.5)
    ones = torch.ones_like(x)
    for method in ("padded", "dense"):
        torch.manual_seed(1)
        out = gkalib.smooth(x, x, ones, kernels.Gaussian(9.0), normalizer=normalizer, method=method)
        assert 0.02 < out[..., 0].std() < 0.4 and abs(out.mean() - 1) < 0.1
    for method in ("flex", "linear"):
        kernel = kernels.Elu() if method == "linear" else kernels.Gaussian(1.0)
        with torch.no_grad(), pytest.raises(ValueError, match=r"Dropout\(RowSum\(\), 0.5\)"):
            gkalib.smooth(x, x, ones, kernel, normalizer=normalizer, method=method)
    normalizer.eval()
    assert gkalib.explain(x, kernel=kernels.Elu(), normalizer=normalizer).choice == "linear"


def test_explain_has_a_line_for_every_method():
    explanation = gkalib.explain(*_qkv(16), kernels.Gaussian(1.0))
    assert list(explanation.refusals) == list(METHODS)
    lines = str(explanation).splitlines()
    assert len(lines) == len(METHODS) + 1
    assert lines[3].startswith("linear") and "no:" in lines[3]


def test_inside_a_graph_float64_is_not_left_to_a_gradient_that_the_cpu_has_not(monkeypatch):
    inputs = [x.requires_grad_() for x in _qkv(17, torch.float64)]
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    explanation = gkalib.explain(*inputs, kernels.ExpDot())
    assert explanation.choice == "dense"
    assert explanation.refusals["padded"].startswith("inside torch.compile PyTorch has no gradient of it")
    with torch.no_grad():
        assert gkalib.explain(*inputs, kernels.ExpDot()).choice == "padded"


def test_blocks_hold_to_the_memory_stated():
    problem = make_problem(*_qkv(100), kernels.Gaussian(1.0))
    assert Dense(memory=2 * 100 * 4 * 7).block(problem) == 7
    assert Dense(memory=1).block(problem) == 1
    assert Dense().block(problem) == 100


@pytest.mark.slow
def test_dense_regression_stays_in_its_memory():
    """20,000 × 20,000 weights of float64 would take 3 GiB; blocks of 16 MiB must stay far below."""
    script = """
        import torch, gkalib
        from gkalib.bench.timing import peak_mib
        from gkalib.smoothing import Dense
        x = torch.rand(1, 1, 20_000, 1, dtype=torch.float64)
        def smoothed(n):
            part = x[:, :, :n]
            gkalib.smooth(part, part, part, gkalib.kernels.Gaussian(0.1), method=Dense(2**24))
        smoothed(100)
        print(peak_mib(lambda: smoothed(20_000), "cpu")[0])
    """
    run = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(
        run, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": "."}
    )
    assert float(done.stdout) < 300

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
from gkalib.smoothing import METHODS, Dense, api


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
    problem = api.pose(
        *_qkv(100), kernels.Gaussian(1.0), mask=None, normalizer=None, positions=None, name="smooth"
    )
    assert Dense(memory=2 * 100 * 4 * 7).block(problem) == 7
    assert Dense(memory=1).block(problem) == 1
    assert Dense().block(problem) == 100


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

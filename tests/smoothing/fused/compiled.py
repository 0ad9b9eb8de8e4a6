"""Fused operations in torch.compile, for a process without shape checks, which a traced graph cannot hold.

Prints a line a case: its name and "ok" or the error.
"""

import sys

import torch
from torch import Tensor, nn

import gkalib
from gkalib import kernels, masks, normalizers
from gkalib.smoothing.fused.launch import LAUNCHES
from tests.tolerance import agree

torch.utils.deterministic.fill_uninitialized_memory = True
torch.use_deterministic_algorithms(True)


class Smoother(nn.Module):
    """A module that owns what a kernel learns and builds the kernel in every forward pass."""

    def __init__(self, name: str):
        super().__init__()
        self.name, self.documents = name, 9
        self.log_sigma = nn.Parameter(torch.linspace(0, 1, 2))
        self.bank = kernels.DecayingPeriodicBank(2, 3, length=8.0, tau=(2.0, 6.0))
        self.operator = normalizers.RowOperator(2, 33, rank=4)

    def forward(self, x: Tensor, method: str) -> Tensor:
        sigma, other = self.log_sigma.exp(), x.flip(-1)
        if self.name == "gka":
            return gkalib.smooth(x, x, x, kernels.Gaussian(sigma), mask=masks.Causal(), method=method)
        if self.name == "rbf":
            return gkalib.smooth(x, other, x, kernels.Gaussian(sigma), method=method)
        if self.name == "gpa":
            kernel = kernels.ExpDot() * self.bank
            return gkalib.smooth(x, other, x, kernel, mask=masks.Causal(), method=method)
        if self.name == "documents":
            ids = torch.arange(x.shape[2], device=x.device) // 10 % self.documents
            return gkalib.smooth(x, x, x, kernels.Gaussian(sigma), mask=masks.Document(ids), method=method)
        return gkalib.smooth(x, other, x, kernels.ExpDot(), normalizer=self.operator, method=method)


CASES = ["gka", "rbf", "gpa", "documents", "rows", "documents in pieces"]


def compare(name: str) -> None:
    """Output and gradients of the compiled module, against the reference in float64, in one graph."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    module, x = Smoother(name), torch.randn(1, 2, 33, 16)

    def results(call: nn.Module, owner: Smoother, x: Tensor, method: str) -> list[Tensor]:
        x = x.requires_grad_()
        out = call(x, method)
        wanted = (x, *(one for one in owner.parameters() if one.requires_grad))
        grads = torch.autograd.grad(out.square().sum(), wanted, allow_unused=True, materialize_grads=True)
        return [out, *grads]

    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    LAUNCHES.clear()
    graph = results(compiled, module, x, "fused")
    assert LAUNCHES, "no fused program ran"
    same = results(module, module, x, "reference")
    double = Smoother(name).double()
    double.load_state_dict(module.state_dict())
    exact = results(double, double, x.detach().double(), "reference")
    for have, want, eager in zip(graph, exact, same, strict=True):
        agree(have, want, eager)


def stop_at_pieces() -> None:
    """A graph cannot look at numbers, so that it stops where a document turns out to be in two runs."""
    torch._dynamo.reset()
    module = Smoother("documents")
    module.documents = 2
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    try:
        compiled(torch.randn(1, 2, 33, 16), "fused")
    except RuntimeError as error:
        assert "a document is not one run of tokens" in str(error), error
        return
    raise AssertionError("documents in pieces were computed as if each were one run")


if __name__ == "__main__":
    torch.set_default_device("cuda" if torch.cuda.is_available() else "cpu")
    for case in CASES:
        try:
            stop_at_pieces() if case == "documents in pieces" else compare(case)
            print(case, "ok", flush=True)
        except Exception as error:
            print(case, str(error).replace("\n", " ")[:800], flush=True)
    sys.exit(0)

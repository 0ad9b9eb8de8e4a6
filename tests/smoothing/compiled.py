"""`smooth` inside torch.compile, for a process without shape checks, which a traced graph cannot hold.

Prints a line a case: its name and "ok" or the error.
"""

import sys

import torch
from torch import nn
from torch._subclasses import FakeTensorMode

import gkalib
from gkalib import kernels, masks, normalizers
from gkalib.smoothing.fused import cards
from tests.tolerance import agree

KERNELS = {
    "gaussian": lambda sigma: kernels.Gaussian(sigma),
    "gaussian-far": lambda sigma: kernels.Gaussian(sigma),
    "expdot": lambda sigma: kernels.ExpDot(sigma / 8),
    "laplace": lambda sigma: kernels.Laplace(sigma),
    "mixture": lambda sigma: kernels.Gaussian(sigma) + kernels.Laplace(1.0),
    "mixture-of-two-forms": lambda sigma: kernels.Gaussian(sigma) + kernels.ExpDot(),
    "product": lambda sigma: kernels.Gaussian(sigma) * kernels.ExpDot(),
}
CASES = [(name, n, "aot_eager") for name in KERNELS for n in (33, 600)]
CASES += [(name, 33, "inductor") for name in ("gaussian", "gaussian-far", "laplace")]
CASES += [("gaussian", 33, "inductor", torch.float64)]
CASES += [(name, 33, "aot_eager", torch.bfloat16) for name in ("gaussian", "expdot")]
ON_A_CARD = {
    "a number": lambda: {"kernel": kernels.Gaussian(2.0)},
    "a number a head": lambda: {"kernel": kernels.Gaussian(torch.ones(4, device="cuda"))},
    "dot products": lambda: {"kernel": kernels.ExpDot()},
    "a table": lambda: {"kernel": kernels.ExpDot() * kernels.ALiBi(4)},
}
CASES += [
    (name, mask, method) for name in ON_A_CARD for mask in ("all", "causal") for method in ("fused", "flex")
]
ON_A_CARD["two normalizers"] = lambda: {"kernel": kernels.ExpDot(), "normalizer": TWO}
CASES += [("two normalizers", "all", "auto")]
TWO = normalizers.PerHead([normalizers.RowSum(), normalizers.Simplex()], heads=[3, 1])


class Smoother(nn.Module):
    """A module that owns log σ and builds its kernel in every forward pass, as attention modules do."""

    def __init__(self, name: str):
        super().__init__()
        self.name = name
        self.log_sigma = nn.Parameter(torch.linspace(0, 1, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return gkalib.smooth(x, x, x, KERNELS[self.name](self.log_sigma.exp()), mask=masks.Causal())


def compare(name: str, n: int, backend: str, dtype: torch.dtype = torch.float32) -> None:
    """Output and gradients of the compiled module, against the eager one in float64; bfloat16 is autocast."""
    torch._dynamo.reset()
    half = dtype == torch.bfloat16
    dtype = torch.float32 if half else dtype
    module, x = Smoother(name).to(dtype), torch.randn(2, 4, n, 16, dtype=dtype) + 1000 * ("far" in name)
    compiled = torch.compile(module, backend=backend, fullgraph=True)

    def results(call: nn.Module, owner: Smoother, x: torch.Tensor) -> list[torch.Tensor]:
        x = x.requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            out = call(x)
        return [out, *torch.autograd.grad(out.square().sum(), (x, owner.log_sigma))]

    graph, same = results(compiled, module, x), results(module, module, x)
    double = Smoother(name).double()
    exact = results(double, double, x.detach().double())
    for have, want, eager in zip(graph, exact, same, strict=True):
        agree(have, want, eager)


def trace_on_a_card(name: str, mask: str, method: str) -> None:
    """One graph of tensors with a device and no numbers: to find a broken graph no card is needed."""
    torch._dynamo.reset()

    def smooth(x: torch.Tensor) -> torch.Tensor:
        rule = masks.Causal() if mask == "causal" else None
        return gkalib.smooth(x, x, x, **ON_A_CARD[name](), mask=rule, method=method)

    with FakeTensorMode():
        x = torch.empty(1, 4, 300, 16, device="cuda")
        assert torch.compile(smooth, fullgraph=True, backend="eager")(x).shape == x.shape


if __name__ == "__main__":
    card = cards.card_of("sm_90")
    cards.here = lambda device: card if device.type == "cuda" else None
    for case in CASES:
        try:
            (trace_on_a_card if case[0] in ON_A_CARD else compare)(*case)
            print(*case, "ok", flush=True)
        except Exception as error:
            print(*case, str(error).replace("\n", " ")[:500], flush=True)
    sys.exit(0)

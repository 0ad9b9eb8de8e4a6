"""Every variant inside torch.compile and torch.export, for a process without shape checks.

Prints a line a case: its name and "ok" or the error.
"""

import warnings

import torch
from torch import nn

from tests.tolerance import agree
from tests.variants import DIM, LENGTH, VARIANTS

INDUCTOR = ("softmax", "rbf", "gka")
CASES = [(name, "aot_eager") for name in sorted(VARIANTS)]
CASES += [(name, "inductor") for name in INDUCTOR]
CASES += [(name, "export") for name in sorted(VARIANTS)]


def compare(name: str, backend: str) -> None:
    """Output and gradients of the compiled layer, or the output of the exported one, against float64."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    made, x = VARIANTS[name].make(name), torch.randn(2, LENGTH, DIM)
    if backend == "export":
        exported = torch.export.export(made.eval(), (x,)).module()
        call, gradients = exported, False
    else:
        call, gradients = torch.compile(made, backend=backend, fullgraph=True), True
    double = VARIANTS[name].make(name).double()
    double.load_state_dict(made.state_dict())

    def results(call, owner: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
        out = call(x)
        return (
            [out, *torch.autograd.grad(out.square().sum(), list(owner.parameters()))] if gradients else [out]
        )

    exact = results(double, double, x.double())
    for have, want, eager in zip(results(call, made, x), exact, results(made, made, x), strict=True):
        agree(have, want, eager)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # the compiler's own, about itself
    for case in CASES:
        try:
            compare(*case)
            print(*case, "ok", flush=True)
        except Exception as error:
            print(*case, type(error).__name__, str(error).replace("\n", " ")[:300], flush=True)

"""The optimizers of a run: which parameters decay, which have a rate of their own, which go to Muon."""

import math
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from gkalib.training.run import Run
from gkalib.training.schedule import learning_rate

# Tokens, positions and biases of lags are learned vectors whatever their shape, a bandwidth is a scale:
# none of them decays.
UNDECAYED = ("position", "class_token", "register_tokens", "log_sigma", "bank", "lag_kernel", "lags")
MOMENTUM = (0.85, 0.95, 300)  # nanochat's: from, to, over so many steps


def optimizers(run: Run, model: nn.Module) -> list[Optimizer]:
    """AdamW for all parameters, or Muon for the blocks' matrices but not tables, and AdamW for the rest.

    A parameter decays if it has two or more axes, no rate of its own, and nothing of ``UNDECAYED`` in its
    name.

    Args:
        run: the settings.
        model: before it is wrapped or compiled.

    References:
        Loshchilov and Hutter, Decoupled weight decay regularization, 2019; Jordan et al., Muon, 2024, as
        ``torch.optim.Muon`` has it: five Newton-Schulz steps, the rate times √max(1, rows/columns). That of
        nanochat has other coefficients and decays only where update and weight agree in sign.
    """
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    chosen: dict[str, dict[tuple[float, float], list[nn.Parameter]]] = {"adamw": {}, "muon": {}}
    for name, parameter in model.named_parameters():
        own = [factor for part, factor in run.rates.items() if part in name]
        kept = own or parameter.ndim <= 1 or any(part in name for part in UNDECAYED)
        matrix = parameter.ndim == 2 and name.startswith("blocks.") and id(parameter) not in tables
        where = "muon" if run.optimizer == "muon" and matrix and not kept else "adamw"
        group = (math.prod(own, start=1.0), 0.0 if kept else run.weight_decay)
        chosen[where].setdefault(group, []).append(parameter)
    made: list[Optimizer] = []
    if chosen["adamw"]:
        made.append(torch.optim.AdamW(_groups(chosen["adamw"]), lr=run.lr, betas=run.betas, eps=run.eps))
    if chosen["muon"]:
        made.append(torch.optim.Muon(_groups(chosen["muon"]), lr=run.lr, adjust_lr_fn="original"))
    return made


def set_rates(run: Run, step: int, optimizers: list[Optimizer]) -> float:
    """Set what a step has its own of: the rates, and Muon's momentum and decay. Returns the common rate."""
    rate = learning_rate(run, step)
    first, last, steps = MOMENTUM
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = rate * group["rate"]
            if isinstance(optimizer, torch.optim.Muon):
                group["momentum"] = first + (last - first) * min(1.0, step / steps)
                group["weight_decay"] = group["decay"] * (1 - step / run.steps)
    return rate


def _groups(chosen: dict[tuple[float, float], list[nn.Parameter]]) -> list[dict[str, Any]]:
    return [
        {"params": parameters, "rate": rate, "decay": decay, "weight_decay": decay}
        for (rate, decay), parameters in chosen.items()
    ]

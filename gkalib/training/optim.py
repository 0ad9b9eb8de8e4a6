"""From gradients to weights: parameter groups, the rate of every step, the update, the moving average."""

import math
from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from gkalib.training.config import TrainConfig
from gkalib.training.distributed import Processes
from gkalib.training.held import Training


def learning_rate(run: TrainConfig, step: int) -> float:
    r"""The learning rate of a step, before the factors of ``rates``.

    With s steps of warm-up and T in all, the rate rises in a line from ``warmup_lr`` to ``lr`` in the steps
    0 … s; then, with u = (step − s) / (T − s) from 0 to 1,

    - ``cosine``: final_lr + (lr − final_lr) (1 + cos πu) / 2,
    - ``trapezoid``: ``lr`` until the share ``cooldown`` of all T steps is left, then a line to ``final_lr``.

    Args:
        run: the settings.
        step: from 0.

    References:
        Loshchilov and Hutter, SGDR, 2017; Hägele et al., Scaling laws and compute-optimal training beyond
        fixed training durations, 2024. Chapter 20 draws both.
    """
    if step < run.warmup:
        return run.warmup_lr + (run.lr - run.warmup_lr) * step / run.warmup
    if run.schedule == "cosine":
        done = (step - run.warmup) / max(1, run.steps - run.warmup)
        return run.final_lr + (run.lr - run.final_lr) * (1 + math.cos(math.pi * min(done, 1.0))) / 2
    left = (run.steps - step) / max(1.0, run.cooldown * run.steps)
    return run.final_lr + (run.lr - run.final_lr) * min(max(left, 0.0), 1.0)


# Tokens and positions are learned vectors whatever their shape, what a kernel learns are scales and biases of
# lags: none of them decays.
UNDECAYED = ("position", "class_token", "register_tokens", ".kernel.")
MOMENTUM = (0.85, 0.95, 300)  # nanochat's: from, to, over so many steps


def optimizers(run: TrainConfig, model: nn.Module) -> list[Optimizer]:
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


def set_rates(run: TrainConfig, step: int, optimizers: list[Optimizer]) -> float:
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


def average(model: nn.Module, decay: float | None) -> AveragedModel | None:
    r"""A copy of the model whose weights follow θ̄ ← decay · θ̄ + (1 − decay) · θ at each update.

    The first update copies the weights, so the average starts from the weights after the first step.

    Args:
        model: before it is wrapped or compiled.
        decay: from 0, which copies, to just below 1; None makes no average.

    References:
        Polyak and Juditsky, Acceleration of stochastic approximation by averaging, 1992. Chapter 21 uses it.
    """
    if decay is None:
        return None
    follow = get_ema_multi_avg_fn(decay)

    def follow_here(averages: list[Tensor], weights: list[Tensor], updates: Tensor) -> None:
        # Where weights are split over processes, each averages its own part; buffers are not split.
        follow([_here(one) for one in averages], [_here(one) for one in weights], updates)

    return AveragedModel(model, multi_avg_fn=cast(Any, follow_here), use_buffers=True)


def _here(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def descend(training: Training) -> Tensor:
    """Clip the gradients, let the optimizers do a step, and let the average follow.

    With a loss scale the gradients are first divided by it, and an optimizer leaves the step out if one of
    its gradients is not finite then.

    Returns:
        The norm of the whole gradient before it was clipped.
    """
    scaler = training.scaler
    if scaler:
        for optimizer in training.optimizers:
            scaler.unscale_(optimizer)
    weights = [weight for weight in training.model.parameters() if weight.grad is not None]
    norm = nn.utils.get_total_norm([weight.grad for weight in weights if weight.grad is not None])
    if training.run.clip is not None:
        nn.utils.clip_grads_with_norm_(weights, training.run.clip, norm)
    for optimizer in training.optimizers:
        if scaler:
            scaler.step(optimizer)
        else:
            optimizer.step()
    if scaler:
        scaler.update()
    if training.average is not None:
        training.average.update_parameters(training.model)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


@final
class FiniteCheck:
    """Remembers the first step that had a number which is infinite or none, without waiting for the GPU.

    Args:
        processes: the processes, which agree on that step.
    """

    def __init__(self, processes: Processes):
        self.processes = processes
        self._first = torch.full((), math.inf, dtype=torch.float64, device=processes.device)

    def see(self, step: int, *numbers: Tensor) -> None:
        """Look at some numbers of a step."""
        for number in numbers:
            self._first = torch.where(number.isfinite(), self._first, self._first.clamp(max=step))

    def first(self) -> int | None:
        """The first such step of any process; every process asks."""
        mine = self._first.item()
        worst = self.processes.most(-int(mine) if math.isfinite(mine) else -(2**62))
        return None if worst == -(2**62) else -worst

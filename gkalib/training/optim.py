"""From gradients to weights: parameter groups, the rate of every step, the update, the moving average."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from gkalib.training.config import TrainConfig

MOMENTUM = (0.85, 0.95, 300)  # nanochat's: from, to, over so many steps


@final
@dataclass(frozen=True)
class TrainState:
    """Everything that a checkpoint holds but the step: one place for what changes while a model is trained.

    Random numbers have no state here: those of a step are keyed by its number, as are the rows that it reads.

    Args:
        config: the settings.
        model: not wrapped, not compiled.
        optimizers: of its parameters.
        average: of its weights, if there is one.
        scaler: of the loss, for float16.
        tokenizer: as JSON, for text.
        fingerprint: of the data that is read, as ``Workload.fingerprint`` gives it.
    """

    config: TrainConfig
    model: nn.Module
    optimizers: list[Optimizer]
    average: AveragedModel | None = None
    scaler: GradScaler | None = None
    tokenizer: str | None = None
    fingerprint: Mapping[str, Any] | None = None


def learning_rate(config: TrainConfig, step: int, factor: float = 1.0) -> float:
    r"""The learning rate of a step, times one of the factors of ``rates``.

    With s steps of warm-up and T in all, the rate rises in a line from ``warmup_lr`` to ``lr`` in the steps
    0 … s; then, with u = (step − s) / (T − s) from 0 to 1,

    - ``cosine``: final_lr + (lr − final_lr) (1 + cos πu) / 2,
    - ``trapezoid``: ``lr`` until the share ``cooldown`` of all T steps is left, then a line to ``final_lr``,
    - ``tenth``: a cosine to lr / 10, whose warm-up rises from lr / s.

    Args:
        config: the settings.
        step: from 0.
        factor: of a group of parameters.

    References:
        Loshchilov and Hutter, SGDR, 2017; Hägele et al., Scaling laws and compute-optimal training beyond
        fixed training durations, 2024. Chapter 22 draws both.
    """
    peak, final, warmup = config.lr, config.final_lr, config.warmup
    done = min((step - warmup) / max(1, config.steps - warmup), 1.0)
    if config.schedule == "tenth":
        share = (step + 1) / warmup if step < warmup else 0.1 + 0.45 * (1 + math.cos(math.pi * done))
        return peak * factor * share
    if step < warmup:
        return factor * (config.warmup_lr + (peak - config.warmup_lr) * step / warmup)
    if config.schedule == "cosine":
        return factor * (final + (peak - final) * (1 + math.cos(math.pi * done)) / 2)
    left = (config.steps - step) / max(1.0, config.cooldown * config.steps)
    return factor * (final + (peak - final) * min(max(left, 0.0), 1.0))


def optimizers(config: TrainConfig, model: nn.Module) -> list[Optimizer]:
    """AdamW for all parameters, or Muon for the blocks' matrices but not tables, and AdamW for the rest.

    A parameter decays if it has two or more axes, no rate of its own, and nothing of ``undecayed`` in its
    name.

    Args:
        config: the settings.
        model: before it is wrapped or compiled.

    References:
        Loshchilov and Hutter, Decoupled weight decay regularization, 2019; Jordan et al., Muon, 2024, as
        ``torch.optim.Muon`` has it: five Newton-Schulz steps, the rate times √max(1, rows/columns). That of
        nanochat has other coefficients and decays only where update and weight agree in sign.
    """
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    chosen: dict[str, dict[tuple[float, float], list[nn.Parameter]]] = {"adamw": {}, "muon": {}}
    for name, parameter in model.named_parameters():
        factors = [factor for part, factor in config.rates.items() if part in name]
        undecayed = factors or parameter.ndim <= 1 or any(part in name for part in config.undecayed)
        matrix = parameter.ndim == 2 and name.startswith("blocks.") and id(parameter) not in tables
        where = "muon" if config.optimizer == "muon" and matrix and not undecayed else "adamw"
        group = (math.prod(factors, start=1.0), 0.0 if undecayed else config.weight_decay)
        chosen[where].setdefault(group, []).append(parameter)
    instances: list[Optimizer] = []
    if chosen["adamw"]:
        instances.append(
            torch.optim.AdamW(_groups(chosen["adamw"]), lr=config.lr, betas=config.betas, eps=config.eps)
        )
    if chosen["muon"]:
        instances.append(torch.optim.Muon(_groups(chosen["muon"]), lr=config.lr, adjust_lr_fn="original"))
    return instances


def set_rates(config: TrainConfig, step: int, optimizers: list[Optimizer]) -> float:
    """Set what a step has its own of: the rates, and Muon's momentum and decay. Returns the common rate."""
    first, last, steps = MOMENTUM
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, step, group["rate"])
            if isinstance(optimizer, torch.optim.Muon):
                group["momentum"] = first + (last - first) * min(1.0, step / steps)
                group["weight_decay"] = group["decay"] * (1 - step / config.steps)
    return learning_rate(config, step)


def _groups(chosen: dict[tuple[float, float], list[nn.Parameter]]) -> list[dict[str, Any]]:
    return [
        {"params": parameters, "rate": rate, "decay": decay, "weight_decay": decay}
        for (rate, decay), parameters in chosen.items()
    ]


def weight_average(model: nn.Module, decay: float | None) -> AveragedModel | None:
    r"""A copy of the model whose weights follow θ̄ ← decay · θ̄ + (1 − decay) · θ at each update.

    The first update copies the weights, so the average starts from the weights after the first step.

    Args:
        model: before it is wrapped or compiled.
        decay: from 0, which copies, to just below 1; None makes no average.

    References:
        Polyak and Juditsky, Acceleration of stochastic approximation by averaging, 1992. Chapter 23 uses it.
    """
    if decay is None:
        return None
    return AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)


def optimizer_step(state: TrainState) -> Tensor:
    """Clip the gradients, let the optimizers do a step, and let the average follow.

    With a loss scale the gradients are first divided by it, and an optimizer leaves the step out if one of
    its gradients is not finite then.

    Returns:
        The norm of the whole gradient before it was clipped.
    """
    scaler = state.scaler
    if scaler:
        for optimizer in state.optimizers:
            scaler.unscale_(optimizer)
    weights = [weight for weight in state.model.parameters() if weight.grad is not None]
    norm = nn.utils.get_total_norm([weight.grad for weight in weights if weight.grad is not None])
    if state.config.clip is not None:
        nn.utils.clip_grads_with_norm_(weights, state.config.clip, norm)
    for optimizer in state.optimizers:
        if scaler:
            scaler.step(optimizer)
        else:
            optimizer.step()
    if scaler:
        scaler.update()
    if state.average is not None:
        state.average.update_parameters(state.model)
    return norm

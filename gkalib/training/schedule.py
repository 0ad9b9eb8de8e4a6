"""The learning rate of every step: a line up, then a cosine down, or a plateau and a line down."""

import math

from gkalib.training.run import Run


def learning_rate(run: Run, step: int) -> float:
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

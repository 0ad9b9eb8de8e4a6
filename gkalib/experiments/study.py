"""What a study trains: every setting of one small run, as data that a record can hold."""

import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, final

from torch import nn

from gkalib.layers import attention


@final
@dataclass(frozen=True, kw_only=True)
class Study:
    """One small training run.

    Args:
        experiment, arm, seed, scale: what its record is called by.
        task: what is learned, a name of ``gkalib.experiments.tasks.TASKS``.
        attention: the name of a variant, or a list for the layers, cycled, of names and of variants with
            options of their own, ``{"name": "gka", "sigma": 2.0}``.
        options: options of the variants given by name.
        model: settings of the model (``GPTConfig`` or ``ViTConfig``) that differ from the task's.
        data: settings of the task's data that differ from its defaults.
        steps, batch: how many steps of how many pictures or windows.
        lr: the peak of the learning rate, which rises over ``warmup`` steps and falls along a cosine to a
            tenth.
        weight_decay: of matrices; vectors and numbers have none.
        rates: factors on the learning rate of the parameters whose names contain the key, without decay.

    Raises:
        ValueError: if a count is below 1 or a rate is negative.
    """

    experiment: str
    arm: str
    task: str
    attention: Any = "softmax"
    options: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    steps: int = 300
    batch: int = 32
    lr: float = 2e-3
    warmup: int = 30
    weight_decay: float = 0.05
    rates: dict[str, float] = field(default_factory=dict)
    seed: int = 0
    scale: str = "reduced"

    def __post_init__(self):
        """Refuse what cannot be run."""
        for name in ("steps", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"train: {name} must be at least 1, not {getattr(self, name)}")
        if min(self.lr, self.weight_decay, self.warmup, *self.rates.values()) < 0:
            raise ValueError("train: lr, warmup, weight_decay and rates must be zero or more")

    def layers(self) -> list[type[nn.Module]]:
        """The classes of its attention layers, for a model to cycle through."""
        given = self.attention if isinstance(self.attention, list) else [self.attention]
        return [_layer(one, self.options) for one in given]

    def smoke(self) -> "Study":
        """The same code in a few steps."""
        return replace(self, scale="smoke", steps=3, batch=4, warmup=1)

    def settings(self) -> dict[str, Any]:
        """Everything but the names that a record has beside it, as JSON would give it back."""
        names = {"experiment", "arm", "seed", "scale"}
        return json.loads(json.dumps({k: v for k, v in asdict(self).items() if k not in names}))


def _layer(one: str | dict[str, Any], options: dict[str, Any]) -> type[nn.Module]:
    if isinstance(one, str):
        return attention(one, **options)
    return attention(one["name"], **{key: value for key, value in one.items() if key != "name"})

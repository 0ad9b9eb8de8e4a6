"""What a study trains: every setting of one small run, as data that a record can hold."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, final

import torch
from torch import nn

from gkalib.experiments.tasks import Task, task
from gkalib.training import TrainConfig

RECORDED = (
    *("task", "attention", "options", "model", "data", "steps", "batch"),
    *("lr", "warmup", "weight_decay", "rates"),
)


@final
@dataclass(frozen=True, kw_only=True)
class Study(TrainConfig):
    """One small training run on a task that fits into memory, on the CPU.

    Args:
        task: what is learned, a name of ``gkalib.experiments.tasks.TASKS``.
        model: settings of the model (``GPTConfig`` or ``ViTConfig``) that differ from the task's.
        data: settings of the task's data that differ from its defaults.
        shared: whether arms of one seed share initial weights: each that softmax attention's model has under
            the same name and of the same shape begins as there.

    The other settings are those of ``TrainConfig``; parameters of two axes and more decay, whatever they are.
    """

    kind: ClassVar[str] = "study"
    undecayed: ClassVar[tuple[str, ...]] = ()

    task: str
    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)  # pyright: ignore[reportIncompatibleVariableOverride]
    shared: bool = False
    scale: str = "reduced"
    steps: int = 300
    batch: int = 32
    lr: float = 2e-3
    warmup: int = 30
    schedule: Literal["cosine", "trapezoid", "tenth"] = "tenth"
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float | None = 1.0

    @property
    def model_seed(self) -> int:
        """The seed itself, as the recorded studies had it."""
        return self.seed

    def build(self) -> nn.Module:
        """The task's model, untrained."""
        return self.model_of(task(self.task, **self.data))

    def model_of(self, learned: Task) -> nn.Module:
        """The model of a task that is there, drawn from where PyTorch's generator stands."""
        if not self.shared:
            return learned.model(self.layers(), **self.model)
        of_place = ("positions", "registers", "value_embeddings")
        with torch.random.fork_rng(devices=[]):
            plain = {name: value for name, value in self.model.items() if name not in of_place}
            common = dict(learned.model("softmax", **plain).named_parameters())
        model = learned.model(self.layers(), **self.model)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name in common and common[name].shape == parameter.shape:
                    parameter.copy_(common[name])
        return model

    def smoke(self) -> "Study":
        """The same code in a few steps, on few items."""
        few = {name: 64 for name in ("train", "test", "windows") if name in self.data}
        return replace(self, scale="smoke", steps=3, batch=4, warmup=1, data=self.data | few)

    def recorded(self) -> dict[str, Any]:
        """The settings that tell one study from another."""
        settings = self.settings()
        kept = (*RECORDED, "shared") if self.shared else RECORDED
        return {name: settings[name] for name in kept}

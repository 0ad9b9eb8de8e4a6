"""What a study trains: every setting of one small run, as data that a record can hold."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, final

from torch import nn

from gkalib.experiments.tasks import task
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

    The other settings are those of ``TrainConfig``; parameters of two axes and more decay, whatever they are.
    """

    kind: ClassVar[str] = "study"
    undecayed: ClassVar[tuple[str, ...]] = ()

    task: str
    model: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)  # pyright: ignore[reportIncompatibleVariableOverride]
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
        return task(self.task, **self.data).model(self.layers(), **self.model)

    def smoke(self) -> "Study":
        """The same code in a few steps."""
        return replace(self, scale="smoke", steps=3, batch=4, warmup=1)

    def recorded(self) -> dict[str, Any]:
        """The settings that tell one study from another."""
        settings = self.settings()
        return {name: settings[name] for name in RECORDED}

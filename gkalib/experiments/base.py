"""What a task is: data in two parts, a model that fits it, and a loss."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from gkalib.layers import Attention

Batch = tuple[Tensor, Tensor]


class Outcomes(NamedTuple):
    """The loss of each held-out item, and whether each label is the likeliest, where labels are classes."""

    losses: Tensor
    right: Tensor | None


class Task(ABC):
    """Data in two parts, the model that fits it, and the loss of always guessing by frequency.

    A held-out item is a picture or a window of text: losses are compared item by item.
    """

    held_out: Batch

    @abstractmethod
    def model(self, attention: Attention, **changes: Any) -> nn.Module:
        """A small model of the task, with changes to its configuration."""

    @abstractmethod
    def batches(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        """Training batches without end."""

    @abstractmethod
    def log_frequencies(self) -> Tensor:
        """The logarithm of how often each class occurs in the training part."""

    @abstractmethod
    def choose(self) -> None:
        """Hold out the last tenth of the training part in the place of the held-out part.

        What is chosen on it, a learning rate, has seen nothing of what decides.
        """

    def nats(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The sum of a batch's losses."""
        return cross_entropy(outputs.flatten(0, -2), labels.flatten(), reduction="sum")

    def count(self, labels: Tensor) -> int:
        """How many losses it sums."""
        return labels.numel()

    def outcomes(self, model: nn.Module, size: int = 64) -> Outcomes:
        """What a model makes of the held-out items, ``size`` of them at a time."""
        inputs, labels = self.held_out
        losses, right = [], []
        for batch, label in zip(inputs.split(size), labels.split(size), strict=True):
            logits = model(batch)
            losses.append(_per_item(logits, label))
            right.append(logits.argmax(-1) == label)
        return Outcomes(torch.cat(losses), torch.cat(right))

    def baseline(self) -> Tensor:
        """The held-out loss of each item where only the frequencies of the classes are known."""
        labels = self.held_out[1]
        return -self.log_frequencies()[labels].reshape(labels.shape[0], -1).mean(1)


def _per_item(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of each item, ``[b]``."""
    losses = cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none")
    return losses.reshape(labels.shape[0], -1).mean(1)

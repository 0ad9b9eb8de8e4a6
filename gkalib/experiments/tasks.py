"""What a task is, data in two parts, a model and a loss; and tasks by name: pictures by class, text."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import gkalib
from gkalib.data import tokenizers
from gkalib.data.image_set import Arrays, ImageData
from gkalib.data.text import wrap_lines
from gkalib.layers import Attention
from gkalib.models import GPTConfig, ViTConfig, gpt, vit

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
    def baseline(self) -> Tensor:
        """The held-out loss of each item where only the frequencies in the training part are known."""

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
            each = cross_entropy(logits.flatten(0, -2), label.flatten(), reduction="none")
            losses.append(each.reshape(len(label), -1).mean(1))
            right.append(logits.argmax(-1) == label)
        return Outcomes(torch.cat(losses), torch.cat(right))


class Pictures(Task):
    """Classify pictures, brought to mean 0 and deviation 1 by the training part's own.

    Args:
        images: ``[n, height, width]`` if gray and ``[n, height, width, 3]`` in color.
        labels: ``[n]``.
        train, test: how many pictures; the first are drawn once, by a fixed seed.
        published: whether the order is the set's own, so that its last pictures are the published test set.
        patch: the side of a patch, in pixels.
    """

    def __init__(
        self,
        images: np.ndarray,
        labels: np.ndarray,
        *,
        train: int = 6000,
        test: int = 1000,
        patch: int = 4,
        published: bool = False,
    ):
        order = np.random.default_rng(0).permutation(len(images))[: train + test]
        if published:
            order = np.r_[:train, len(images) - test : len(images)]
        chosen = torch.from_numpy(images[order].astype(np.float32))
        chosen = chosen.movedim(-1, 1) if chosen.ndim == 4 else chosen[:, None]
        learned = chosen[:train].double()  # whose sums, rounded to float32, are the same on every processor
        chosen = (chosen - learned.mean().float()) / learned.std().float()
        label = torch.from_numpy(labels[order].astype(np.int64))
        self.images, self.labels = chosen[:train], label[:train]
        self.held_out = (chosen[train:], label[train:])
        self.classes = int(labels.max()) + 1
        self.config = ViTConfig(
            image_size=images.shape[1],
            patch_size=patch,
            channels=chosen.shape[1],
            dim=32,
            depth=2,
            num_heads=4,
            mlp_ratio=2.0,
            num_classes=self.classes,
        )

    def model(self, attention: Attention, **changes: Any) -> nn.Module:
        return vit(self.config, attention=attention, **changes)

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        while True:
            index = torch.randint(len(self.images), (size,), generator=generator)
            yield self.images[index], self.labels[index]

    def choose(self) -> None:
        cut = len(self.images) * 9 // 10
        self.held_out = (self.images[cut:], self.labels[cut:])
        self.images, self.labels = self.images[:cut], self.labels[:cut]

    def baseline(self) -> Tensor:
        return _by_frequency(self.labels, self.classes, self.held_out[1])


class Characters(Task):
    """Predict the next character of a text, whose last tenth is held out.

    Args:
        text: what is learned.
        context: the length of a window, in characters.
        wrap: the width at which lines are wrapped; None leaves them as they are.
        limit: how many characters of the text are used; None is all.
        windows: the most held-out windows that a loss is measured on, evenly spaced.
    """

    def __init__(
        self,
        text: str,
        *,
        context: int = 64,
        wrap: int | None = None,
        limit: int | None = None,
        windows: int = 128,
    ):
        ids = self.read(wrap_lines(text[:limit], wrap))
        self.context, self.wrap, cut = context, wrap, len(ids) * 9 // 10
        self.ids, rest = ids[:cut], ids[cut:]
        self.held_out = self.windows_of(rest, context, windows)
        self.rest = rest
        self.config = GPTConfig(
            vocab_size=self.vocab_size, context=context, dim=64, depth=2, num_heads=4, positions="rope"
        )

    def read(self, text: str) -> Tensor:
        """The text as numbers below ``vocab_size``."""
        tokenizer = tokenizers.Characters(text)
        self.characters, self.vocab_size = tokenizer.symbols, tokenizer.vocab_size
        return torch.from_numpy(tokenizer.encode(text))

    def windows_of(self, ids: Tensor, context: int, count: int) -> Batch:
        """Evenly spaced windows of a text and the characters that follow each of theirs."""
        count = min(count, (len(ids) - 1) // context)
        starts = torch.linspace(0, len(ids) - context - 1, count).long()
        where = starts[:, None] + torch.arange(context)
        return ids[where], ids[where + 1]

    def model(self, attention: Attention, **changes: Any) -> nn.Module:
        return gpt(self.config, attention=attention, **changes)

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        while True:
            starts = torch.randint(len(self.ids) - self.context, (size,), generator=generator)
            where = starts[:, None] + torch.arange(self.context)
            yield self.ids[where], self.ids[where + 1]

    def choose(self) -> None:
        cut = len(self.ids) * 9 // 10
        self.ids, self.rest = self.ids[:cut], self.ids[cut:]
        self.held_out = self.windows_of(self.rest, self.context, len(self.held_out[0]))

    def baseline(self) -> Tensor:
        return _by_frequency(self.ids, self.vocab_size, self.held_out[1])


class Pieces(Characters):
    """Predict the next byte pair of a text; the pairs are learned from its first nine tenths.

    Args:
        text: what is learned.
        tokens: how many byte pairs, the bytes themselves included.
        text_settings: those of ``Characters``, whose context and windows count pieces here.
    """

    def __init__(self, text: str, *, tokens: int = 1024, **text_settings: Any):
        self.vocab_size = tokens
        super().__init__(text, **text_settings)

    def read(self, text: str) -> Tensor:
        tokenizer = tokenizers.train_bpe([text[: len(text) * 9 // 10]], self.vocab_size)
        self.byte_lengths = torch.from_numpy(tokenizer.byte_lengths())
        return torch.from_numpy(tokenizer.encode(text))


def _by_frequency(learned: Tensor, classes: int, labels: Tensor) -> Tensor:
    """The mean loss of each item; add-one smoothed, so that a class never seen costs a finite loss."""
    counts = torch.bincount(learned, minlength=classes) + 1.0
    log_frequencies = counts.log() - math.log(counts.sum().item())
    return -log_frequencies[labels].reshape(len(labels), -1).mean(1)


def whole(data: ImageData) -> tuple[np.ndarray, np.ndarray]:
    """The pictures and the labels of both parts, those that are held out last."""
    train, held_out, _ = data
    assert isinstance(train, Arrays) and isinstance(held_out, Arrays)
    return (
        np.concatenate([train.pixels, held_out.pixels]),
        np.concatenate([train.labels, held_out.labels]),
    )


# Of the pictures whose training and test parts are not those of most.
PARTS: dict[str, dict[str, Any]] = {
    "digits": {"train": 1300, "test": 497, "patch": 2},
    "cifar10": {"train": 50_000, "test": 10_000, "published": True},
}
TASKS: dict[str, Callable[..., Task]] = {
    "digits": lambda **data: Pictures(*gkalib.data.digits(), **PARTS["digits"] | data),
    "fashion-mnist": lambda **data: Pictures(*gkalib.data.fashion_mnist(), **data),
    "mnist": lambda **data: Pictures(*gkalib.data.mnist(), **data),
    "cifar10": lambda **data: Pictures(*whole(gkalib.data.cifar10()), **PARTS["cifar10"] | data),
    "state-of-the-union": lambda **data: Characters(gkalib.data.state_of_the_union(), **data),
    "tinystories": lambda **data: Characters(gkalib.data.tinystories(), **data),
    "tinystories-pieces": lambda **data: Pieces(gkalib.data.tinystories(), **data),
    "dickens": lambda **data: Characters(gkalib.data.dickens(), **data),
}


def task(name: str, *, choosing: bool = False, **data: Any) -> Task:
    """A task by its name.

    Args:
        name: of ``TASKS``.
        choosing: whether something is chosen on its held-out items, which are then other ones.
        data: settings of its data.
    """
    if name not in TASKS:
        raise ValueError(f"task: no task {name!r}. Known: {', '.join(TASKS)}")
    found = TASKS[name](**data)
    if choosing:
        found.choose()
    return found

"""What a trained model reaches on data: the accuracy of a classifier, and a text's bits per byte."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

Model = nn.Module | Callable[[Tensor], Tensor]
"""What is measured: a module, or any function from a batch to logits."""
Total = Callable[[Tensor], Tensor]


@contextmanager
def evaluating(model: Model) -> Iterator[None]:
    """Without gradients and in evaluation mode; afterwards every module is in the mode in which it was."""
    parts = model.modules() if isinstance(model, nn.Module) else ()
    training = [part for part in parts if part.training]
    try:
        for part in training:
            part.training = False
        with torch.no_grad():
            yield
    finally:
        for part in training:
            part.training = True


def device_of(model: Model) -> torch.device:
    """Where a module's parameters lie; the CPU for a function."""
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return torch.device("cpu") if parameter is None else parameter.device


def accuracy(
    model: Model, batches: Iterable[tuple[Tensor, Tensor]], *, total: Total | None = None
) -> dict[str, float]:
    """Top-1 and top-5 accuracy and the mean cross-entropy in nats.

    A label is among the first k if fewer than k classes are ahead of it: those of a larger logit, and those
    of the same logit and a smaller number. A logit that is no number is never right.

    Args:
        model: from images ``[b channels height width]`` to logits ``[b classes]``.
        batches: images and labels ``[b]``; a label of -1 is left out.
        total: sums a tensor over processes that each measure a part of the images; None where there is one.

    Returns:
        ``top1`` and ``top5``, shares from 0 to 1, and ``loss``.

    Raises:
        ValueError: if there is nothing to measure, or a label is no class of the model.

    Chapter 24 teaches its standard error.
    """
    device = device_of(model)
    sums = torch.zeros(4, dtype=torch.float64, device=device)
    with evaluating(model):
        for images, labels in batches:
            labels = labels.to(device)
            logits = model(images.to(device)).float()[labels != -1]
            sums += _accuracy_counts(logits, labels[labels != -1])
    top1, top5, loss, images = (sums if total is None else total(sums)).tolist()
    if not images:
        raise ValueError("evaluate: there are no labeled images to measure accuracy on")
    return {"top1": top1 / images, "top5": top5 / images, "loss": loss / images}


def _accuracy_counts(logits: Tensor, labels: Tensor) -> Tensor:
    """Images right at the first guess and in five, nats, images."""
    classes = torch.arange(logits.shape[1], device=logits.device)
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(classes):
        raise ValueError(
            f"evaluate: labels from {int(labels.min())} to {int(labels.max())}, "
            f"and the model has {len(classes)} classes"
        )
    label_logits = logits.gather(1, labels[:, None])
    ahead = ~(logits <= label_logits) | ((logits == label_logits) & (classes < labels[:, None]))
    ranks = ahead.sum(1)
    nats = cross_entropy(logits, labels, reduction="sum")
    counts = [float((ranks < 1).sum()), float((ranks < 5).sum()), float(nats), float(len(labels))]
    return torch.tensor(counts, dtype=torch.float64, device=logits.device)


def bits_per_byte(
    model: Model, batches: Iterable[tuple[Tensor, Tensor]], byte_lengths: np.ndarray | Tensor
) -> float:
    """The bits that the text costs per byte.

    Σ −ln p(token) / (ln 2 · Σ bytes of the token), over the labels that have bytes. Losses per token cannot
    be compared between tokenizers, since longer tokens are fewer and harder; bytes are the same for all.

    Args:
        model: from token numbers ``[b n]`` to logits ``[b n V]``.
        batches: token numbers and labels, both ``[b n]``; a label of -1 is left out.
        byte_lengths: ``[V]``, the bytes of each token; 0 for special tokens, which are left out of both sums.

    Raises:
        ValueError: if the labels have no bytes, or one of them is no token.

    References:
        nanochat at commit 212bdae, ``nanochat/loss_eval.py``. Chapter 22 teaches it.
    """
    return text_loss(model, batches, byte_lengths)["bpb"]


def text_loss(
    model: Model,
    batches: Iterable[tuple[Tensor, Tensor]],
    byte_lengths: np.ndarray | Tensor,
    *,
    total: Total | None = None,
) -> dict[str, float]:
    """``bpb``, see ``bits_per_byte``, and ``loss``, the mean nats per token, special tokens included.

    Arguments and errors are those of ``bits_per_byte``; ``total`` is that of ``accuracy``.
    """
    device = device_of(model)
    lengths = torch.as_tensor(byte_lengths).to(device, torch.float64)
    sums = torch.zeros(4, dtype=torch.float64, device=device)
    with evaluating(model):
        for inputs, labels in batches:
            for logits, expected in zip(model(inputs.to(device)), labels.to(device), strict=True):
                sums += _bit_counts(logits, expected, lengths)
    nats, size, all_nats, tokens = (sums if total is None else total(sums)).tolist()
    if not size:
        raise ValueError("evaluate: there are no bytes to count bits for: every label is special or left out")
    return {"bpb": nats / (math.log(2) * size), "loss": all_nats / tokens}


def _bit_counts(logits: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
    """Nats of a row's tokens with bytes, their bytes, nats of all, their number.

    Row by row, since logits in full precision are large.
    """
    counted = labels != -1
    logits, labels = logits[counted], labels[counted]
    vocabulary = min(logits.shape[1], len(lengths))
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < vocabulary:
        raise ValueError(
            f"evaluate: labels from {int(labels.min())} to {int(labels.max())}; the model has "
            f"{logits.shape[1]} tokens, and there are byte lengths of {len(lengths)}"
        )
    nats = cross_entropy(logits.float(), labels, reduction="none").double()
    size = lengths[labels]
    count = torch.tensor(float(len(labels)), dtype=torch.float64, device=logits.device)
    return torch.stack([nats[size > 0].sum(), size.sum(), nats.sum(), count])

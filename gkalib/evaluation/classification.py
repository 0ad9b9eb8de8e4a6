"""How often a classifier's first guess, or one of its first five, is right."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from gkalib.evaluation.mode import Model, device_of, evaluating


def accuracy(model: Model, batches: Iterable[tuple[Tensor, Tensor]]) -> dict[str, float]:
    """Top-1 and top-5 accuracy and the mean cross-entropy in nats.

    A label is among the first k if fewer than k classes are ahead of it: those of a larger logit, and those
    of the same logit and a smaller number. A logit that is no number is never right.

    Args:
        model: from images ``[b channels height width]`` to logits ``[b classes]``.
        batches: images and labels ``[b]``; a label of -1 is left out.

    Returns:
        ``top1`` and ``top5``, shares from 0 to 1, and ``loss``.

    Raises:
        ValueError: if there is nothing to measure, or a label is no class of the model.

    Chapter 21 teaches it.
    """
    return accuracy_of(accuracy_sums(model, batches))


def accuracy_sums(model: Model, batches: Iterable[tuple[Tensor, Tensor]]) -> Float[Tensor, " 4"]:
    """What ``accuracy`` is made of: images right at the first guess, in five, nats, images.

    Sums of several processes add up, so each may measure a part of the images.
    """
    device = device_of(model)
    sums = torch.zeros(4, dtype=torch.float64, device=device)
    with evaluating(model):
        for images, labels in batches:
            labels = labels.to(device)
            logits = model(images.to(device)).float()[labels != -1]
            sums += _counted(logits, labels[labels != -1])
    return sums


def accuracy_of(sums: Float[Tensor, " 4"]) -> dict[str, float]:
    """The numbers of ``accuracy`` from its sums.

    Raises:
        ValueError: if they are of no image.
    """
    top1, top5, loss, images = sums.tolist()
    if not images:
        raise ValueError("evaluate: there are no labeled images to measure accuracy on")
    return {"top1": top1 / images, "top5": top5 / images, "loss": loss / images}


def _counted(logits: Tensor, labels: Tensor) -> Tensor:
    classes = torch.arange(logits.shape[1], device=logits.device)
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(classes):
        raise ValueError(
            f"evaluate: labels from {int(labels.min())} to {int(labels.max())}, "
            f"and the model has {len(classes)} classes"
        )
    own = logits.gather(1, labels[:, None])
    ahead = ~(logits <= own) | ((logits == own) & (classes < labels[:, None]))
    places = ahead.sum(1)
    nats = cross_entropy(logits, labels, reduction="sum")
    counts = [float((places < 1).sum()), float((places < 5).sum()), float(nats), float(len(labels))]
    return torch.tensor(counts, dtype=torch.float64, device=logits.device)

"""How many bits a model of text needs for one byte of it, whatever its tokens are."""

import math
from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from gkalib.evaluation.mode import Model, device_of, evaluating


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
    return bits_of(bit_sums(model, batches, byte_lengths))["bpb"]


def bit_sums(
    model: Model, batches: Iterable[tuple[Tensor, Tensor]], byte_lengths: np.ndarray | Tensor
) -> Float[Tensor, " 4"]:
    """What ``bits_of`` needs: nats of the tokens with bytes, their bytes, nats of all tokens, their number.

    Sums of several processes add up, so each may measure a part of the text.
    """
    device = device_of(model)
    lengths = torch.as_tensor(byte_lengths).to(device, torch.float64)
    sums = torch.zeros(4, dtype=torch.float64, device=device)
    with evaluating(model):
        for inputs, labels in batches:
            for logits, wanted in zip(model(inputs.to(device)), labels.to(device), strict=True):
                sums += _counted(logits, wanted, lengths)
    return sums


def bits_of(sums: Float[Tensor, " 4"]) -> dict[str, float]:
    """The bits per byte ``bpb``, and ``loss``, the mean nats per token, special tokens included.

    Raises:
        ValueError: if no token has bytes.
    """
    nats, size, all_nats, tokens = sums.tolist()
    if not size:
        raise ValueError("evaluate: there are no bytes to count bits for: every label is special or left out")
    return {"bpb": nats / (math.log(2) * size), "loss": all_nats / tokens}


def _counted(logits: Tensor, labels: Tensor, lengths: Tensor) -> Tensor:
    """The four sums of one row; row by row, since logits in full precision are large."""
    kept = labels != -1
    logits, labels = logits[kept], labels[kept]
    most = min(logits.shape[1], len(lengths))
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < most:
        raise ValueError(
            f"evaluate: labels from {int(labels.min())} to {int(labels.max())}; the model has "
            f"{logits.shape[1]} tokens, and there are byte lengths of {len(lengths)}"
        )
    nats = cross_entropy(logits.float(), labels, reduction="none").double()
    size = lengths[labels]
    count = torch.tensor(float(len(labels)), dtype=torch.float64, device=logits.device)
    return torch.stack([nats[size > 0].sum(), size.sum(), nats.sum(), count])

"""Fixed memories and kernels, trained: recalling pairs, and fitting a linear map from its points.

Both tasks draw their sequences anew for every batch. Arms share batches, held-out sequences and, where shapes
match, initial weights. Chapter 15 reads the records.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from chapters.experiments.variants import arms_of
from gkalib.experiments import TASKS, Study, Task, Trained
from gkalib.experiments.tasks import Batch, Outcomes
from gkalib.layers import Attention
from gkalib.models import GPTConfig, gpt

ARMS = ("softmax", "parallax", "forgetting", "linear", "gated", "gated_delta", "mesa")
LATE = 12  # pairs, from which on errors are late: least squares in 8 dimensions needs 8
# the best of a sweep on a seed of its own
RECALL_RATES: Mapping[str, float] = {
    "softmax": 8e-3,
    "parallax": 8e-3,
    "forgetting": 8e-3,
    "linear": 16e-3,
    "gated": 4e-3,
    "gated-delta": 16e-3,
    "mesa": 8e-3,
}
IN_CONTEXT_RATES: Mapping[str, float] = {
    "softmax": 4e-3,
    "parallax": 2e-3,
    "forgetting": 4e-3,
    "linear": 32e-3,
    "gated": 2e-3,
    "gated-delta": 16e-3,
    "mesa": 64e-3,
}
IGNORED = -100  # the label where nothing is predicted; PyTorch's losses leave it out
HELD_OUT, CHOOSING = 2**20, 2**21  # seeds of held-out sequences; no study has one


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _distinct(count: int, size: int, among: int, generator: torch.Generator) -> Tensor:
    """Different numbers below ``among`` in each row, ``[size, count]``."""
    return torch.rand(size, among, generator=generator).argsort(-1)[:, :count]


class Drawn(Task):
    """A task whose sequences are drawn; the held-out ones by a seed of their own.

    Args:
        test: how many are held out.
    """

    def __init__(self, *, test: int):
        self.test = test
        self.held_out = self.draw(test, _generator(HELD_OUT))

    @abstractmethod
    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """Sequences of the kind that is held out, and their labels."""

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        while True:
            yield self.draw(size, generator)

    def choose(self) -> None:
        """Hold out other sequences."""
        self.held_out = self.draw(self.test, _generator(CHOOSING))


class Recall(Drawn):
    r"""Multi-query associative recall: read pairs of a key and a value, then answer keys with their values.

    $$k_1\, v_1\, k_2\, v_2 \dots k_p\, v_p \;\square\; k_3 \;\square\; k_1 \;\square \dots$$

    The keys of a sequence differ, and so do its values. Every key is asked once, at a place drawn among every
    second of those behind the pairs; the rest are blank. A batch has as many pairs as one of ``pairs``, the
    held-out sequences as the last of them.

    Args:
        pairs: how many pairs a sequence may have.
        context: the length of a sequence.
        keys, values: how many of each there are.
        test: how many sequences are held out.

    References:
        Arora et al., Zoology, 2023, with 8,192 tokens, queries nearer to the pairs than far from them and, in
        their code, drawn tokens in the place of blanks; Arora et al., Simple linear attention language models
        balance the recall-throughput tradeoff, 2024, whose code puts a convolution before attention.
    """

    def __init__(
        self,
        *,
        pairs: Sequence[int] = (4, 8, 16),
        context: int = 64,
        keys: int = 32,
        values: int = 32,
        test: int = 512,
    ):
        if 4 * max(pairs) > context or max(pairs) > min(keys, values):
            raise ValueError(
                f"recall: {max(pairs)} pairs and their queries need {4 * max(pairs)} of {context} places, "
                f"and as many of {keys} keys and {values} values"
            )
        self.pairs, self.context, self.keys, self.values = tuple(pairs), context, keys, values
        self.config = GPTConfig(
            vocab_size=1 + keys + values, context=context, dim=64, depth=2, num_heads=4, positions="rope"
        )
        super().__init__(test=test)

    def model(self, attention: Attention, **changes: Any) -> nn.Module:
        model = gpt(self.config, attention=attention, **changes)
        model.embedding = WithPrevious(model.embedding.num_embeddings, model.embedding.embedding_dim)
        return model

    def sequences(self, pairs: int, size: int, generator: torch.Generator) -> Batch:
        """Sequences with so many pairs, ``[size, context]``, and their labels, ``IGNORED`` but at queries."""
        keys = 1 + _distinct(pairs, size, self.keys, generator)
        values = 1 + self.keys + _distinct(pairs, size, self.values, generator)
        places = 2 * pairs + 2 * _distinct(pairs, size, self.context // 2 - pairs, generator)
        inputs = torch.zeros(size, self.context, dtype=torch.int64)
        inputs[:, : 2 * pairs] = torch.stack([keys, values], dim=-1).flatten(1)
        labels = torch.full_like(inputs, IGNORED)
        return inputs.scatter_(1, places, keys), labels.scatter_(1, places, values)

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        return self.sequences(self.pairs[-1], size, generator)

    def batches(self, size: int, generator: torch.Generator) -> Iterator[Batch]:
        while True:
            pairs = self.pairs[int(torch.randint(len(self.pairs), (), generator=generator))]
            yield self.sequences(pairs, size, generator)

    def count(self, labels: Tensor) -> int:
        return int((labels != IGNORED).sum())

    def baseline(self) -> Tensor:
        """That of all values equally often."""
        return torch.full((len(self.held_out[0]),), math.log(self.values))

    def outcomes(self, model: nn.Module, size: int = 64) -> Outcomes:
        return self.answers(model, *self.held_out, size=size)

    def answers(self, model: nn.Module, inputs: Tensor, labels: Tensor, size: int = 64) -> Outcomes:
        """The loss of each sequence, in nats per query, and the share of its queries that are right."""
        logits = torch.cat([model(part) for part in inputs.split(size)])
        asked = labels != IGNORED
        losses = cross_entropy(logits.mT, labels, reduction="none").sum(-1) / asked.sum(-1)
        right = ((logits.argmax(-1) == labels) & asked).sum(-1) / asked.sum(-1)
        return Outcomes(losses, right)


class WithPrevious(nn.Embedding):
    """A vector of each token plus one of the token before it: a convolution of two tokens.

    So a value knows its key. Without this, layers must find a token's neighbor before they recall anything.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int):
        super().__init__(num_embeddings, embedding_dim)
        self.previous = nn.Embedding(num_embeddings, embedding_dim)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) + nn.functional.pad(self.previous(input[:, :-1]), (0, 0, 1, 0))


class InContext(Drawn):
    r"""In-context linear regression: predict w·x for a map w that is known from pairs (x, w·x) alone.

    $$(x_1, y_1, 0)\; (x'_1, 0, 1)\; (x_2, y_2, 0)\; (x'_2, 0, 1) \dots, \qquad y = w^\top x, \quad
    x \sim N(0, I), \quad w \sim N(0, I / d)$$

    A pair is one token, and the last channel marks a query. After each pair the sequence asks for the value
    at a new x' once, so that a sequence has the error after every number of pairs. Knowing nothing has the
    error 1, least squares after n pairs 1 − n/d below d and 0 from there on.

    Args:
        dim: d.
        pairs: how many pairs a sequence has, and queries.
        test: how many sequences are held out.

    References:
        Garg et al., What can transformers learn in-context?, 2022; von Oswald et al., Transformers learn
        in-context by gradient descent, 2023, for a pair as one token.
    """

    def __init__(self, *, dim: int = 8, pairs: int = 16, test: int = 1024):
        self.dim, self.pairs = dim, pairs
        self.config = GPTConfig(
            vocab_size=1, context=2 * pairs, dim=64, depth=2, num_heads=4, positions="none"
        )
        super().__init__(test=test)

    def model(self, attention: Attention, **changes: Any) -> nn.Module:
        return Regressor(self.dim, gpt(self.config, attention=attention, **changes))

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """Sequences ``[size, 2 pairs, d + 2]``, and the values at their queries ``[size, pairs]``."""
        line = torch.randn(size, self.dim, 1, generator=generator) / math.sqrt(self.dim)
        x = torch.randn(size, 2 * self.pairs, self.dim, generator=generator)
        value = x @ line
        asked = (torch.arange(2 * self.pairs) % 2)[:, None].expand_as(value).to(x.dtype)
        return torch.cat([x, value * (1 - asked), asked], dim=-1), value[:, 1::2, 0]

    def nats(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """The sum of the squared errors."""
        return (outputs - labels).square().sum()

    def baseline(self) -> Tensor:
        """The error of predicting 0, which is that of the best guess before a pair is read."""
        return self.held_out[1].square().mean(-1)

    def errors(self, model: nn.Module, size: int = 64) -> Tensor:
        """The squared error at each query of each held-out sequence, ``[test, pairs]``."""
        inputs, labels = self.held_out
        return (torch.cat([model(part) for part in inputs.split(size)]) - labels).square()

    def outcomes(self, model: nn.Module, size: int = 64) -> Outcomes:
        return Outcomes(self.errors(model, size).mean(-1), None)


class Regressor(nn.Module):
    """A decoder's blocks between a linear map of each token and a linear map to one number at each query.

    Args:
        dim: d; tokens have d + 2 channels.
        decoder: whose blocks and last norm it takes.
    """

    def __init__(self, dim: int, decoder: Any):
        super().__init__()
        self.config = decoder.config
        self.read = nn.Linear(dim + 2, decoder.config.dim)
        self.blocks, self.norm = decoder.blocks, decoder.norm
        self.answer = nn.Linear(decoder.config.dim, 1)

    def forward(self, tokens: Tensor) -> Tensor:
        """Predictions ``[b pairs]`` at the queries of sequences ``[b 2·pairs d + 2]``."""
        x = self.read(tokens)
        for block in self.blocks:
            x = block(x, tokens)
        return self.answer(self.norm(x[:, 1::2]))[..., 0]


TASKS |= {"recall": Recall, "in-context": InContext}


def recall() -> list[Study]:
    """One arm a layer on multi-query associative recall, 4 to 16 pairs in 64 tokens."""
    return _arms("recall", RECALL_RATES, batch=16)


def in_context() -> list[Study]:
    """One arm a layer on in-context linear regression in 8 dimensions, up to 16 pairs.

    ``mesa-slower`` is the Mesa layer at half its rate, at which one of its five runs learned nothing.
    """
    every = _arms("in-context", IN_CONTEXT_RATES, batch=32)
    return every + [replace(one, arm="mesa-slower", lr=one.lr / 2) for one in every if one.arm == "mesa"]


def _arms(name: str, rates: Mapping[str, float], *, batch: int) -> list[Study]:
    """One arm a layer on the task of that name."""
    settings = {"model": {"mlp_ratio": 1}, "steps": 400, "warmup": 40, "batch": batch, "shared": True}
    return arms_of(ARMS, learning_rates=rates, experiment=name, task=name, **settings)


@torch.no_grad()
def by_pairs(model: Any, learned: Any) -> dict[str, float]:
    """The share of queries answered rightly in sequences with so many pairs, ``accuracy_4`` and on."""
    found = {}
    for pairs in learned.pairs:
        drawn = learned.sequences(pairs, learned.test, torch.Generator().manual_seed(2**20 + pairs))
        found[f"accuracy_{pairs}"] = learned.answers(model, *drawn).right.mean().item()
    return found


@torch.no_grad()
def by_points(model: Any, learned: Any) -> dict[str, float | Tensor]:
    """The squared error after each number of pairs, ``error_1`` and on; ``late`` is the mean of the last."""
    errors = learned.errors(model)
    found = {f"error_{pairs}": error for pairs, error in enumerate(errors.mean(0).tolist(), start=1)}
    return found | {"late": errors[:, LATE - 1 :].mean(-1)}


EXPERIMENTS = {"recall": Trained(recall, by_pairs), "in-context": Trained(in_context, by_points)}

"""CORE's scorer: likelihoods of continuations, what they choose, and accuracy above guessing."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gkalib.data.tokenizers import Tokenizer
from gkalib.evaluation.items import Completion, Item, Row, rows
from gkalib.evaluation.mode import Model, device_of, evaluating
from gkalib.evaluation.outcome import TaskResult, outcome
from gkalib.evaluation.tasks import TASKS, Task, drawn

BLOCK = 512  # questions that are written as tokens at a time: ten examples before each make them long


class Score(NamedTuple):
    """What a model finds of one continuation.

    Args:
        total: Σ ln p(token) over the continuation, in nats.
        mean: ln p of a token on average, over those that tell the options apart.
        greedy: whether each of these is the model's most probable token.
    """

    total: float
    mean: float
    greedy: bool


class Answer(NamedTuple):
    """What a model answers to one question.

    Args:
        item: the question.
        scores: of each option.
        chosen: the option of the largest mean, the first of equals.
        right: whether that is the right one; for a completion, whether all its tokens are found.
        cropped: whether the text was too long for the model's context and its beginning was left out.
    """

    item: Item
    scores: tuple[Score, ...]
    chosen: int
    right: bool
    cropped: bool


def evaluate(
    model: Model,
    tokenizer: Tokenizer,
    names: Sequence[str] = tuple(TASKS),
    *,
    limit: int | None = None,
    shots: int | None = None,
    tokens: int = 8192,
    share: tuple[int, int] = (0, 1),
    total: Callable[[Tensor], Tensor] | None = None,
) -> list[TaskResult]:
    """What a model of text reaches in some tasks, asked as CORE asks.

    Processes that each hold the model can share the questions, in blocks that are the same however many share
    them, so that the answers are too.

    Args:
        model: from token numbers ``[b n]`` to logits ``[b n V]``; it reads ``model.config.context`` at most.
        tokenizer: the one it was trained with.
        names: of the tasks.
        limit: how many questions of each at most; None is all.
        shots: how many examples precede each; None is what the task says.
        tokens: how many go through the model at once.
        share: this process's number r and how many there are, R: it takes blocks r, r + R, … of questions.
        total: sums a tensor over the processes, in each of them; None where there is one.

    Raises:
        ValueError: if a task is unknown or its set not here, model and tokenizer do not belong together, or
            processes are to share without a sum.

    References:
        Li et al., DataComp-LM, 2024; nanochat at commit 212bdae. Chapter 22 teaches it.
    """
    if unknown := set(names) - set(TASKS):
        raise ValueError(f"evaluate: no task {min(unknown)!r}. Known: {', '.join(TASKS)}")
    rank, size = share
    if not 0 <= rank < size or (size > 1 and total is None):
        raise ValueError(f"evaluate: process {rank} of {size} cannot share the questions without the others")
    tasks = [TASKS[name] for name in names]
    counts = [task.shots if shots is None else shots for task in tasks]
    tallies, turn = torch.zeros(len(tasks), 4, dtype=torch.float64), 0
    for task, count, tally in zip(tasks, counts, tallies, strict=True):
        items, start = task.items(limit), time.perf_counter()
        for begin in range(0, len(items), BLOCK):
            if turn % size == rank:
                tally[:3] += _tally(_block(model, tokenizer, task, items, begin, shots=count, tokens=tokens))
            turn += 1
        tally[3] = (time.perf_counter() - start) / size
    if total is not None:
        tallies = total(tallies)
    found = []
    for task, count, tally in zip(tasks, counts, tallies, strict=True):
        number, right, cropped = tally[:3].int().tolist()
        found.append(outcome(task, number, right, cropped, shots=count, seconds=float(tally[3])))
    return found


def answers(
    model: Model,
    tokenizer: Tokenizer,
    task: Task,
    *,
    limit: int | None = None,
    shots: int | None = None,
    tokens: int = 8192,
) -> list[Answer]:
    """What a model answers to each question of a task, in the task's order; arguments as for ``evaluate``."""
    count = task.shots if shots is None else shots
    return _answers(model, tokenizer, task, task.items(limit), shots=count, tokens=tokens)


def _answers(
    model: Model, tokenizer: Tokenizer, task: Task, items: list[Item], *, shots: int, tokens: int
) -> list[Answer]:
    given = []
    for begin in range(0, len(items), BLOCK):
        given += _block(model, tokenizer, task, items, begin, shots=shots, tokens=tokens)
    return given


def _block(
    model: Model, tokenizer: Tokenizer, task: Task, items: list[Item], begin: int, *, shots: int, tokens: int
) -> list[Answer]:
    """The answers to a block of the questions."""
    _fits(model, tokenizer)
    longest, given, block = context_of(model) + 1, [], items[begin : begin + BLOCK]
    asked = [
        rows(item, tokenizer, delimiter=task.delimiter, examples=drawn(items, index, shots))
        for index, item in enumerate(block, begin)
    ]
    scores = iter(score(model, [row for options in asked for row in options], tokens=tokens))
    for item, options in zip(block, asked, strict=True):
        found = tuple(next(scores) for _ in options)
        cropped = any(len(row.tokens) > longest for row in options)
        given.append(_answered(item, found, cropped))
    return given


def _answered(item: Item, scores: tuple[Score, ...], cropped: bool) -> Answer:
    chosen = max(range(len(scores)), key=lambda option: scores[option].mean)
    right = scores[0].greedy if isinstance(item, Completion) else chosen == item.right
    return Answer(item, scores, chosen, right, cropped)


def result_of(task: Task, given: Sequence[Answer], *, shots: int, seconds: float) -> TaskResult:
    """The share of right answers and its standard error."""
    return outcome(task, *_tally(given).int().tolist(), shots=shots, seconds=seconds)


def _tally(given: Sequence[Answer]) -> Tensor:
    """How many questions there were, were answered rightly, and were too long."""
    right, cropped = sum(answer.right for answer in given), sum(answer.cropped for answer in given)
    return torch.tensor([len(given), right, cropped], dtype=torch.float64)


def score(model: Model, sequences: Sequence[Row], *, tokens: int = 8192) -> list[Score]:
    """The likelihood of each sequence's continuation.

    Sequences of similar length go through the model together, filled up at their ends, which a causal model
    does not see. Of a sequence longer than the model's context, as many tokens from its end are read as the
    context holds, and one more that is only predicted; of a continuation that is longer, what is left of it.

    Args:
        model: as for ``evaluate``.
        sequences: tokens, with the places where continuation and region begin.
        tokens: how many go through the model at once, at least one sequence.

    Raises:
        ValueError: if the model's logits are not numbers.
    """
    context, device = context_of(model), device_of(model)
    cut = [_cropped(row, context + 1) for row in sequences]
    order = sorted(range(len(cut)), key=lambda place: -len(cut[place].tokens))
    scores: dict[int, Score] = {}
    with evaluating(model):
        while order:
            longest = len(cut[order[0]].tokens) - 1
            count = max(1, tokens // longest)
            places, order = order[:count], order[count:]
            ids = torch.zeros(len(places), longest, dtype=torch.long)
            for line, place in zip(ids, places, strict=True):
                read = cut[place].tokens[:-1]
                line[: len(read)] = torch.tensor(read)
            logits = model(ids.to(device))
            scores.update((place, _scored(logits[at], cut[place])) for at, place in enumerate(places))
    return [scores[place] for place in range(len(cut))]


def context_of(model: Model) -> int:
    """The most tokens that a model reads.

    Raises:
        ValueError: if it does not say.
    """
    context = getattr(getattr(model, "config", None), "context", None)
    if not isinstance(context, int) or context < 1:
        raise ValueError("evaluate: the model does not say how much it reads: model.config.context")
    return context


def _fits(model: Any, tokenizer: Tokenizer) -> None:
    size = getattr(getattr(model, "config", None), "vocab_size", tokenizer.vocab_size)
    if size < tokenizer.vocab_size:
        raise ValueError(
            f"evaluate: the tokenizer {tokenizer.name!r} has {tokenizer.vocab_size} tokens and the model "
            f"{size}: they do not belong together"
        )


def _cropped(row: Row, most: int) -> Row:
    left = max(0, len(row.tokens) - most)
    return Row(row.tokens[left:], max(1, row.begin - left), max(1, row.region - left))


def _scored(logits: Tensor, row: Row) -> Score:
    """One sequence's score from its logits, of which the last predicts the last token."""
    first, end = min(row.begin, row.region), len(row.tokens)
    wanted = torch.tensor(row.tokens[first:], device=logits.device)
    logs = torch.log_softmax(logits[first - 1 : end - 1].float(), dim=-1)
    found = logs.gather(1, wanted[:, None])[:, 0].double()
    if found.isnan().any():
        raise ValueError("evaluate: the model's logits are not numbers")
    best = logs.argmax(dim=-1) == wanted
    region = row.region - first
    return Score(
        float(found[row.begin - first :].sum()), float(found[region:].mean()), bool(best[region:].all())
    )

"""CORE's scorer: likelihoods of continuations, what they choose, and accuracy with its standard error."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from gkalib.data.tasks import Completion, Item
from gkalib.data.tokenizers import Tokenizer
from gkalib.evaluation.metrics import Model, device_of, evaluating
from gkalib.evaluation.tasks import TASKS, Row, Task, drawn, rows

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
    """

    item: Item
    scores: tuple[Score, ...]
    chosen: int
    right: bool


def centered(accuracy: float, baseline: float) -> float:
    """(accuracy − baseline) / (1 − baseline): guessing gives 0, knowing everything 1."""
    return (accuracy - baseline) / (1 - baseline)


@final
@dataclass(frozen=True)
class TaskResult:
    """What a model reaches in one task.

    Args:
        name: CORE's name of it.
        accuracy: the share of questions answered rightly.
        error: the standard error of that, √(accuracy · (1 − accuracy) / (items − 1)).
        baseline: the accuracy of guessing.
        items: how many questions there were.
        shots: how many examples preceded each.
        seconds: what it took, once the questions were read from their set; of processes that shared them the
            mean.
    """

    name: str
    accuracy: float
    error: float
    baseline: float
    items: int
    shots: int
    seconds: float

    @property
    def centered(self) -> float:
        """The accuracy above guessing, 0 for guessing and 1 for all."""
        return centered(self.accuracy, self.baseline)

    @property
    def centered_error(self) -> float:
        """The standard error of the centered accuracy."""
        return self.error / (1 - self.baseline)


class Core(NamedTuple):
    """The mean of centered accuracies over some tasks.

    Args:
        mean: over the tasks.
        error: its standard error from the questions' number alone: √(Σ error²) / tasks.
        tasks: how many they are.
    """

    mean: float
    error: float
    tasks: int


def evaluate(
    model: Model,
    tokenizer: Tokenizer,
    names: Sequence[str] = tuple(TASKS),
    *,
    limit: int | None = None,
    shots: int | None = None,
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
        share: this process's number r and how many there are, R: it takes blocks r, r + R, … of questions.
        total: sums a tensor over the processes, in each of them; None where there is one.

    Raises:
        ValueError: if a task is unknown or its set not here, model and tokenizer do not belong together, or
            processes are to share without a sum.

    References:
        Li et al., DataComp-LM, 2024; nanochat at commit 212bdae. Chapter 24 teaches it.
    """
    if unknown := set(names) - set(TASKS):
        raise ValueError(f"evaluate: no task {min(unknown)!r}. Known: {', '.join(TASKS)}")
    rank, size = share
    if not 0 <= rank < size or (size > 1 and total is None):
        raise ValueError(f"evaluate: process {rank} of {size} cannot share the questions without the others")
    changed = {} if shots is None else {"shots": shots}
    tasks = [replace(TASKS[name], **changed) for name in names]
    tallies, turn = torch.zeros(len(tasks), 3, dtype=torch.float64), 0  # questions, right ones, seconds
    for task, tally in zip(tasks, tallies, strict=True):
        items, start = task.items(limit), time.perf_counter()
        for begin in range(0, len(items), BLOCK):
            if turn % size == rank:
                found = _block(model, tokenizer, task, items, begin)
                tally[:2] += torch.tensor([len(found), sum(answer.right for answer in found)])
            turn += 1
        tally[2] = (time.perf_counter() - start) / size
    if total is not None:
        tallies = total(tallies)
    return [_result(task, *tally.tolist()) for task, tally in zip(tasks, tallies, strict=True)]


def answers(model: Model, tokenizer: Tokenizer, task: Task) -> list[Answer]:
    """What a model answers to each question of a task, in the task's order; arguments as for ``evaluate``."""
    items = task.items()
    blocks = (_block(model, tokenizer, task, items, begin) for begin in range(0, len(items), BLOCK))
    return list(chain.from_iterable(blocks))


def _block(model: Model, tokenizer: Tokenizer, task: Task, items: list[Item], begin: int) -> list[Answer]:
    """The answers to a block of the questions."""
    _check_vocabulary(model, tokenizer)
    results, block = [], items[begin : begin + BLOCK]
    prompts = [
        rows(item, tokenizer, delimiter=task.delimiter, examples=drawn(items, index, task.shots))
        for index, item in enumerate(block, begin)
    ]
    scores = iter(score(model, [row for options in prompts for row in options]))
    for item, options in zip(block, prompts, strict=True):
        item_scores = tuple(next(scores) for _ in options)
        chosen = max(range(len(item_scores)), key=[score.mean for score in item_scores].__getitem__)
        right = item_scores[0].greedy if isinstance(item, Completion) else chosen == item.gold
        results.append(Answer(item, item_scores, chosen, right))
    return results


def result_of(task: Task, results: Sequence[Answer], *, seconds: float) -> TaskResult:
    """The share of right answers and its standard error."""
    return _result(task, len(results), sum(answer.right for answer in results), seconds)


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
    rows = [_crop(row, context + 1) for row in sequences]
    order = sorted(range(len(rows)), key=lambda place: -len(rows[place].tokens))
    scores: dict[int, Score] = {}
    with evaluating(model):
        while order:
            longest = len(rows[order[0]].tokens) - 1
            count = max(1, tokens // longest)
            places, order = order[:count], order[count:]
            read = [torch.tensor(rows[place].tokens[:-1], dtype=torch.long) for place in places]
            logits = model(pad_sequence(read, batch_first=True).to(device))
            scores.update((place, _score(logits[index], rows[place])) for index, place in enumerate(places))
    return [scores[place] for place in range(len(rows))]


def context_of(model: Model) -> int:
    """The most tokens that a model reads.

    Raises:
        ValueError: if it does not say.
    """
    context = getattr(getattr(model, "config", None), "context", None)
    if not isinstance(context, int) or context < 1:
        raise ValueError("evaluate: the model does not say how much it reads: model.config.context")
    return context


def _check_vocabulary(model: Any, tokenizer: Tokenizer) -> None:
    size = getattr(getattr(model, "config", None), "vocab_size", tokenizer.vocab_size)
    if size < tokenizer.vocab_size:
        raise ValueError(
            f"evaluate: the tokenizer {tokenizer.name!r} has {tokenizer.vocab_size} tokens and the model "
            f"{size}: they do not belong together"
        )


def _crop(row: Row, longest: int) -> Row:
    start = max(0, len(row.tokens) - longest)
    return Row(row.tokens[start:], max(1, row.begin - start), max(1, row.region - start))


def _score(logits: Tensor, row: Row) -> Score:
    """One sequence's score from its logits, of which the last predicts the last token."""
    first, end = min(row.begin, row.region), len(row.tokens)
    targets = torch.tensor(row.tokens[first:], device=logits.device)
    logs = torch.log_softmax(logits[first - 1 : end - 1].float(), dim=-1)
    log_probs = logs.gather(1, targets[:, None])[:, 0].double()
    if log_probs.isnan().any():
        raise ValueError("evaluate: the model's logits are not numbers")
    best = logs.argmax(dim=-1) == targets
    region = row.region - first
    return Score(
        float(log_probs[row.begin - first :].sum()),
        float(log_probs[region:].mean()),
        bool(best[region:].all()),
    )


def core(results: Sequence[TaskResult]) -> Core:
    """CORE over the tasks that were measured; compare models on the tasks that both have.

    Raises:
        ValueError: if there are none.
    """
    if not results:
        raise ValueError("evaluate: CORE is a mean over tasks, and there are none")
    error = math.sqrt(sum(result.centered_error**2 for result in results))
    mean = sum(result.centered for result in results) / len(results)
    return Core(mean, error / len(results), len(results))


def _result(task: Task, items: int | float, right: int | float, seconds: float) -> TaskResult:
    """The share of right answers and its standard error, from how many there are of each."""
    accuracy = right / items
    error = math.sqrt(accuracy * (1 - accuracy) / (items - 1)) if items > 1 else math.nan
    return TaskResult(task.name, accuracy, error, task.baseline, int(items), task.shots, seconds)


class Comparison(NamedTuple):
    """The difference of two accuracies on the same questions.

    Args:
        difference: the first accuracy less the second.
        error: its standard error, from the differences question by question.
        only_first, only_second: how many questions one model alone answered rightly.
        items: how many questions there were.
        probability: McNemar's exact test: how often a fair coin divides as unevenly what tells the models
            apart. Twice the probability of at most min(only_first, only_second) heads in as many throws as
            there are such questions, at most 1.
    """

    difference: float
    error: float
    only_first: int
    only_second: int
    items: int
    probability: float


def compare(first: Sequence[bool], second: Sequence[bool]) -> Comparison:
    """Compare two models question by question.

    With δᵢ = first − second in {−1, 0, 1}, the difference is the mean of δ and its standard error
    √(Σ (δᵢ − mean)² / (n (n − 1))). Questions that both answer alike add nothing to it.

    Args:
        first, second: whether each question was answered rightly, in the same order.

    Raises:
        ValueError: if they are not of equally many questions, at least two.

    References:
        McNemar, Note on the sampling error of the difference between correlated proportions, 1947. Chapter 24
        teaches it.
    """
    if len(first) != len(second) or len(first) < 2:
        raise ValueError(
            f"evaluate: a comparison needs the same questions, at least two: {len(first)} and {len(second)} "
            "answers"
        )
    from scipy.stats import binomtest, sem  # half a second, which who trains does not wait

    difference = np.asarray(first, float) - np.asarray(second, float)
    only_first, only_second = int((difference > 0).sum()), int((difference < 0).sum())
    throws = only_first + only_second
    return Comparison(
        float(difference.mean()),
        float(sem(difference)),
        only_first,
        only_second,
        len(first),
        float(binomtest(only_first, throws).pvalue) if throws else 1.0,
    )

"""The tasks of CORE that can be had: how often each is shown, in which tokens, and what guessing gives."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

from gkalib.data.tasks import Item, benchmark, common_prefix
from gkalib.data.tokenizers import Tokenizer


class Row(NamedTuple):
    """One sequence of tokens of which the model is to judge the last.

    Args:
        tokens: all of it, as long as it may be.
        begin: where the continuation begins, which ``total`` sums over.
        region: where the tokens begin that tell the options apart, which ``mean`` is taken over.
    """

    tokens: list[int]
    begin: int
    region: int


def rows(
    item: Item, tokenizer: Tokenizer, *, delimiter: str = " ", examples: Sequence[Item] = ()
) -> list[Row]:
    """The sequences of tokens, one for each option, that a question comes down to.

    Args:
        item: the question.
        tokenizer: its ``bos``, if it has one, stands before everything.
        delimiter: what stands between context and continuation.
        examples: questions that are asked before it and answered, an empty line after each.

    Raises:
        ValueError: if nothing stands before a continuation.
    """
    before = "".join(example.solved(delimiter) + "\n\n" for example in examples)
    first = [] if tokenizer.bos is None else [tokenizer.bos]
    tokens, starts = [], []
    for context, continuation in item.prompts(delimiter):
        whole = [*first, *map(int, tokenizer.encode(before + context + continuation))]
        alone = [*first, *map(int, tokenizer.encode(before + context))]
        tokens.append(whole)
        # Where a token reaches across the border, the continuation begins with that token.
        starts.append(min(common_prefix([whole, alone]), len(whole) - 1))
    sequences = [Row(*row) for row in zip(tokens, starts, item.region(tokens, starts), strict=True)]
    if min(min(row.begin, row.region) for row in sequences) < 1:
        raise ValueError(
            f"evaluate: nothing stands before the continuation of {item}, and the tokenizer "
            f"{tokenizer.name!r} has no token to begin with"
        )
    return sequences


@final
@dataclass(frozen=True)
class Task:
    """A set of questions and how they are asked.

    The questions are shuffled once, always in the same way, so that a few of them are a fair sample. The
    examples of the question at place i of that order are drawn from the others with the seed 1234 + i.

    Args:
        name: CORE's name.
        data: the name of its set, as ``gkalib.data.benchmark`` has it.
        shots: how many examples precede a question.
        baseline: the accuracy of guessing, which centering takes for zero.
        delimiter: what stands between context and continuation.

    References:
        Li et al., DataComp-LM, 2024, for CORE; nanochat at commit 212bdae, ``nanochat/core_eval.py``, for
        seeds, prompts and baselines. Chapter 24 teaches it.
    """

    name: str
    data: str
    shots: int
    baseline: float
    delimiter: str = " "

    def items(self, limit: int | None = None) -> list[Item]:
        """The questions in their order, or the first ``limit`` of them.

        Raises:
            ValueError: if ``limit`` is below 1, or the set is not here.
        """
        if limit is not None and limit < 1:
            raise ValueError(f"evaluate: limit must be at least 1, not {limit}")
        items = benchmark(self.data)
        random.Random(1337).shuffle(items)
        return items[:limit]


def drawn(items: Sequence[Item], index: int, shots: int) -> list[Item]:
    """The examples that precede the question at one place: others, drawn with the seed 1234 + ``index``.

    Raises:
        ValueError: if there are not so many others.
    """
    others = [place for place in range(len(items)) if place != index]
    if not 0 <= shots <= len(others):
        raise ValueError(f"evaluate: {shots} examples cannot be drawn from {len(others)} other questions")
    return [items[place] for place in random.Random(1234 + index).sample(others, shots)]


_ANSWER = "\nAnswer: "
TASKS = {
    task.name: task
    for task in (
        Task("hellaswag_zeroshot", "hellaswag", 0, 0.25),
        Task("copa", "copa", 0, 0.5),
        Task("openbook_qa", "openbookqa", 0, 0.25),
        Task("lambada_openai", "lambada", 0, 0.0),
        Task("winograd", "winograd", 0, 0.5),
        Task("winogrande", "winogrande", 0, 0.5),
        Task("hellaswag", "hellaswag", 10, 0.25),
        Task("jeopardy", "jeopardy", 10, 0.0, _ANSWER),
        Task("arc_easy", "arc_easy", 10, 0.25, _ANSWER),
        Task("arc_challenge", "arc_challenge", 10, 0.25, _ANSWER),
        Task("commonsense_qa", "commonsense_qa", 10, 0.2),
        Task("piqa", "piqa", 10, 0.5, _ANSWER),
        Task("squad", "squad", 10, 0.0),
        Task("coqa", "coqa", 0, 0.0),
        Task("boolq", "boolq", 10, 0.62, _ANSWER),
    )
}
"""Fifteen of CORE's 22 tasks by name; the six of BIG-bench and the one of AGIEval are in no package.

On the first six, which have no examples, the paper of GKA compares. Where a set differs from CORE's own copy:
``lambada_openai`` has spaces where novels have line ends, ``commonsense_qa`` five options instead of four,
``jeopardy`` 2,116 clues instead of 2,117, ``squad`` 1,000 questions instead of 10,570. Everything else was
compared with published prompts of CORE.
"""

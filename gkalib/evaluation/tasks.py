"""The tasks of CORE that can be had: forms of questions, how each set is asked, and what guessing gives."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

from gkalib.data.tasks import Question, benchmark
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


class Item(ABC):
    """A question whose answer is known.

    Args:
        gold: the number of the right option.
    """

    gold: int

    @abstractmethod
    def prompts(self, delimiter: str) -> list[tuple[str, str]]:
        """For each option the text before, and the continuation that the model is asked about.

        White space before the continuation belongs to it, as a tokenizer has it.
        """

    @abstractmethod
    def region(self, tokens: list[list[int]], begins: list[int]) -> list[int]:
        """Where the tokens of each option begin that are compared."""

    def solved(self, delimiter: str) -> str:
        """The question with its right answer, as an example for others."""
        return "".join(self.prompts(delimiter)[self.gold])


@final
@dataclass(frozen=True)
class Choice(Item):
    """One context and several options, of which the best is to be chosen.

    The options are compared on the tokens after those that all of them begin with, at least on their last.

    Args:
        context: what is asked.
        options: the answers.
        gold: the number of the right one.
    """

    context: str
    options: tuple[str, ...]
    gold: int

    def prompts(self, delimiter: str) -> list[tuple[str, str]]:
        return [_split(self.context + delimiter, option) for option in self.options]

    def region(self, tokens: list[list[int]], begins: list[int]) -> list[int]:
        return [min(_common(tokens), min(map(len, tokens)) - 1)] * len(tokens)


@final
@dataclass(frozen=True)
class Schema(Item):
    """Several contexts and one continuation: which context makes it most likely?

    They are compared on the tokens that all of them end with.

    Args:
        contexts: the readings.
        continuation: what follows each.
        gold: the number of the right context.
    """

    contexts: tuple[str, ...]
    continuation: str
    gold: int

    def prompts(self, delimiter: str) -> list[tuple[str, str]]:
        return [_split(context + delimiter, self.continuation) for context in self.contexts]

    def region(self, tokens: list[list[int]], begins: list[int]) -> list[int]:
        shared = min(_common([row[::-1] for row in tokens]), min(map(len, tokens)) - 1)
        return [len(row) - shared for row in tokens]


@final
@dataclass(frozen=True)
class Completion(Item):
    """A context whose continuation the model has to find token by token, each the most probable one.

    Args:
        context: what is given, without white space around it.
        continuation: what has to follow.
    """

    context: str
    continuation: str
    gold: int = field(default=0, init=False)

    def prompts(self, delimiter: str) -> list[tuple[str, str]]:
        return [_split(self.context.strip() + delimiter, self.continuation)]

    def region(self, tokens: list[list[int]], begins: list[int]) -> list[int]:
        return begins


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
    tokens, begins = [], []
    for context, continuation in item.prompts(delimiter):
        whole = [*first, *map(int, tokenizer.encode(before + context + continuation))]
        alone = [*first, *map(int, tokenizer.encode(before + context))]
        tokens.append(whole)
        # Where a token reaches across the border, the continuation begins with that token.
        begins.append(min(_common([whole, alone]), len(whole) - 1))
    sequences = [Row(*row) for row in zip(tokens, begins, item.region(tokens, begins), strict=True)]
    if min(min(row.begin, row.region) for row in sequences) < 1:
        raise ValueError(
            f"evaluate: nothing stands before the continuation of {item}, and the tokenizer "
            f"{tokenizer.name!r} has no token to begin with"
        )
    return sequences


def _split(context: str, continuation: str) -> tuple[str, str]:
    """Text before and continuation, with the white space between them in the continuation."""
    kept = context.rstrip()
    return kept, context[len(kept) :] + continuation


def _common(tokens: list[list[int]]) -> int:
    """How many tokens all sequences begin with."""
    columns = enumerate(zip(*tokens, strict=False))
    shortest = min(map(len, tokens), default=0)
    return next((place for place, column in columns if len(set(column)) > 1), shortest)


@final
@dataclass(frozen=True)
class Task:
    """A set of questions and how they are asked.

    The questions are shuffled once, always in the same way, so that a few of them are a fair sample. The
    examples of the question at place i of that order are drawn from the others with the seed 1234 + i.

    Args:
        name: CORE's name.
        data: the name of its set, as ``gkalib.data.benchmark`` has it.
        item: a question from a row of the set.
        shots: how many examples precede a question.
        baseline: the accuracy of guessing, which centering takes for zero.
        delimiter: what stands between context and continuation.

    References:
        Li et al., DataComp-LM, 2024, for CORE; nanochat at commit 212bdae, ``nanochat/core_eval.py``, for
        seeds, prompts and baselines. Chapter 22 teaches it.
    """

    name: str
    data: str
    item: Callable[[Question], Item]
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
        items = [self.item(row) for row in benchmark(self.data)]
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


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _hellaswag(row: Question) -> Item:
    return Choice(row["context"], tuple(row["options"]), row["answer"])


def _copa(row: Question) -> Item:
    """The premise goes on with ``because`` or ``therefore``, the options in small letters."""
    link = {"cause": "because", "effect": "therefore"}[row["asks"]]
    premise = row["premise"].strip().removesuffix(".")
    return Choice(f"{premise}, {link}", tuple(map(_lowered, row["options"])), row["answer"])


def _openbookqa(row: Question) -> Item:
    return Choice(row["question"], tuple(row["options"]), row["answer"])


def _arc(row: Question) -> Item:
    return Choice(f"Question: {row['question']}", tuple(row["options"]), row["answer"])


def _piqa(row: Question) -> Item:
    options = tuple(option.strip() for option in row["options"])
    return Choice(f"Question: {row['goal'].strip()}\n", options, row["answer"])


def _boolq(row: Question) -> Item:
    asked = f"Passage: {row['passage']}\nQuestion: {row['question']}"
    return Choice(asked, ("no", "yes"), row["answer"])


def _commonsense_qa(row: Question) -> Item:
    """The options are printed with letters and the letter is asked for; CORE prints four of the five."""
    letters = "ABCDE"[: len(row["options"])]
    listed = "\n".join(f"{letter}. {option}" for letter, option in zip(letters, row["options"], strict=True))
    return Choice(f"Question: {row['question']}\nChoices:\n{listed}\nAnswer:", tuple(letters), row["answer"])


def _winogrande(row: Question) -> Item:
    before, after = row["sentence"].split("_")
    return Schema(tuple(before + option for option in row["options"]), after.strip(), row["answer"])


def _winograd(row: Question) -> Item:
    return Schema(tuple(row["contexts"]), row["continuation"], row["answer"])


def _lambada(row: Question) -> Item:
    return Completion(row["passage"], row["answer"])


def _jeopardy(row: Question) -> Item:
    return Completion(f"{row['category']}: {row['question']}", row["answer"])


def _squad(row: Question) -> Item:
    return Completion(f"Context: {row['passage']}\nQuestion: {row['question']}\nAnswer:", row["answer"])


def _coqa(row: Question) -> Item:
    """A story and the conversation so far; white space between the parts as far as it is known of CORE's."""
    task = (
        "Below is a story followed by a series of related questions. Please answer the final question by "
        "referring to the story and the previous questions."
    )
    turns = "".join(f"\nQuestion: {question}\nAnswer: {answer}" for question, answer in row["earlier"])
    earlier = f"\nPreceding questions:{turns}\n" if turns else "\n"
    asked = f"{earlier}\nFinal question:\nQuestion: {row['question']}\nAnswer:"
    return Completion(f"{task}\nStory: {row['story']}{asked}", row["answer"])


_ANSWER = "\nAnswer: "
TASKS = {
    task.name: task
    for task in (
        Task("hellaswag_zeroshot", "hellaswag", _hellaswag, 0, 0.25),
        Task("copa", "copa", _copa, 0, 0.5),
        Task("openbook_qa", "openbookqa", _openbookqa, 0, 0.25),
        Task("lambada_openai", "lambada", _lambada, 0, 0.0),
        Task("winograd", "winograd", _winograd, 0, 0.5),
        Task("winogrande", "winogrande", _winogrande, 0, 0.5),
        Task("hellaswag", "hellaswag", _hellaswag, 10, 0.25),
        Task("jeopardy", "jeopardy", _jeopardy, 10, 0.0, _ANSWER),
        Task("arc_easy", "arc_easy", _arc, 10, 0.25, _ANSWER),
        Task("arc_challenge", "arc_challenge", _arc, 10, 0.25, _ANSWER),
        Task("commonsense_qa", "commonsense_qa", _commonsense_qa, 10, 0.2),
        Task("piqa", "piqa", _piqa, 10, 0.5, _ANSWER),
        Task("squad", "squad", _squad, 10, 0.0),
        Task("coqa", "coqa", _coqa, 0, 0.0),
        Task("boolq", "boolq", _boolq, 10, 0.62, _ANSWER),
    )
}
"""Fifteen of CORE's 22 tasks by name; the six of BIG-bench and the one of AGIEval are in no package.

Where a set differs from CORE's own copy: ``lambada_openai`` has spaces where novels have line ends,
``commonsense_qa`` five options instead of four, ``jeopardy`` 2,116 clues instead of 2,117, ``squad`` 1,000
questions instead of 10,570. Everything else was compared with published prompts of CORE.
"""

SIX = ("hellaswag_zeroshot", "copa", "openbook_qa", "lambada_openai", "winograd", "winogrande")
"""The six tasks without examples, on which the paper of GKA compares."""

"""The tasks of CORE that can be had: how each is asked, after how many examples, and what guessing gives."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from gkalib.data.tasks import Row, benchmark
from gkalib.evaluation.items import Choice, Completion, Item, Schema


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
    item: Callable[[Row], Item]
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


def _hellaswag(row: Row) -> Item:
    return Choice(row["context"], tuple(row["options"]), row["answer"])


def _copa(row: Row) -> Item:
    """The premise goes on with ``because`` or ``therefore``, the options in small letters."""
    link = {"cause": "because", "effect": "therefore"}[row["asks"]]
    premise = row["premise"].strip().removesuffix(".")
    return Choice(f"{premise}, {link}", tuple(map(_lowered, row["options"])), row["answer"])


def _openbookqa(row: Row) -> Item:
    return Choice(row["question"], tuple(row["options"]), row["answer"])


def _arc(row: Row) -> Item:
    return Choice(f"Question: {row['question']}", tuple(row["options"]), row["answer"])


def _piqa(row: Row) -> Item:
    options = tuple(option.strip() for option in row["options"])
    return Choice(f"Question: {row['goal'].strip()}\n", options, row["answer"])


def _boolq(row: Row) -> Item:
    asked = f"Passage: {row['passage']}\nQuestion: {row['question']}"
    return Choice(asked, ("no", "yes"), row["answer"])


def _commonsense_qa(row: Row) -> Item:
    """The options are printed with letters and the letter is asked for; CORE prints four of the five."""
    letters = "ABCDE"[: len(row["options"])]
    listed = "\n".join(f"{letter}. {option}" for letter, option in zip(letters, row["options"], strict=True))
    return Choice(f"Question: {row['question']}\nChoices:\n{listed}\nAnswer:", tuple(letters), row["answer"])


def _winogrande(row: Row) -> Item:
    before, after = row["sentence"].split("_")
    return Schema(tuple(before + option for option in row["options"]), after.strip(), row["answer"])


def _winograd(row: Row) -> Item:
    return Schema(tuple(row["contexts"]), row["continuation"], row["answer"])


def _lambada(row: Row) -> Item:
    return Completion(row["passage"], row["answer"])


def _jeopardy(row: Row) -> Item:
    return Completion(f"{row['category']}: {row['question']}", row["answer"])


def _squad(row: Row) -> Item:
    return Completion(f"Context: {row['passage']}\nQuestion: {row['question']}\nAnswer:", row["answer"])


def _coqa(row: Row) -> Item:
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

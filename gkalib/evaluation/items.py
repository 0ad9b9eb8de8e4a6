"""Questions in the three forms that a model of text can be asked: options, contexts, and what comes next."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

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


@dataclass(frozen=True)
class Item(ABC):
    """A question whose answer is known."""

    @abstractmethod
    def prompts(self, delimiter: str) -> list[tuple[str, str]]:
        """For each option the text before, and the continuation that the model is asked about.

        White space before the continuation belongs to it, as a tokenizer has it.
        """

    @abstractmethod
    def region(self, tokens: list[list[int]], begins: list[int]) -> list[int]:
        """Where the tokens of each option begin that are compared."""

    @property
    @abstractmethod
    def right(self) -> int:
        """The number of the right option."""

    def solved(self, delimiter: str) -> str:
        """The question with its right answer, as an example for others."""
        return "".join(self.prompts(delimiter)[self.right])


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

    @property
    def right(self) -> int:
        return self.gold

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

    @property
    def right(self) -> int:
        return self.gold

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

    @property
    def right(self) -> int:
        return 0

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
    found = [Row(*row) for row in zip(tokens, begins, item.region(tokens, begins), strict=True)]
    if min(min(row.begin, row.region) for row in found) < 1:
        raise ValueError(
            f"evaluate: nothing stands before the continuation of {item}, and the tokenizer "
            f"{tokenizer.name!r} has no token to begin with"
        )
    return found


def _split(context: str, continuation: str) -> tuple[str, str]:
    """Text before and continuation, with the white space between them in the continuation."""
    kept = context.rstrip()
    return kept, context[len(kept) :] + continuation


def _common(tokens: list[list[int]]) -> int:
    """How many tokens all sequences begin with."""
    places = zip(*tokens, strict=False)
    return next(
        (place for place, found in enumerate(places) if len(set(found)) > 1), min(map(len, tokens), default=0)
    )

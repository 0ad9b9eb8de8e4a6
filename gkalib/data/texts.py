"""Texts by name, in two parts, each as one piece or as documents."""

import re
import textwrap
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gkalib.data.corpora import dickens, tinystories
from gkalib.data.novels import novels
from gkalib.data.text import state_of_the_union
from gkalib.data.tokenizers import END


class Source(NamedTuple):
    """A text and what a document of it is.

    Args:
        load: returns the text.
        cut: its documents, in order.
    """

    load: Callable[[], str]
    cut: Callable[[str], list[str]]


class Parts(NamedTuple):
    """A text in two parts, each of one piece or of its documents.

    Args:
        train, held_out: all but the last tenth, and the last tenth.
        symbols: the characters of the whole text, however little of it is used.
    """

    train: list[str]
    held_out: list[str]
    symbols: set[str]


def split(name: str, *, documents: bool, wrap: int | None = None, limit: int | None = None) -> Parts:
    """A text without its last tenth, and that tenth.

    Args:
        name: of the text, one of ``SOURCES``.
        documents: whether the parts are lists of documents; else each is one piece.
        wrap: the width at which lines are wrapped; None leaves them.
        limit: how many characters are used, from the beginning; None is all.

    Raises:
        ValueError: if the text is not here, or too short to have two parts.
    """
    source = SOURCES[name]
    text = source.load()
    symbols, text = set(text) | ({"\n"} if wrap else set()), text[:limit]
    if not documents:
        text = wrapped(text, wrap)
        cut = len(text) * 9 // 10
        return Parts([text[:cut]], [text[cut:]], symbols)
    pieces = [wrapped(piece, wrap) for piece in source.cut(text)]
    cut = len(pieces) * 9 // 10
    if not cut:
        raise ValueError(f"data: {len(text)} characters of {name!r} hold too few documents for two parts")
    return Parts(pieces[:cut], pieces[cut:], symbols)


def wrapped(text: str, width: int | None) -> str:
    """Each line in lines of at most ``width`` characters."""
    if width is None:
        return text
    return "\n".join(textwrap.fill(line, width) for line in text.splitlines())


def made_up() -> str:
    """Sentences of made-up words, some far more frequent than others; the same ones every time."""
    random = np.random.default_rng(0)
    letters = random.integers(ord("a"), ord("z") + 1, (500, 6), dtype=np.uint8)
    words = [
        bytes(one[:length]).decode() for one, length in zip(letters, random.integers(2, 7, 500), strict=True)
    ]
    chosen = np.minimum(random.zipf(1.3, 20_000), 500) - 1
    return "".join(
        f"{words[number]}{'. ' if place % 10 == 9 else ' '}" for place, number in enumerate(chosen)
    )


def lines(text: str) -> list[str]:
    """The lines that hold anything: a paragraph of Dickens each."""
    return [line for line in text.splitlines() if line.strip()]


def paragraphs(text: str) -> list[str]:
    """What empty lines part."""
    return [piece.strip("\n") for piece in re.split(r"\n\s*\n", text) if piece.strip()]


def sentences(text: str) -> list[str]:
    """What a full stop, question mark or exclamation mark ends."""
    return [piece for line in text.splitlines() for piece in re.split(r"(?<=[.!?]) +", line) if piece.strip()]


def stories(text: str) -> list[str]:
    """What a mark ends; what follows the last mark is cut off in the sample, and left out."""
    return [piece.strip() for piece in text.split(END)[:-1] if piece.strip()]


SOURCES = {
    "dickens": Source(dickens, lines),
    "state-of-the-union": Source(state_of_the_union, sentences),
    "tinystories": Source(tinystories, stories),
    "novels": Source(novels, paragraphs),
    "made-up": Source(made_up, sentences),
}

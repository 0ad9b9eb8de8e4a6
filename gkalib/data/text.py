"""Novels, stories, speeches and web pages, and how each text is cut into two parts and into documents."""

import re
import textwrap
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gkalib.data.fetch import plain
from gkalib.data.registry import folder_text, hub_files, verified
from gkalib.data.tokenizers import END


def state_of_the_union() -> str:
    """Franklin D. Roosevelt's addresses to Congress, 1934 to 1945, in ASCII, one address a line.

    References:
        Chapter 8 trains on it where the novels may not be redistributed.
    """
    text = files("gkalib.data") / "state-of-the-union.txt"
    return verified("state_of_the_union", text.read_text(encoding="utf-8"))


def dickens() -> str:
    """Eight novels of Charles Dickens in ASCII, in the order of their publication, a paragraph a line.

    References:
        Mahlberg, Stockwell, Wiegand and Lentin, CLiC 2.1: Corpus Linguistics in Context, 2020.
    """
    return verified("dickens", folder_text("dickens"))


def tinystories() -> str:
    """Short stories in a small vocabulary, each ended by ``<|endoftext|>``; the last one is cut off.

    References:
        Eldan and Li, TinyStories: how small can language models be and still speak coherent English?, 2023.
    """
    return verified("tinystories", folder_text("tinystories"))


def tinystories_full() -> list[Path]:
    """The files of the stories to train on, whose column ``text`` has one a row.

    References:
        Eldan and Li, TinyStories: how small can language models be and still speak coherent English?, 2023.
    """
    return hub_files("tinystories_full", "train")


def fineweb_edu() -> list[Path]:
    """The files of pages, whose column ``text`` has one a row; the last file is held out.

    References:
        Penedo et al., The FineWeb datasets: decanting the web for the finest text data at scale, 2024.
    """
    return hub_files("fineweb_edu", "pages")


class TextParts(NamedTuple):
    """A text in two parts, each of one piece or of its documents.

    Args:
        train, held_out: all but the last tenth, and the last tenth.
        symbols: the characters of the whole text, however little of it is used.
    """

    train: list[str]
    held_out: list[str]
    symbols: set[str]


def split_text(name: str, *, documents: bool, wrap: int | None = None, limit: int | None = None) -> TextParts:
    """A text without its last tenth, that tenth, and all characters of the text, however little is used.

    Args:
        name: of the text, one of ``TEXTS``, or a text file, whose documents its empty lines part.
        documents: whether the parts are lists of documents; else each is one piece.
        wrap: the width at which lines are wrapped; None leaves them.
        limit: how many characters are used, from the beginning; None is all.
    """
    load, cut_documents = TEXTS.get(name, (lambda: plain(Path(name).read_bytes(), name), paragraphs))
    text = load()
    symbols, text = set(text) | ({"\n"} if wrap else set()), text[:limit]
    if not documents:
        text = wrap_lines(text, wrap)
        cut = len(text) * 9 // 10
        return TextParts([text[:cut]], [text[cut:]], symbols)
    pieces = [wrap_lines(piece, wrap) for piece in cut_documents(text)]
    cut = len(pieces) * 9 // 10
    if not cut:
        raise ValueError(f"data: {len(text)} characters of {name!r} hold too few documents for two parts")
    return TextParts(pieces[:cut], pieces[cut:], symbols)


def wrap_lines(text: str, width: int | None) -> str:
    """Each line in lines of at most ``width`` characters."""
    if width is None:
        return text
    return "\n".join(textwrap.fill(line, width) for line in text.splitlines())


def made_up_text() -> str:
    """Sentences of made-up words, some far more frequent than others; the same ones every time."""
    random = np.random.default_rng(0)
    letters = random.integers(ord("a"), ord("z") + 1, (500, 6), dtype=np.uint8)
    lengths = random.integers(2, 7, 500)
    words = [bytes(word[:length]).decode() for word, length in zip(letters, lengths, strict=True)]
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


# Name -> the loader of a text, and what parts it into documents.
TEXTS: dict[str, tuple[Callable[[], str], Callable[[str], list[str]]]] = {
    "dickens": (dickens, lines),
    "state-of-the-union": (state_of_the_union, sentences),
    "tinystories": (tinystories, stories),
    "made-up": (made_up_text, sentences),
}

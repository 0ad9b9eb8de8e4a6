"""From the name of a text to rows of tokens: read, cut in two parts, numbered, laid out in rows."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from gkalib.datasets import texts
from gkalib.datasets.packing import pack
from gkalib.datasets.rows import IGNORED, Documents, Packed, Rows, Windows, cut_off
from gkalib.datasets.tokenizers import Characters, Tokenizer, gpt2, train_bpe

__all__ = ["IGNORED", "Documents", "Packed", "Rows", "TextData", "Windows", "text_data"]


class TextData(NamedTuple):
    """What a decoder is trained on and what it is measured on.

    Args:
        train, held_out: their rows; no label is in two rows held out.
        tokenizer: what the tokens stand for.
    """

    train: Rows
    held_out: Rows
    tokenizer: Tokenizer


def text_data(
    data: str,
    *,
    tokenizer: Literal["characters", "gpt2", "bpe"],
    vocab_size: int,
    rows: Literal["windows", "documents", "packed"],
    context: int,
    wrap: int | None = None,
    limit: int | None = None,
    registers: int = 0,
) -> TextData:
    """The rows of a text by its name.

    Args:
        data: ``dickens``, ``novels``, ``state-of-the-union``, ``tinystories`` or ``made-up``, the last tenth
            of which is held out.
        tokenizer: ``characters`` of the text, ``gpt2``, or ``bpe``, learned from the part to train on.
        vocab_size: V of the model, which has to be the tokenizer's.
        rows: ``windows``, ``documents`` or ``packed``.
        context: T, the length of a row. In ``documents`` it counts, as in the run that this reproduces, the
            registers and the last label: a row has ``context - registers - 1`` tokens.
        wrap: the width at which lines are wrapped first; None leaves them.
        limit: how many characters are used; None is all.
        registers: of the model, R.

    Raises:
        ValueError: if there is no such text or it is not here, or it has no such rows, or V is not the
            tokenizer's.
    """
    # Stories stay apart where there is a token to part them; characters read the mark as it is spelled.
    apart = rows != "windows" or (tokenizer != "characters" and data == "tinystories")
    parts = texts.split(data, documents=apart, wrap=wrap, limit=limit)
    made = _tokenizer(tokenizer, *parts, vocab_size=vocab_size)
    width = context - registers if rows == "documents" else context + 1
    if rows == "windows":
        return TextData(
            _windows(parts[0], made, context, 1), _windows(parts[1], made, context, context), made
        )
    layout = _documents if rows == "documents" else _packed
    return TextData(layout(parts[0], made, width), layout(parts[1], made, width), made)


def _tokenizer(kind: str, train: list[str], held_out: list[str], *, vocab_size: int) -> Tokenizer:
    if kind == "bpe":
        return train_bpe(train, vocab_size)
    # Held-out characters are in the vocabulary: which there are is no secret that a model could learn from.
    made = (
        gpt2()
        if kind == "gpt2"
        else Characters(symbol for part in (train, held_out) for symbol in set("".join(part)))
    )
    if made.vocab_size != vocab_size:
        raise ValueError(
            f"data: the tokenizer {made.name} has {made.vocab_size} tokens, but the model has a vocabulary "
            f"of {vocab_size}: give --model.vocab_size {made.vocab_size}"
        )
    return made


def _begun(part: Sequence[str], tokenizer: Tokenizer) -> list[np.ndarray]:
    """The tokens of each document, behind the token that begins one, in their smallest type."""
    begin = [] if tokenizer.bos is None else [tokenizer.bos]
    return [np.concatenate([begin, ids]).astype(tokenizer.dtype) for ids in tokenizer.encode_all(part)]


def _windows(part: list[str], tokenizer: Tokenizer, context: int, stride: int) -> Rows:
    return Windows(np.concatenate(_begun(part, tokenizer)), context, stride=stride)


def _documents(part: list[str], tokenizer: Tokenizer, width: int) -> Rows:
    # As in the run that this reproduces, no token stands before a story and none behind it.
    return Documents(cut_off(tokenizer.encode_all(part), width, tokenizer.dtype), pad=tokenizer.bos or 0)


def _packed(part: list[str], tokenizer: Tokenizer, width: int) -> Rows:
    if tokenizer.bos is None:
        raise ValueError(
            "data: packed rows begin with a special token, which characters do not have: take bpe or gpt2"
        )
    done = pack(_begun(part, tokenizer), width, dtype=tokenizer.dtype)
    return Packed(done.rows, cropped=done.cropped / done.tokens)

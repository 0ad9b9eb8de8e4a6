"""From the name of a text to rows of tokens: read, cut in two parts, numbered, laid out in rows."""

from typing import Literal, NamedTuple

import numpy as np

from gkalib.data import prepared, texts
from gkalib.data.packing import pack
from gkalib.data.rows import IGNORED, Documents, Packed, Rows, Windows, cut_off
from gkalib.data.tokenizers import Characters, Tokenizer, gpt2, train_bpe

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
            of which is held out; ``tinystories-full``, a thousandth of which is; ``fineweb-edu``, the last
            file of which is.
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
    name, width = data.replace("_", "-"), context - registers if rows == "documents" else context + 1
    if name in prepared.LOADERS:
        if wrap is not None or tokenizer == "characters":
            raise ValueError(f"data: {name} is too large for characters or wrapped lines: take gpt2 or bpe")
        prepared.parts(name, rows)  # first of all: what is missing is said before anything is made
        made = prepared.learned(name, vocab_size, limit=limit) if tokenizer == "bpe" else gpt2()
        made = _fitting(made, vocab_size)
        return TextData(*prepared.rows_of(name, made, layout=rows, width=width, limit=limit), made)
    if name not in texts.SOURCES:
        known = ", ".join((*texts.SOURCES, *prepared.LOADERS))
        raise ValueError(f"data: no text {data!r}. Known: {known}")
    # Stories stay apart where there is a token to part them; characters read the mark as it is spelled.
    apart = rows != "windows" or (tokenizer != "characters" and name == "tinystories")
    train, held_out, symbols = texts.split(name, documents=apart, wrap=wrap, limit=limit)
    if tokenizer == "characters":
        # Those held out as well: which characters there are is nothing that a model could learn from.
        made = Characters(symbols)
    else:
        made = train_bpe(train, vocab_size) if tokenizer == "bpe" else gpt2()
    made = _fitting(made, vocab_size)
    if rows == "windows":
        return TextData(_windows(train, made, context, 1), _windows(held_out, made, context, context), made)
    layout = _documents if rows == "documents" else _packed
    return TextData(layout(train, made, width), layout(held_out, made, width), made)


def _fitting(tokenizer: Tokenizer, vocab_size: int) -> Tokenizer:
    if tokenizer.vocab_size != vocab_size:
        raise ValueError(
            f"data: the tokenizer {tokenizer.name} has {tokenizer.vocab_size} tokens, but the model has a "
            f"vocabulary of {vocab_size}: give --model.vocab-size {tokenizer.vocab_size}"
        )
    return tokenizer


def _windows(part: list[str], tokenizer: Tokenizer, context: int, stride: int) -> Rows:
    return Windows(np.concatenate(tokenizer.begun(part)), context, stride=stride)


def _documents(part: list[str], tokenizer: Tokenizer, width: int) -> Rows:
    # As in the run that this reproduces, no token stands before a story and none behind it.
    return Documents(cut_off(tokenizer.encode_all(part), width, tokenizer.dtype), pad=tokenizer.bos or 0)


def _packed(part: list[str], tokenizer: Tokenizer, width: int) -> Rows:
    if tokenizer.bos is None:
        raise ValueError(
            "data: packed rows begin with a special token, which characters do not have: take bpe or gpt2"
        )
    done = pack(tokenizer.begun(part), width, dtype=tokenizer.dtype)
    return Packed(done.rows, cropped=done.cropped / done.tokens)

"""From the name of a text to rows of tokens; texts too large for memory are prepared once, file by file.

A file's rows are written under another name and renamed, so that whatever stops the work, the next attempt
goes on after the last whole file, and a row is the same one before and after.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from gkalib.data.fetch import default_cache, say, whole
from gkalib.data.rows import Filled, Rows, Stored, Windows, cut_off, pack
from gkalib.data.text import TEXTS, fineweb_edu, split_text, tinystories_full
from gkalib.data.tokenizers import Characters, Tokenizer, gpt2, tokenizer_of, train_bpe
from gkalib.extras import require

Layout = Literal["windows", "documents", "packed"]

# Name -> the files of a large text, and the rows that it is read in.
LARGE: dict[str, tuple[Callable[[], list[Path]], Layout]] = {
    "fineweb-edu": (fineweb_edu, "packed"),
    "tinystories-full": (tinystories_full, "documents"),
}
# What nanochat's tokenizer is learned from: so many characters, of each page no more than so many.
LEARNED, OF_A_PAGE = 2_000_000_000, 10_000
AT_ONCE = 1024  # texts that go through the tokenizer together


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
    rows: Layout,
    context: int,
    wrap: int | None = None,
    limit: int | None = None,
    registers: int = 0,
) -> TextData:
    """The rows of a text by its name.

    Args:
        data: ``dickens``, ``state-of-the-union``, ``tinystories``, ``made-up`` or a text file, the last tenth
            of which is held out; ``tinystories-full``, a thousandth of which is; or ``fineweb-edu``, the last
            file of which is. A file that is called as one of these sets goes by its path, ``./dickens``.
        tokenizer: ``characters`` of the text, ``gpt2``, or ``bpe``, learned from the part to train on.
        vocab_size: V of the model, which has to be the tokenizer's but for the characters of a text file.
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
    own = is_own_text(data)
    name = data if own else data.replace("_", "-")
    width = context - registers if rows == "documents" else context + 1
    if name in LARGE:
        if wrap is not None or tokenizer == "characters":
            raise ValueError(f"data: {name} is too large for characters or wrapped lines: take gpt2 or bpe")
        if rows != LARGE[name][1]:
            raise ValueError(f"data: {name} is read in rows of {LARGE[name][1]}, not {rows}")
        return _large(name, tokenizer, vocab_size, width, limit)
    if not own and name not in TEXTS:
        raise ValueError(f"data: no text {data!r}. Known: {', '.join((*TEXTS, *LARGE))}, or a file of text")
    # Stories stay apart where there is a token to part them; characters read the mark as it is spelled.
    documents_apart = rows != "windows" or (tokenizer != "characters" and name == "tinystories")
    train, held_out, symbols = split_text(name, documents=documents_apart, wrap=wrap, limit=limit)
    if tokenizer == "characters":
        # Those held out as well: which characters there are is nothing that a model could learn from.
        encoder = Characters(symbols)
    else:
        encoder = train_bpe(train, vocab_size) if tokenizer == "bpe" else gpt2()
    if not (own and tokenizer == "characters"):  # a file's characters are counted when it is read
        _refuse_other_size(encoder, vocab_size)

    def read(part: list[str], stride: int) -> Rows:
        if rows == "windows":
            return Windows(np.concatenate(encoder.encode_documents(part)), context, stride=stride)
        return Stored(_filled(part, encoder, rows, width).rows, pad=encoder.bos or 0)

    return TextData(read(train, 1), read(held_out, context), encoder)


def is_own_text(data: str) -> bool:
    """Whether what is named as data is no text known here, but a file."""
    return data.replace("_", "-") not in (*TEXTS, *LARGE) and Path(data).is_file()


def _refuse_other_size(tokenizer: Tokenizer, vocab_size: int) -> None:
    if tokenizer.vocab_size != vocab_size:
        raise ValueError(
            f"data: the tokenizer {tokenizer.name} has {tokenizer.vocab_size} tokens, but the model has a "
            f"vocabulary of {vocab_size}: give --model.vocab-size {tokenizer.vocab_size}"
        )


def _filled(texts: list[str], tokenizer: Tokenizer, layout: Layout, width: int) -> Filled:
    """Rows of one layout from texts, and what became of their tokens."""
    parts = (texts[begin : begin + AT_ONCE] for begin in range(0, len(texts), AT_ONCE))
    if layout == "documents":
        # As in the run that this reproduces, no token stands before a story and none behind it.
        return cut_off(chain.from_iterable(map(tokenizer.encode_all, parts)), width, dtype=tokenizer.dtype)
    if tokenizer.bos is None:
        raise ValueError(
            "data: packed rows begin with a special token, which characters do not have: take bpe or gpt2"
        )
    return pack(chain.from_iterable(map(tokenizer.encode_documents, parts)), width, dtype=tokenizer.dtype)


def _large(
    name: str, kind: Literal["gpt2", "bpe"], vocab_size: int, width: int, limit: int | None
) -> TextData:
    """The rows of a large text.

    Of pages the last file is held out, of which a tenth of the limit is read; of stories a thousandth.
    """
    find, layout = LARGE[name]
    files = find()
    train = files[:-1] if layout == "packed" else files
    if not train:
        raise ValueError(
            f"data: {name} needs two files, since its last is held out; there is {files[0]} alone"
        )
    encoder = _large_bpe(name, train, vocab_size, limit) if kind == "bpe" else gpt2()
    _refuse_other_size(encoder, vocab_size)
    arrays = _load_rows(name, train, encoder, width, limit)
    if layout == "packed":
        others = _load_rows(name, files[-1:], encoder, width, None if limit is None else limit // 10)
        return TextData(Stored(*arrays), Stored(*others), encoder)
    train, held_out = (
        Stored(*arrays, pad=encoder.bos or 0, chosen=part) for part in _split_stories(sum(map(len, arrays)))
    )
    return TextData(train, held_out, encoder)


def _large_bpe(name: str, files: list[Path], vocab_size: int, limit: int | None) -> Tokenizer:
    """Byte pairs of a large text, learned once from no more than its first two billion characters."""
    characters = min(limit or LEARNED, LEARNED)
    folder = default_cache() / "prepared"
    folder /= f"{name}-bpe-{vocab_size}-{_key(characters, *map(_identity, files))}"
    if not folder.is_dir():
        say(f"learning {vocab_size} byte pairs from {name}")
        pages = (page[:OF_A_PAGE] for page in chain.from_iterable(map(page_texts, files)))
        tokenizer = train_bpe(_first(characters, pages), vocab_size)
        with whole(folder) as partial:
            partial.mkdir()
            (partial / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
    return tokenizer_of((folder / "tokenizer.json").read_text(encoding="utf-8"))


def page_texts(file: Path) -> Iterator[str]:
    """The column ``text`` of a Parquet file, row by row."""
    arrow, parquet = require("pyarrow", file.name), require("pyarrow.parquet", file.name)
    try:
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=AT_ONCE, columns=["text"]):
                yield from batch.column("text").to_pylist()
    except (arrow.ArrowException, KeyError) as failure:
        raise ValueError(f"data: {file} is no Parquet file with a column text: {failure}") from failure


def _first(characters: int, texts: Iterable[str]) -> Iterator[str]:
    """The first texts, up to the one with which they have so many characters."""
    for text in texts:
        yield text
        characters -= len(text)
        if characters <= 0:
            return


def _split_stories(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of stories to train on and of a thousandth, as ``Dataset.train_test_split`` draws them."""
    order, held_out = np.random.default_rng(42).permutation(count), ceil(count * 0.001)
    return order[held_out:], order[:held_out]


def _load_rows(
    name: str, files: list[Path], tokenizer: Tokenizer, width: int, limit: int | None
) -> list[np.ndarray]:
    """The rows of each file; they are made once and kept, with the numbers of characters and tokens."""
    layout, arrays = LARGE[name][1], []
    tokens_of = hashlib.sha256(tokenizer.to_json().encode()).hexdigest()
    for file in files:
        if limit is not None and limit <= 0:
            break
        folder = default_cache() / "prepared" / f"{name}-{layout}-{width}-{_key(tokens_of)}"
        folder /= f"{file.stem}-{_key(_identity(file), limit)}"
        if not folder.is_dir():
            start, pages = time.monotonic(), page_texts(file)
            texts = list(pages if limit is None else _first(limit, pages))
            rows, tokens, cropped = _filled(texts, tokenizer, layout, width)
            counts = {"characters": sum(map(len, texts)), "tokens": tokens, "cropped": cropped}
            with whole(folder) as partial:
                partial.mkdir()
                np.save(partial / "rows.npy", rows)
                (partial / "counts.json").write_text(json.dumps(counts), encoding="utf-8")
            say(
                f"{folder.name}: {tokens} tokens in {len(rows)} rows of {width}, "
                f"{cropped / max(1, tokens):.0%} cut off, {time.monotonic() - start:.0f} s"
            )
        counts = json.loads((folder / "counts.json").read_text(encoding="utf-8"))
        arrays.append(np.load(folder / "rows.npy", mmap_mode="r"))
        limit = None if limit is None else limit - counts["characters"]
    return arrays


def _identity(file: Path) -> str:
    return f"{file.name} {file.stat().st_size}"


def _key(*what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]

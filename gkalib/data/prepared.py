"""Rows of text that is too large for memory: made once, file by file, and then mapped from the cache.

A file's rows are written under another name and renamed, so that whatever stops the work, the next attempt
goes on after the last whole file, and a row is the same one before and after.
"""

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from math import ceil
from pathlib import Path

import numpy as np

from gkalib.data.corpora import fineweb_edu, tinystories_full
from gkalib.data.fetch import default_cache
from gkalib.data.packing import pack
from gkalib.data.progress import say
from gkalib.data.registry import carrier
from gkalib.data.rows import Documents, Packed, Rows, cut_off
from gkalib.data.tokenizers import Tokenizer, tokenizer_of, train_bpe

LOADERS = {"fineweb-edu": fineweb_edu, "tinystories-full": tinystories_full}
# What nanochat's tokenizer is learned from: so many characters, of each page no more than so many.
LEARNED, OF_A_PAGE = 2_000_000_000, 10_000
AT_ONCE = 1024  # texts that go through the tokenizer together
STALE = 3600.0  # seconds after which what is still partial was left by a process that died


def learned(name: str, vocab_size: int, *, limit: int | None = None) -> Tokenizer:
    """Byte pairs of a large text, learned once from no more than its first two billion characters.

    Raises:
        ValueError: if the text is not here or too short for so many tokens.
    """
    files, most = parts(name)[0], min(limit or LEARNED, LEARNED)
    kept = default_cache() / "prepared" / f"{name}-bpe-{vocab_size}-{_key(most, *map(_identity, files))}"
    if not kept.is_dir():
        say(f"learning {vocab_size} byte pairs from {name}")
        made = train_bpe(_counted(most, files), vocab_size)
        with _whole(kept) as partial:
            (partial / "tokenizer.json").write_text(made.to_json(), encoding="utf-8")
    return tokenizer_of((kept / "tokenizer.json").read_text(encoding="utf-8"))


def parts(name: str, layout: str = "documents") -> tuple[list[Path], list[Path]]:
    """The files to train on and those held out; stories are drawn from all files, not held out by file.

    Raises:
        ValueError: if the text is not here, or is not read in rows of that kind.
    """
    known = ("documents",) if name == "tinystories-full" else ("documents", "packed")
    if layout not in known:
        raise ValueError(f"data: {name} is read in rows of {' or '.join(known)}, not {layout}")
    files = LOADERS[name]()
    if name == "tinystories-full":
        return files, []
    if len(files) < 2:
        raise ValueError(
            f"data: {name} needs two files, since its last is held out; there is {files[0]} alone"
        )
    return files[:-1], files[-1:]


def rows_of(
    name: str, tokenizer: Tokenizer, *, layout: str, width: int, limit: int | None = None
) -> tuple[Rows, Rows]:
    """The rows of a large text to train on and those held out.

    Args:
        name: ``fineweb-edu``, whose last file is held out, or ``tinystories-full``, of which a thousandth is,
            drawn as ``datasets`` draws it with seed 42.
        tokenizer: of bytes.
        layout: ``documents`` or ``packed``; stories are one a row.
        width: T + 1.
        limit: how many characters to train on are used, and a tenth of them to measure; None is all.

    Raises:
        ValueError: if the text is not here, or cannot be laid out so, or the cache cannot be written.
    """
    made = []
    for files, most in zip(parts(name, layout), (limit, None if limit is None else limit // 10), strict=True):
        made.append(_prepared(name, files, tokenizer, layout=layout, width=width, limit=most))
    pad = tokenizer.bos or 0
    (train, cut), (held_out, cut_too) = made
    if name == "tinystories-full":
        chosen, drawn = _drawn(sum(map(len, train)))
        return (
            Documents(*train, pad=pad, chosen=chosen),
            Documents(*train, pad=pad, chosen=drawn),
        )
    if layout == "documents":
        return Documents(*train, pad=pad), Documents(*held_out, pad=pad)
    return Packed(*train, cropped=cut), Packed(*held_out, cropped=cut_too)


def texts(file: Path) -> Iterator[str]:
    """The column ``text`` of a Parquet file, row by row.

    Raises:
        ValueError: if it is no such file, or pyarrow is not installed.
    """
    library = carrier("pyarrow", file.name), carrier("pyarrow.parquet", file.name)
    try:
        with library[1].ParquetFile(file) as opened:
            for some in opened.iter_batches(batch_size=AT_ONCE, columns=["text"]):
                yield from some.column("text").to_pylist()
    except (library[0].ArrowException, KeyError) as failure:
        raise ValueError(f"data: {file} is no Parquet file with a column text: {failure}") from failure


def _counted(most: int, files: list[Path]) -> Iterator[str]:
    """The beginning of each page, until they have so many characters."""
    for page in chain.from_iterable(map(texts, files)):
        yield page[:OF_A_PAGE]
        most -= min(len(page), OF_A_PAGE)
        if most <= 0:
            return


def _drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of stories to train on and of a thousandth, as ``Dataset.train_test_split`` draws them."""
    order, held_out = np.random.default_rng(42).permutation(count), ceil(count * 0.001)
    return order[held_out:], order[:held_out]


def _prepared(
    name: str, files: list[Path], tokenizer: Tokenizer, *, layout: str, width: int, limit: int | None
) -> tuple[list[np.ndarray], float]:
    """The rows of each file, and the share of the tokens that is in none."""
    arrays, tokens, cropped = [], 0, 0
    made_by = hashlib.sha256(tokenizer.to_json().encode()).hexdigest()
    for file in files:
        if limit is not None and limit <= 0:
            break
        folder = default_cache() / "prepared" / f"{name}-{layout}-{width}-{_key(made_by)}"
        folder /= f"{file.stem}-{_key(_identity(file), limit)}"
        if not folder.is_dir():
            _prepare(folder, _until(limit, texts(file)), tokenizer, layout=layout, width=width)
        counts = json.loads((folder / "counts.json").read_text(encoding="utf-8"))
        arrays.append(np.load(folder / "rows.npy", mmap_mode="r"))
        tokens, cropped = tokens + counts["tokens"], cropped + counts["cropped"]
        limit = None if limit is None else limit - counts["characters"]
    return arrays, cropped / max(1, tokens)


def _prepare(folder: Path, pages: list[str], tokenizer: Tokenizer, *, layout: str, width: int) -> None:
    """Write the rows of a file's texts, and how many characters and tokens they have."""
    began, parts = time.monotonic(), (pages[i : i + AT_ONCE] for i in range(0, len(pages), AT_ONCE))
    if layout == "packed":
        documents = chain.from_iterable(map(tokenizer.begun, parts))
        rows, tokens, cropped = pack(documents, width, dtype=tokenizer.dtype)
    else:
        tables, tokens = [cut_off([], width, tokenizer.dtype)], 0
        for encoded in map(tokenizer.encode_all, parts):
            tables.append(cut_off(encoded, width, tokenizer.dtype))
            tokens += sum(map(len, encoded))
        rows = np.concatenate(tables)
        cropped = tokens - int((rows != np.iinfo(rows.dtype).max).sum())
    counts = {"characters": sum(map(len, pages)), "tokens": tokens, "cropped": cropped}
    with _whole(folder) as partial:
        np.save(partial / "rows.npy", rows)
        (partial / "counts.json").write_text(json.dumps(counts), encoding="utf-8")
    say(
        f"{folder.name}: {tokens} tokens in {len(rows)} rows of {width}, "
        f"{cropped / max(1, tokens):.0%} cut off, {time.monotonic() - began:.0f} s"
    )


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A folder to write into that gets its name when all is written.

    Raises:
        ValueError: if it cannot be written; nothing is left.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for left in folder.parent.glob(".partial-*"):
            if time.time() - left.stat().st_mtime > STALE:
                shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder.parent) as partial:
            made = Path(partial) / folder.name
            made.mkdir()
            yield made
            if not folder.is_dir():  # another process may have been as fast
                made.rename(folder)
    except OSError as failure:
        raise ValueError(f"data: {folder} could not be written: {failure.strerror or failure}") from failure


def _until(limit: int | None, pages: Iterable[str]) -> list[str]:
    """The first texts, up to the one with which they have so many characters."""
    if limit is None:
        return list(pages)
    taken = []
    for page in pages:
        taken.append(page)
        limit -= len(page)
        if limit <= 0:
            break
    return taken


def _identity(file: Path) -> str:
    return f"{file.name} {file.stat().st_size}"


def _key(*what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:16]

"""Rows of tokens: windows of a text at any offset, one document a row, or rows packed with documents."""

from abc import ABC, abstractmethod
from bisect import bisect_right, insort
from collections.abc import Iterable
from itertools import islice
from operator import itemgetter
from typing import NamedTuple, final

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

IGNORED = -1  # the label of a place that no loss counts
BUFFER = 1000  # documents that are looked at, as in nanochat
Batch = tuple[Int64[Tensor, "b t"], Int64[Tensor, "b t"]]


class Rows(ABC):
    """Rows of T tokens, each with the token that follows as its label; a row is a function of its number.

    Args:
        context: T.
    """

    context: int

    @abstractmethod
    def __len__(self) -> int:
        """How many rows there are."""

    @abstractmethod
    def batch(self, rows: np.ndarray) -> Batch:
        """Tokens and labels of the rows of these numbers; a label is −1 where there is none."""


@final
class Windows(Rows):
    """Windows of one long text: row r begins at token r · stride.

    Args:
        tokens: ``[n]``.
        context: T, the length of a window.
        stride: from one window to the next; where it is T, no label is in two rows.

    Raises:
        ValueError: if the text is shorter than a window and its last label.

    References:
        Chapter 22 trains on every offset of a text.
    """

    def __init__(self, tokens: np.ndarray, context: int, *, stride: int = 1):
        if len(tokens) <= context:
            raise ValueError(
                f"data: a part of {len(tokens)} tokens holds no window of {context} and the token after it: "
                "give more text or a shorter context"
            )
        self.tokens, self.context, self.stride = tokens, context, stride

    def __len__(self) -> int:
        """Every place where a whole window fits."""
        return (len(self.tokens) - self.context - 1) // self.stride + 1

    def batch(self, rows: np.ndarray) -> Batch:
        """Windows, and the same windows one token later."""
        assert ((rows >= 0) & (rows < len(self))).all()
        starts = rows * self.stride
        return _shifted(self.tokens[starts[:, None] + np.arange(self.context + 1)])


@final
class Stored(Rows):
    """Rows that lie in arrays of equal width, read as if these stood one below the other.

    Args:
        arrays: ``[n T+1]`` each, as :func:`pack` or :func:`cut_off` makes them; they may be files that are
            mapped into memory. The largest number of their type stands where a document has ended.
        pad: the token that the model reads there; its labels are −1.
        chosen: the numbers of the rows that are read; all where it is not given.

    Raises:
        ValueError: if they hold no row.

    References:
        Chapter 22 packs sentences, and counts what is padded and cut away.
    """

    def __init__(self, *arrays: np.ndarray, pad: int = 0, chosen: np.ndarray | None = None):
        self.arrays, self.pad, self.begins = arrays, pad, np.cumsum([0, *map(len, arrays)])
        if not self.begins[-1]:
            raise ValueError(
                "data: the text has too few tokens for one row: give more text or a shorter context"
            )
        self.context = arrays[0].shape[1] - 1
        self.chosen = np.arange(self.begins[-1]) if chosen is None else chosen

    def __len__(self) -> int:
        """The rows of all arrays, or those chosen."""
        return len(self.chosen)

    def batch(self, rows: np.ndarray) -> Batch:
        """Rows without their last token, and without their first."""
        assert ((rows >= 0) & (rows < len(self))).all()
        numbers = self.chosen[rows]
        arrays = np.searchsorted(self.begins, numbers, side="right") - 1
        inside = zip(arrays, numbers - self.begins[arrays], strict=True)
        tokens = np.stack([self.arrays[array][row] for array, row in inside])
        ended = tokens == np.iinfo(tokens.dtype).max
        inputs, labels = _shifted(np.where(ended, self.pad, tokens))
        return inputs, labels.masked_fill(torch.from_numpy(ended[:, 1:]), IGNORED)

    def targets(self) -> np.ndarray:
        """How many labels each row has, ``[rows]``: the tokens of its document after the first."""
        counts = [(array[:, 1:] != np.iinfo(array.dtype).max).sum(axis=1) for array in self.arrays]
        return np.concatenate(counts)[self.chosen]


class Filled(NamedTuple):
    """Rows and what became of the tokens.

    Args:
        rows: ``[n width]``.
        tokens: of all documents, those that begin them included.
        cropped: of those, how many are in no row.
    """

    rows: np.ndarray
    tokens: int
    cropped: int


def cut_off(documents: Iterable[np.ndarray], width: int, *, dtype: type[np.unsignedinteger]) -> Filled:
    """The first tokens of each document, and the type's largest number behind its end."""
    rows, lengths = [], []
    for document in documents:
        row = np.full(width, np.iinfo(dtype).max, dtype)
        row[: len(document)] = document[:width]
        rows.append(row)
        lengths.append(len(document))
    cropped = sum(max(0, length - width) for length in lengths)
    return Filled(np.array(rows, dtype).reshape(-1, width), sum(lengths), cropped)


def pack(
    documents: Iterable[np.ndarray], width: int, *, dtype: type[np.unsignedinteger], buffer: int = BUFFER
) -> Filled:
    """Fill rows from a buffer of documents by best fit, so that each row begins where a document does.

    A row takes the longest document of the buffer that still fits, again and again. Where none fits, the
    shortest is cut to what is left and its rest is dropped. No document is used twice, nothing is padded, and
    a last row that is not full is dropped. Of two documents of one length the earlier is taken.

    Args:
        documents: tokens of each, which begins with the token before a document.
        width: T + 1.
        dtype: of the rows.
        buffer: how many documents are looked at.

    References:
        nanochat's loader packs like this, over all files in one stream; Ding et al., Fewer truncations
        improve language modeling, 2024, for best fit.
    """
    coming, waiting, length = enumerate(documents), [], itemgetter(0)
    full, row, room, tokens = [], [], width, 0
    while True:
        for number, document in islice(coming, buffer - len(waiting)):
            # Of equal lengths the last one in this order is the earliest document.
            insort(waiting, (len(document), -number, document), key=itemgetter(0, 1))
            tokens += len(document)
        if not waiting:
            break
        fits = bisect_right(waiting, room, key=length) or bisect_right(waiting, waiting[0][0], key=length)
        row.append(waiting.pop(fits - 1)[2][:room])
        room -= len(row[-1])
        if room == 0:
            full.append(np.concatenate(row).astype(dtype))
            row, room = [], width
    rows = np.stack(full) if full else np.empty((0, width), dtype)
    return Filled(rows, tokens, tokens - rows.size)


def _shifted(tokens: np.ndarray) -> Batch:
    tokens = tokens.astype(np.int64)
    return torch.from_numpy(tokens[:, :-1]), torch.from_numpy(tokens[:, 1:])

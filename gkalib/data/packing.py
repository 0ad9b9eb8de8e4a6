"""Documents of any length in rows of one length, with as little cut away as a short look ahead allows."""

from bisect import bisect_right, insort
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

import numpy as np

BUFFER = 1000  # documents that are looked at, as in nanochat


class Packing(NamedTuple):
    """Rows and what became of the tokens.

    Args:
        rows: ``[n width]``.
        tokens: of all documents, those that begin them included.
        cropped: of those, how many are in no row.
    """

    rows: np.ndarray
    tokens: int
    cropped: int


def pack(
    documents: Iterable[np.ndarray], width: int, *, dtype: type[np.unsignedinteger], buffer: int = BUFFER
) -> Packing:
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
    coming, waiting = enumerate(documents), []
    made, row, room, tokens = [], [], width, 0
    while True:
        for number, document in islice(coming, buffer - len(waiting)):
            # Of equal lengths the last one in this order is the earliest document.
            insort(waiting, (len(document), -number, document), key=lambda entry: entry[:2])
            tokens += len(document)
        if not waiting:
            break
        fits = bisect_right(waiting, room, key=_length) or bisect_right(waiting, waiting[0][0], key=_length)
        row.append(waiting.pop(fits - 1)[2][:room])
        room -= len(row[-1])
        if room == 0:
            made.append(np.concatenate(row).astype(dtype))
            row, room = [], width
    rows = np.stack(made) if made else np.empty((0, width), dtype)
    return Packing(rows, tokens, tokens - rows.size)


def _length(entry: tuple[int, int, np.ndarray]) -> int:
    return entry[0]

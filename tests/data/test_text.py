"""Books in three encodings become one text, and a text is cut into a part to train on and one held out."""

import io
import tarfile

import numpy as np
import pytest

from gkalib import data
from gkalib.data.text import TEXTS, books, plain, split_text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"one\r\ntwo\r\n", "one\ntwo\n"),
        ("déjà vu\n".encode("latin-1"), "déjà vu\n"),
        ("déjà vu\n".encode(), "déjà vu\n"),
        (b"the end\n\x1a", "the end\n"),
    ],
    ids=["Windows", "Latin-1", "UTF-8", "CP/M"],
)
def test_every_encoding_becomes_plain_text(content, text):
    assert plain(content) == text


def test_books_stand_in_the_order_of_their_names(tmp_path):
    with tarfile.open(tmp_path / "books.tgz", "w:gz") as packed:
        for name in ("shelf/zola-nana.txt", "shelf/README.md", "shelf/austen-emma.txt"):
            member = tarfile.TarInfo(name)
            member.size = len(name)
            packed.addfile(member, io.BytesIO(name.encode()))
    expected = {"austen-emma": "shelf/austen-emma.txt", "zola-nana": "shelf/zola-nana.txt"}
    assert list(books(tmp_path / "books.tgz").items()) == list(expected.items())


@pytest.mark.data("novels")
def test_most_lines_are_as_long_as_a_page_is_wide():
    text = data.novels()
    assert len(text) == 11_744_904
    assert len(set(text)) == 95
    assert {symbol for symbol in text if not symbol.isascii()} == set("æèéî")
    lengths = np.array([len(line) for line in text.split("\n") if line])
    counts = np.bincount(lengths)
    assert counts.argmax() == 69
    assert (lengths <= 78).mean() > 0.999


@pytest.mark.parametrize("documents", [False, True])
def test_the_last_tenth_of_a_text_is_held_out(documents):
    parts = split_text("state-of-the-union", documents=documents)
    load, cut = TEXTS["state-of-the-union"]
    pieces = cut(load()) if documents else [load()]
    assert "".join([*parts.train, *parts.held_out]) == "".join(pieces)
    train, held_out = (sum(map(len, some)) if not documents else len(some) for some in parts[:2])
    assert train == (train + held_out) * 9 // 10

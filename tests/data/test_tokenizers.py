"""Text goes into tokens and comes back, and every token stands for so many bytes."""

import hashlib
import json
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gkalib import data
from gkalib.data import registry, tokenizers
from gkalib.data.tokenizers import SPECIAL, Characters, tokenizer_of, train_bpe
from tests.need import marks

# The two files that GPT-2 was published with, by the hashes that tiktoken compares them with.
PUBLISHED = {
    "encoder.json": "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "vocab.bpe": "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
}


@cache
def learned():
    return train_bpe([data.state_of_the_union()], 600)


@cache
def published():
    return data.gpt2()


BOTH = pytest.mark.parametrize("tokenizer", [learned, pytest.param(published, marks=marks("gpt2"))])


@BOTH
@settings(deadline=None)
@given(
    text=st.text(max_size=60) | st.sampled_from(["<|bos|>", " <|endoftext|>\n", "a\r\n\r\n  b", "\u0301e😀"])
)
def test_every_text_comes_back_and_its_bytes_add_up(tokenizer, text):
    ids = tokenizer().encode(text)
    assert ids.dtype == np.int64
    assert tokenizer().decode(ids) == text
    lengths = tokenizer().byte_lengths()
    assert lengths[ids].sum() == len(text.encode())
    assert len(lengths) == tokenizer().vocab_size
    assert (lengths[ids] > 0).all()  # no text turns into a special token


@BOTH
def test_many_texts_at_once_are_each_what_they_are_alone(tokenizer):
    texts = data.state_of_the_union().split(". ")
    both = tokenizer().encode_all(texts), tokenizer().encode_documents(texts)
    for text, ids, document in zip(texts, *both, strict=True):
        assert ids.tolist() == tokenizer().encode(text).tolist()
        assert document.tolist() == [tokenizer().bos, *ids]
        assert document.dtype == np.uint16
        assert tokenizer().decode(ids) == text


@BOTH
def test_a_stored_tokenizer_is_the_same_one(tokenizer):
    again = tokenizer_of(tokenizer().to_json())
    text = "We have nothing to fear but <|bos|> 1933!\n"
    assert again.encode(text).tolist() == tokenizer().encode(text).tolist()
    assert (again.name, again.bos, again.vocab_size) == (
        tokenizer().name,
        tokenizer().bos,
        tokenizer().vocab_size,
    )
    assert again.to_json() == tokenizer().to_json()


@pytest.mark.data("gpt2")
def test_the_published_files_are_the_published_ones():
    published()
    for name, sha256 in PUBLISHED.items():
        (content,) = registry.unpacked("gpt2", f"*/data/{name}").values()
        assert hashlib.sha256(content).hexdigest() == sha256


@pytest.mark.data("gpt2")
def test_gpt2_has_its_published_numbers():
    tokenizer = published()
    assert tokenizer.vocab_size == 50_257
    assert tokenizer.bos == 50_256
    assert tokenizer.byte_lengths()[50_256] == 0
    assert tokenizer.decode([50_256]) == "<|endoftext|>"
    assert tokenizer.encode("hello world").tolist() == [31373, 995]
    assert np.flatnonzero(tokenizer.byte_lengths() == 0).tolist() == [50_256]


def test_learning_counts_and_nothing_else():
    """The same pairs again, and from the same lines in another order: ties are not broken by chance."""
    lines = data.state_of_the_union().splitlines(keepends=True)
    again = [train_bpe(texts, 600).to_json() for texts in (lines, lines[::-1], lines)]
    assert again == [again[0]] * 3
    assert json.loads(again[0])["backend"] == json.loads(learned().to_json())["backend"]


def test_pairs_do_not_cross_the_split():
    library = pytest.importorskip("tokenizers")
    split = library.pre_tokenizers.Split(library.Regex(tokenizers.SPLIT), behavior="isolated")
    pieces = [piece for piece, _ in split.pre_tokenize_str("I'LL pay $12345 today!!\n\n  Don't  \n stop. ")]
    assert pieces == [
        *("I", "'LL", " pay", " $", "12", "34", "5", " today", "!!\n\n", " ", " Don", "'t", "  \n", " stop"),
        *(".", " "),
    ]


def test_special_tokens_have_names_and_no_bytes():
    tokenizer = learned()
    assert tokenizer.bos == 0
    assert tokenizer.decode(range(len(SPECIAL))) == "".join(SPECIAL)
    assert tokenizer.byte_lengths()[: len(SPECIAL)].tolist() == [0] * len(SPECIAL)
    assert (tokenizer.byte_lengths()[len(SPECIAL) :] > 0).all()
    assert len(SPECIAL) == 9


def test_half_a_character_decodes_to_its_replacement():
    tokenizer = train_bpe(["a"], 256 + len(SPECIAL))
    assert tokenizer.decode(tokenizer.encode("é")[:1]) == "\ufffd"


@pytest.mark.parametrize(
    ("text", "size", "message"),
    [
        ("abc", 264, r"^data: a vocabulary of bytes has at least 265 tokens, not 264$"),
        ("abc abc", 300, r"^data: the text yields \d+ tokens, fewer than the 300 asked for"),
    ],
)
def test_a_vocabulary_that_cannot_be_is_refused(text, size, message):
    with pytest.raises(ValueError, match=message):
        train_bpe([text], size)


@settings(deadline=None)
@given(st.text(min_size=1, max_size=40))
def test_characters_are_numbered_in_order_and_come_back(text):
    tokenizer = Characters(text)
    assert tokenizer.symbols == sorted(set(text))
    assert tokenizer.encode(text).tolist() == [tokenizer.symbols.index(symbol) for symbol in text]
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.byte_lengths()[tokenizer.encode(text)].sum() == len(text.encode())
    assert tokenizer_of(tokenizer.to_json()).symbols == tokenizer.symbols


def test_unknown_characters_are_named_and_counted():
    tokenizer = Characters("abc")
    assert tokenizer.encode("").tolist() == []
    with pytest.raises(ValueError) as failure:
        tokenizer.encode("hallo welt é\n")
    assert str(failure.value) == (
        "data: the text has 12 characters, 9 different ones, that are none of the 3 known: '\\n' ' ' 'e' 'h' "
        "'l' 'o' 't' 'w' 'é'. Replace or remove them, or take a tokenizer of bytes, gpt2 or bpe"
    )
    with pytest.raises(
        ValueError, match=r"26 different ones, .*: 'A' 'B' 'C' 'D' 'E' 'F' 'G' 'H' 'I' 'J' and "
    ):
        tokenizer.encode("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    with pytest.raises(ValueError, match=r"^data: a text without characters has no vocabulary$"):
        Characters("")


@pytest.mark.parametrize(
    "stored", ["", "[]", "{}", '{"kind": "characters"}', '{"kind": "byte pairs", "name": "x"}']
)
def test_what_is_no_stored_tokenizer_is_refused(stored):
    with pytest.raises(ValueError, match=r"^data: this is not a stored tokenizer"):
        tokenizer_of(stored)

"""A text by its name becomes rows of tokens in two parts, or is refused with the reason."""

import numpy as np
import pytest

import gkalib
from gkalib.data import text
from gkalib.data.rows import IGNORED
from gkalib.data.tokens import is_own_text, text_data


def smoke(**changes):
    settings = {"tokenizer": "bpe", "vocab_size": 300, "rows": "packed", "context": 32} | changes
    return text_data(settings.pop("data", "state-of-the-union"), **settings)


def test_characters_in_windows_are_the_text():
    data = smoke(tokenizer="characters", vocab_size=75, rows="windows")
    whole = gkalib.data.state_of_the_union()
    cut = len(whole) * 9 // 10
    assert data.tokenizer.decode(data.train.tokens) == whole[:cut]
    assert data.tokenizer.decode(data.held_out.tokens) == whole[cut:]
    assert len(data.train) == cut - 32
    assert data.held_out.stride == 32


def test_wrapped_lines_are_no_longer_than_asked_for_and_hold_the_same_text():
    data = smoke(tokenizer="characters", vocab_size=75, rows="windows", wrap=70, limit=50_000)
    wrapped = data.tokenizer.decode(data.train.tokens) + data.tokenizer.decode(data.held_out.tokens)
    lengths = [len(line) for line in wrapped.split("\n")]
    assert max(lengths) == 70
    assert np.mean(lengths) > 60
    # A line may end after a hyphen as well as at a space.
    assert "".join(wrapped.split()) == "".join(gkalib.data.state_of_the_union()[:50_000].split())


def test_packed_rows_begin_where_a_sentence_does():
    data = smoke(vocab_size=600, context=64)
    inputs, labels = data.train.batch(np.arange(len(data.train)))
    assert (inputs[:, 0] == data.tokenizer.bos).all()
    assert (inputs[:, 1:] == labels[:, :-1]).all()
    begin = data.tokenizer.decode(inputs[0].tolist()).removeprefix("<|bos|>").split("<|bos|>")[0]
    assert any(sentence.startswith(begin) for sentence in text.sentences(gkalib.data.state_of_the_union()))


def test_documents_leave_room_for_registers_and_the_last_label():
    data = smoke(rows="documents", registers=1)
    assert data.train.context == data.held_out.context == 30
    sentences = text.sentences(gkalib.data.state_of_the_union())
    assert len(data.train) == len(sentences) * 9 // 10
    assert len(data.train) + len(data.held_out) == len(sentences)
    inputs, labels = data.held_out.batch(np.array([0]))
    first = data.tokenizer.encode(sentences[len(data.train)])[:31]
    assert inputs[0].tolist()[: len(first)] == first[:30].tolist()
    assert labels[0][labels[0] != IGNORED].tolist() == first[1:].tolist()


def test_made_up_text_is_the_same_every_time():
    assert text.made_up_text() == text.made_up_text()
    data = smoke(data="made-up")
    assert len(data.train) > 100


@pytest.mark.data("tinystories")
def test_stories_are_whole_and_the_mark_is_no_part_of_them():
    pieces = text.stories(gkalib.data.tinystories())
    assert len(pieces) == 2316
    assert not any("<|" in piece or piece != piece.strip() for piece in pieces)
    data = smoke(data="tinystories", vocab_size=400, rows="windows", limit=100_000)
    assert (data.train.tokens == data.tokenizer.bos).sum() > 50  # a token stands before each story


@pytest.mark.data("dickens")
def test_all_lines_of_novels_are_read():
    data = text_data("dickens", tokenizer="characters", vocab_size=84, rows="windows", context=256)
    assert len(data.train) + 256 + len(data.held_out.tokens) == 12_920_542


def characters(data):
    """The vocabulary of a text's characters."""
    found = text_data(data, tokenizer="characters", vocab_size=28, rows="windows", context=16)
    return found.tokenizer.vocab_size


def test_a_file_of_text_is_read_and_never_in_the_place_of_a_known_text(tmp_path, monkeypatch):
    """A set's name means the set, however a file is called; a file of such a name goes by its path."""
    monkeypatch.chdir(tmp_path)
    text = "".join(f"line {number}\r\n" for number in range(90))
    for name in ("mine.txt", "mine", "made-up", "made_up", "state_of_the_union", "fineweb_edu"):
        (tmp_path / name).write_bytes(text.encode())
    symbols = len(set(text) - {"\r"})
    for name in ("mine.txt", "mine", "./made-up", str(tmp_path / "state_of_the_union")):
        assert is_own_text(name) and characters(name) == symbols
    for name in ("made-up", "made_up", "state_of_the_union", "fineweb_edu", "other.txt"):
        assert not is_own_text(name)
    assert characters("made-up") == characters("made_up") == 28
    with pytest.raises(ValueError, match="characters has 75 tokens"):
        characters("state_of_the_union")
    with pytest.raises(ValueError, match="fineweb-edu is too large for characters"):
        characters("fineweb_edu")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"data": "shakespeare"},
            r"no text 'shakespeare'. Known: dickens, state-of-the-union, tinystories, mad",
        ),
        (
            {"tokenizer": "characters", "rows": "windows"},
            r"characters has 75 tokens, but the model has a vocabulary of 300: give --model.vocab-size 75$",
        ),
        (
            {"tokenizer": "characters", "vocab_size": 75},
            r"packed rows begin with a special token, which characters do not have",
        ),
        ({"limit": 300, "rows": "windows", "context": 512, "vocab_size": 265}, r"holds no window of 512 and"),
        ({"limit": 3}, r"3 characters of 'state-of-the-union' hold too few documents for two parts"),
        ({"limit": 1_000, "context": 512, "vocab_size": 265}, r"too few tokens for one row"),
    ],
)
def test_what_cannot_be_read_says_why(changes, message):
    with pytest.raises(ValueError, match=rf"^data: .*{message}"):
        smoke(**changes)

"""Rows hold the text's tokens and nothing else, and the label of a token is the one that follows it."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gkalib
from gkalib.data import registry, texts
from gkalib.data.packing import pack
from gkalib.data.rows import IGNORED, Documents, Packed, Windows, cut_off
from gkalib.data.tokens import text_data

BOS = 0


def documents(lengths):
    """Documents whose tokens tell where they come from: BOS, then numbers that no other document has."""
    number = iter(range(1, 10**6))
    return [np.array([BOS, *(next(number) for _ in range(length - 1))]) for length in lengths]


def by_hand(lengths, width, buffer):
    """Best fit, as its description says it: the documents of each row, and how much of each is taken."""
    waiting, coming, rows = [], list(enumerate(lengths)), []
    row, room = [], width
    while waiting or coming:
        while coming and len(waiting) < buffer:
            waiting.append(coming.pop(0))
        fitting = [one for one in waiting if one[1] <= room]
        chosen = (
            max(fitting, key=lambda one: (one[1], -one[0]))
            if fitting
            else min(waiting, key=lambda one: one[::-1])
        )
        waiting.remove(chosen)
        row.append((chosen[0], min(chosen[1], room)))
        room -= row[-1][1]
        if room == 0:
            rows.append(row)
            row, room = [], width
    return rows


def packings(test):
    lengths = st.lists(st.integers(1, 12), max_size=40)
    law = given(lengths=lengths, width=st.integers(2, 9), buffer=st.integers(1, 12))
    return settings(deadline=None)(law(test))


@packings
def test_packing_is_best_fit(lengths, width, buffer):
    given_documents = documents(lengths)
    packed = pack(given_documents, width, dtype=np.uint32, buffer=buffer)
    expected = [
        np.concatenate([given_documents[number][:taken] for number, taken in row])
        for row in by_hand(lengths, width, buffer)
    ]
    assert packed.rows.tolist() == [row.tolist() for row in expected]


@packings
def test_packed_rows_hold_documents_from_their_beginning_each_once_and_nothing_else(lengths, width, buffer):
    given_documents = documents(lengths)
    rows, tokens, cropped = pack(given_documents, width, dtype=np.uint32, buffer=buffer)
    assert rows.shape[1] == width
    assert tokens == sum(lengths) == rows.size + cropped
    assert (rows[:, 0] == BOS).all()
    beginnings = {tuple(one[1:]) for one in given_documents}
    seen = []
    for row in rows.tolist():
        starts = [*np.flatnonzero(np.array(row) == BOS), width]
        pieces = [tuple(row[begin + 1 : end]) for begin, end in pairwise(starts)]
        for place, piece in enumerate(pieces):
            whole = piece in beginnings
            cut = any(one[: len(piece)] == piece for one in beginnings)
            assert whole or (cut and place == len(pieces) - 1)  # only the last document of a row is cut
            seen += piece
    assert len(seen) == len(set(seen))  # no token, hence no document, is in two places


def test_packing_is_the_same_from_a_stream_as_from_a_list():
    given_documents = documents([5, 3, 9, 2, 2, 7, 1, 4] * 5)
    whole = pack(given_documents, 8, dtype=np.uint16)
    assert (pack(iter(given_documents), 8, dtype=np.uint16).rows == whole.rows).all()
    assert whole.rows.dtype == np.uint16


def test_a_longer_look_ahead_crops_less():
    lengths = np.random.default_rng(0).geometric(0.02, 3000).tolist()
    cropped = [pack(documents(lengths), 65, dtype=np.uint32, buffer=size).cropped for size in (1, 10, 1000)]
    assert cropped[0] > cropped[1] > cropped[2] > 0


def test_windows_begin_at_their_number_and_labels_follow():
    windows = Windows(np.arange(100, 120, dtype=np.uint16), 5)
    assert len(windows) == 15
    inputs, labels = windows.batch(np.array([0, 14, 3]))
    assert inputs.tolist() == [[*range(100, 105)], [*range(114, 119)], [*range(103, 108)]]
    assert (labels == inputs + 1).all()


def test_windows_held_out_share_no_label_and_leave_few_out():
    windows = Windows(np.arange(23), 5, stride=5)
    labels = windows.batch(np.arange(len(windows)))[1].flatten().tolist()
    assert labels == list(range(1, 21))


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12), width=st.integers(2, 7))
def test_documents_are_cut_off_and_padded_and_padding_has_no_label(lengths, width):
    given_documents = documents(lengths)
    rows = Documents(cut_off(given_documents, width, np.uint16), pad=7777)
    assert len(rows) == len(lengths)
    inputs, labels = rows.batch(np.arange(len(rows)))
    assert inputs.shape == labels.shape == (len(lengths), width - 1)
    for document, read, followed in zip(given_documents, inputs.tolist(), labels.tolist(), strict=True):
        kept = document[:width].tolist()
        assert read == (kept + [7777] * width)[: width - 1]
        assert followed == (kept[1:] + [IGNORED] * width)[: width - 1]


def test_chosen_documents_are_rows_in_their_order():
    rows = Documents(*(cut_off(documents([n]), 5, np.uint16) for n in (2, 3, 4)), chosen=np.array([2, 0]))
    labels = rows.batch(np.array([0, 1]))[1]
    assert (labels != IGNORED).sum(1).tolist() == [3, 1]


def test_packed_rows_of_several_files_stand_one_after_the_other():
    arrays = [np.arange(12).reshape(4, 3), np.empty((0, 3), int), np.arange(12, 21).reshape(3, 3)]
    rows = Packed(*arrays)
    assert len(rows) == 7
    inputs, labels = rows.batch(np.array([6, 0, 4, 3]))
    assert inputs.tolist() == [[18, 19], [0, 1], [12, 13], [9, 10]]
    assert labels.tolist() == [[19, 20], [1, 2], [13, 14], [10, 11]]


@pytest.mark.parametrize("rows", [[-1], [7], [0, 7]])
def test_rows_that_there_are_not_are_refused(rows):
    with pytest.raises(ValueError, match=r"^data: rows are numbered from 0 to 6, not -?\d to -?\d$"):
        Packed(np.zeros((7, 3), int)).batch(np.array(rows))


def smoke(**changes):
    settings = {"tokenizer": "bpe", "vocab_size": 300, "rows": "packed", "context": 32} | changes
    return text_data(settings.pop("data", "state-of-the-union"), **settings)


def test_characters_in_windows_are_the_text():
    data = smoke(tokenizer="characters", vocab_size=75, rows="windows")
    text = gkalib.data.state_of_the_union()
    cut = len(text) * 9 // 10
    assert data.tokenizer.decode(data.train.tokens) == text[:cut]
    assert data.tokenizer.decode(data.held_out.tokens) == text[cut:]
    assert len(data.train) == cut - 32
    assert data.held_out.stride == 32


def test_wrapped_lines_are_no_longer_than_asked_for_and_hold_the_same_text():
    data = smoke(tokenizer="characters", vocab_size=75, rows="windows", wrap=70, limit=50_000)
    text = data.tokenizer.decode(data.train.tokens) + data.tokenizer.decode(data.held_out.tokens)
    lengths = [len(line) for line in text.split("\n")]
    assert max(lengths) == 70
    assert np.mean(lengths) > 60
    # A line may end after a hyphen as well as at a space.
    assert "".join(text.split()) == "".join(gkalib.data.state_of_the_union()[:50_000].split())


def test_packed_rows_begin_where_a_sentence_does():
    data = smoke(vocab_size=600, context=64)
    inputs, labels = data.train.batch(np.arange(len(data.train)))
    assert (inputs[:, 0] == data.tokenizer.bos).all()
    assert (inputs[:, 1:] == labels[:, :-1]).all()
    assert 0 < data.train.cropped < 0.5
    begin = data.tokenizer.decode(inputs[0].tolist()).removeprefix("<|bos|>").split("<|bos|>")[0]
    assert any(one.startswith(begin) for one in texts.sentences(gkalib.data.state_of_the_union()))


def test_documents_leave_room_for_registers_and_the_last_label():
    data = smoke(rows="documents", registers=1)
    assert data.train.context == data.held_out.context == 30
    sentences = texts.sentences(gkalib.data.state_of_the_union())
    assert len(data.train) == len(sentences) * 9 // 10
    assert len(data.train) + len(data.held_out) == len(sentences)
    inputs, labels = data.held_out.batch(np.array([0]))
    first = data.tokenizer.encode(sentences[len(data.train)])[:31]
    assert inputs[0].tolist()[: len(first)] == first[:30].tolist()
    assert labels[0][labels[0] != IGNORED].tolist() == first[1:].tolist()


def test_made_up_text_is_the_same_every_time():
    assert texts.made_up() == texts.made_up()
    data = smoke(data="made-up")
    assert len(data.train) > 100


def test_stories_are_whole_and_the_mark_is_no_part_of_them():
    if not registry.ready("tinystories"):
        pytest.skip(
            "tinystories is not here: put it in place as `python -m gkalib data get tinystories` says"
        )
    pieces = texts.stories(gkalib.data.tinystories())
    assert len(pieces) == 2316
    assert not any("<|" in piece or piece != piece.strip() for piece in pieces)
    data = smoke(data="tinystories", vocab_size=400, rows="windows", limit=100_000)
    assert (data.train.tokens == data.tokenizer.bos).sum() > 50  # a token stands before each story


def test_all_lines_of_novels_are_read():
    if not registry.ready("dickens"):
        pytest.skip("dickens is not here: put it in place as `python -m gkalib data get dickens` says")
    data = text_data("dickens", tokenizer="characters", vocab_size=84, rows="windows", context=256)
    assert len(data.train) + 256 + len(data.held_out.tokens) == 12_920_542


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"data": "shakespeare"},
            r"no text 'shakespeare'. Known: dickens, state-of-the-union, tinystories, nov",
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
        (
            {"data": "tinystories-full", "wrap": 70},
            r"tinystories-full is too large for characters or wrapped",
        ),
    ],
)
def test_what_cannot_be_read_says_why(changes, message):
    with pytest.raises(ValueError, match=rf"^data: .*{message}"):
        smoke(**changes)


@pytest.mark.parametrize("name", ["dickens", "novels", "fineweb-edu", "tinystories_full"])
def test_a_missing_text_names_what_to_do(name, tmp_path, monkeypatch):
    monkeypatch.setenv("GKALIB_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))  # nothing fetches
    with pytest.raises(ValueError) as failure:
        smoke(data=name, rows="documents")
    message = str(failure.value)
    assert message.startswith(f"datasets: '{name.replace('-', '_')}' is not here")
    assert str(tmp_path) in message

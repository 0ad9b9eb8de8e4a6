"""Rows hold the text's tokens and nothing else, and the label of a token is the one that follows it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gkalib.data.rows import IGNORED, Stored, Windows, cut_off, pack

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
        fitting = [entry for entry in waiting if entry[1] <= room]
        chosen = (
            max(fitting, key=lambda entry: (entry[1], -entry[0]))
            if fitting
            else min(waiting, key=lambda entry: entry[::-1])
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
    rows, tokens, cropped = pack(given_documents, width, dtype=np.uint32, buffer=buffer)
    expected = [
        np.concatenate([given_documents[number][:taken] for number, taken in row])
        for row in by_hand(lengths, width, buffer)
    ]
    assert rows.tolist() == [row.tolist() for row in expected]
    assert rows.shape[1] == width and tokens == sum(lengths) == rows.size + cropped


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
    table, tokens, cropped = cut_off(given_documents, width, dtype=np.uint16)
    assert (tokens, cropped) == (sum(lengths), sum(max(0, length - width) for length in lengths))
    rows = Stored(table, pad=7777)
    assert len(rows) == len(lengths)
    inputs, labels = rows.batch(np.arange(len(rows)))
    assert inputs.shape == labels.shape == (len(lengths), width - 1)
    for document, read, followed in zip(given_documents, inputs.tolist(), labels.tolist(), strict=True):
        tokens = document[:width].tolist()
        assert read == (tokens + [7777] * width)[: width - 1]
        assert followed == (tokens[1:] + [IGNORED] * width)[: width - 1]


def test_chosen_documents_are_rows_in_their_order():
    tables = [cut_off(documents([n]), 5, dtype=np.uint16).rows for n in (2, 3, 4)]
    rows = Stored(*tables, chosen=np.array([2, 0]))
    labels = rows.batch(np.array([0, 1]))[1]
    assert (labels != IGNORED).sum(1).tolist() == [3, 1]


def test_packed_rows_of_several_files_stand_one_after_the_other():
    arrays = [np.arange(12).reshape(4, 3), np.empty((0, 3), int), np.arange(12, 21).reshape(3, 3)]
    rows = Stored(*arrays)
    assert len(rows) == 7
    inputs, labels = rows.batch(np.array([6, 0, 4, 3]))
    assert inputs.tolist() == [[18, 19], [0, 1], [12, 13], [9, 10]]
    assert labels.tolist() == [[19, 20], [1, 2], [13, 14], [10, 11]]

"""Large texts, as made-up files of the hub's layout: each row is made once, and nothing half stays."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gkalib
from gkalib.data import registry, text, tokens
from gkalib.data.rows import IGNORED
from gkalib.data.tokens import text_data

PAGES = {"tokenizer": "bpe", "vocab_size": 512, "rows": "packed", "context": 48}
STORIES = PAGES | {"rows": "documents", "registers": 1}


@pytest.fixture(scope="module")
def sentences():
    return text.sentences(gkalib.data.state_of_the_union())


@pytest.fixture
def place(tmp_path, monkeypatch, sentences):
    """Three files of pages and two of stories, with the names that the hub's have, and an empty cache."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setenv("GKALIB_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def write(file, column):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(arrow.table({"text": column}), tmp_path / file, row_group_size=16)

    for number, name in enumerate(("00000", "00001", "01822")):
        write(f"fineweb-edu/shard_{name}.parquet", sentences[number * 300 : (number + 1) * 300])
    for number in range(2):
        name = f"tinystories-full/data/train-0000{number}-of-00002-2d5a1467fff1081b.parquet"
        write(name, sentences[number * 600 : (number + 1) * 600])
    return tmp_path


def everything(rows):
    return [part.tolist() for part in rows.batch(np.arange(len(rows)))]


def test_files_are_prepared_once_and_then_read_from_the_cache(place, monkeypatch, capsys):
    assert registry.ready("fineweb-edu") and registry.ready("tinystories_full")
    first = text_data("fineweb-edu", **PAGES)
    assert capsys.readouterr().err.count("cut off") == 3
    monkeypatch.setattr(tokens, "page_texts", lambda file: pytest.fail(f"{file} was read again"))
    again = text_data("fineweb-edu", **PAGES)
    assert again.tokenizer.to_json() == first.tokenizer.to_json()
    for part in ("train", "held_out"):
        assert everything(getattr(again, part)) == everything(getattr(first, part))
    array = again.train.arrays[0]
    assert isinstance(array, np.memmap) and array.dtype == np.uint16 and array.shape[1] == 49


def test_the_last_file_is_held_out(place, sentences):
    data = text_data("fineweb-edu", **PAGES)
    for rows, among in ((data.train, sentences[:600]), (data.held_out, sentences[600:900])):
        inputs, _ = rows.batch(np.arange(len(rows)))
        for row in inputs.tolist():
            begin = data.tokenizer.decode(row).removeprefix("<|bos|>").split("<|bos|>")[0]
            assert any(text.startswith(begin) for text in among)


def test_each_file_is_packed_by_itself_so_that_more_files_change_no_row(place, monkeypatch):
    before, _, tokenizer = text_data("fineweb-edu", **PAGES)
    before = everything(before)
    (place / "fineweb-edu" / "shard_00001.parquet").unlink()
    monkeypatch.setattr(tokens, "_large_bpe", lambda *_: tokenizer)
    fewer = text_data("fineweb-edu", **PAGES).train
    count = len(fewer)
    assert everything(fewer) == [part[:count] for part in before]
    assert count < len(before[0])


def test_a_limit_reads_no_more_than_it_has_to(place, sentences):
    data = text_data("fineweb-edu", **PAGES, limit=20_000)
    assert len(data.train.arrays) == 1
    reached = np.searchsorted(np.cumsum([len(sentence) for sentence in sentences]), 20_000) + 1
    count = sum(map(len, data.tokenizer.encode_documents(sentences[:reached])))
    assert 0.4 * count < len(data.train) * 49 < count


def test_stories_are_held_out_as_the_library_datasets_does(place, sentences):
    library = pytest.importorskip("datasets")
    reference = library.Dataset.from_dict({"text": sentences[:1200]}).train_test_split(
        test_size=0.001, seed=42
    )
    data = text_data("tinystories-full", **STORIES)
    for rows, expected in ((data.train, reference["train"]), (data.held_out, reference["test"])):
        assert len(rows) == len(expected)
        inputs, labels = rows.batch(np.arange(len(rows)))
        for read, followed, story in zip(inputs.tolist(), labels.tolist(), expected["text"], strict=True):
            ids = data.tokenizer.encode(story).tolist()[:47]
            assert read == (ids + [data.tokenizer.bos] * 47)[:46]
            assert followed == (ids[1:] + [IGNORED] * 47)[:46]


def test_the_full_set_holds_out_as_many_stories_as_the_reference():
    train, held_out = tokens._split_stories(2_119_719)
    assert (len(train), len(held_out)) == (2_117_599, 2_120)
    assert len(np.union1d(train, held_out)) == 2_119_719


KILLED = """
import os, signal, sys
import numpy as np
from gkalib.data.tokens import text_data

save, left = np.save, int(sys.argv[1])

def killed(path, array):
    global left
    save(path, array)
    left -= 1
    if left == 0:
        os.truncate(path, os.path.getsize(path) // 2)
        os.kill(os.getpid(), signal.SIGKILL)

np.save = killed
text_data("fineweb-edu", tokenizer="bpe", vocab_size=512, rows="packed", context=48)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_while_a_file_is_written_it_goes_on_after_the_last_whole_one(
    place, tmp_path, monkeypatch, capsys
):
    done = subprocess.run([sys.executable, "-c", KILLED, "2"], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    folder = next((tmp_path / "cache" / "gkalib" / "prepared").glob("fineweb-edu-packed-*"))
    assert [path.name.split("-")[0] for path in folder.glob("shard*")] == ["shard_00000"]
    left = list(folder.glob(".partial-*"))
    assert len(left) == 1  # the half file, under no name that is read
    os.utime(left[0], (0, 0))
    resumed = text_data("fineweb-edu", **PAGES)
    assert capsys.readouterr().err.count("cut off") == 2  # the first file is not made again
    assert not list(folder.glob(".partial-*"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    assert everything(resumed.train) == everything(text_data("fineweb-edu", **PAGES).train)


def test_a_full_disk_is_an_error_that_leaves_nothing(place, tmp_path, monkeypatch):
    def full(path, array):
        Path(path).write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(
        ValueError, match=r"^data: .*shard_00000.* could not be written: No space left on device$"
    ):
        text_data("fineweb-edu", **PAGES)
    folder = next((tmp_path / "cache" / "gkalib" / "prepared").glob("fineweb-edu-packed-*"))
    assert list(folder.iterdir()) == []


def alone(place):
    for number in ("00000", "00001"):
        (place / "fineweb-edu" / f"shard_{number}.parquet").unlink()


def other_columns(place):
    import pyarrow
    import pyarrow.parquet

    path = place / "fineweb-edu" / "shard_00000.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"url": ["a"]}), path)


def other_bytes(place):
    (place / "fineweb-edu" / "shard_00000.parquet").write_bytes(b"not a table")


@pytest.mark.parametrize(
    ("name", "changes", "spoil", "message"),
    [
        (
            "tinystories-full",
            {"rows": "packed"},
            None,
            "tinystories-full is read in rows of documents, not",
        ),
        ("fineweb-edu", {"rows": "windows"}, None, "fineweb-edu is read in rows of packed, not windows"),
        ("fineweb-edu", {"tokenizer": "characters"}, None, "fineweb-edu is too large for characters"),
        ("tinystories-full", {"wrap": 70}, None, "tinystories-full is too large for characters or wrapped"),
        ("fineweb-edu", {"vocab_size": 30_000}, None, r"the text yields \d+ tokens, fewer than the 30000 as"),
        ("fineweb-edu", {}, alone, r".* two files, since its last is held out; there is .*01822.parquet"),
        ("fineweb-edu", {}, other_columns, ".*shard_00000.parquet is no Parquet file with a column text"),
        ("fineweb-edu", {}, other_bytes, ".*shard_00000.parquet is no Parquet file with a column text"),
    ],
)
def test_what_cannot_be_read_says_why(place, name, changes, spoil, message):
    if spoil:
        spoil(place)
    with pytest.raises(ValueError, match=rf"^data: {message}"):
        text_data(name, **PAGES | changes)

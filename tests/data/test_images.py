"""Images by name, out of packages and made up: the same every time, and refused with the reason."""

import gzip

import numpy as np
import pytest

from gkalib.data import images
from gkalib.data.images import image_data
from tests.data.conftest import lay, pixels


def test_made_up_pictures_are_the_same_every_time_and_of_the_size_asked_for():
    first, again = images.made_up(48, 7), images.made_up(48, 7)
    assert (len(first.train), len(first.held_out), len(first.classes)) == (2048, 512, 7)
    assert first.train.labels.dtype == np.int64 and set(first.train.labels.tolist()) == set(range(7))
    picture = first.train.picture(5)
    assert (picture.size, picture.mode) == ((48, 48), "RGB")
    assert np.array_equal(picture, again.train.picture(5))
    assert not np.array_equal(picture, first.train.picture(6))
    assert not np.array_equal(picture, first.held_out.picture(5))
    assert image_data("made-up").train.picture(0).size == (32, 32)


def test_sets_of_gray_pictures_are_split_as_their_authors_did():
    data = image_data("digits")
    assert (len(data.train), len(data.held_out), data.classes[7]) == (1437, 360, "7")
    assert data.train.picture(0).mode == "L" and data.train.picture(0).size == (8, 8)
    assert pixels(data.train, 0).max() == 239  # 15 sixteenths of 255


def test_a_set_known_here_comes_before_a_folder_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("digits", "grass"):
        (tmp_path / name).mkdir()
    assert [images.is_own_folder(name) for name in ("digits", "grass", "none")] == [False, True, False]
    assert image_data("digits").classes == images.CLASSES["digits"]


@pytest.mark.data("fashion_mnist")
def test_articles_of_clothing_are_split_as_their_authors_did():
    data = image_data("fashion-mnist")
    assert (len(data.train), len(data.held_out)) == (60_000, 10_000)
    assert data.classes[data.train.labels[0]] == "ankle boot"
    assert data.train.picture(0).size == (28, 28) and pixels(data.train, 0).max() == 255
    assert np.bincount(data.held_out.labels).tolist() == [1000] * 10


def test_a_limit_takes_the_same_pictures_of_all_classes(tmp_path, capsys):
    for name, limit in (
        ("digits", 200),
        ("made-up", 200),
        (str(lay(tmp_path, "train/a:3 train/b:2 train/c:4 val/a val/b val/c")), 4),
    ):
        whole, some = image_data(name), image_data(name, limit=limit)
        rows = sorted(np.random.default_rng(0).permutation(len(whole.train))[:limit].tolist())
        assert some.train.labels.tolist() == whole.train.labels[rows].tolist()
        for place, row in enumerate(rows):
            assert np.array_equal(pixels(some.train, place), pixels(whole.train, row))
        assert len(some.held_out) == len(whole.held_out)
    assert np.bincount(image_data("digits", limit=200).train.labels).min() > 10
    assert len(image_data(str(tmp_path), limit=10).train) == 9
    assert capsys.readouterr().err == (
        "data: there are 9 pictures to train on, fewer than the limit of 10: all are used\n"
    )


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_give_pictures_and_labels_of_both_parts(put, packed):
    """A training set of two pictures and a test set of one, each file plain or packed by gzip."""
    pixels, labels = np.random.default_rng(0).integers(0, 256, (3, 28, 28), np.uint8), np.uint8([7, 2, 9])
    files = {}
    for part, rows in (("t10k", slice(2, 3)), ("train", slice(0, 2))):
        for kind, header, values in (("images-idx3", 16, pixels), ("labels-idx1", 8, labels)):
            content = bytes(header) + values[rows].tobytes()
            name = f"package/data/{part}-{kind}-ubyte" + ".gz" * packed
            files[name] = gzip.compress(content) if packed else content
    put("mnist", files, (pixels, labels))
    read = images.mnist()
    assert np.array_equal(read.images, np.divide(pixels, 255, dtype=np.float32))
    assert read.labels.tolist() == [7, 2, 9] and read.labels.dtype == np.int64


def test_the_middle_square_of_a_photograph():
    """Shrunk ten times, it is close to the means of ten by ten pixels."""
    whole, square = images.picture("cat"), images.picture("cat", side=30)
    assert square.shape == (30, 30, 3) and square.min() >= 0 and square.max() <= 1
    middle = whole[:, 75:375]  # 300 by 451: the middle 300 columns
    blocks = middle.reshape(30, 10, 30, 10, 3).mean((1, 3))
    assert np.abs(square - blocks).max() < 0.15 and np.abs(square - blocks).mean() < 0.01
    gray = images.picture("camera", side=64)
    assert gray.shape == (64, 64, 3) and (gray == gray[..., :1]).all()

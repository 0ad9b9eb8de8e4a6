"""Images by name, out of folders and made up: the same every time, and refused with the reason."""

import io
import pickle

import numpy as np
import pytest
from PIL import Image

from gkalib.data import photos, registry
from gkalib.data.photos import image_data, made_up


def need(name):
    if not registry.ready(name):
        pytest.skip(f"{name} is not here: python -m gkalib data get {name}")


def pixels(images, index):
    return np.asarray(images.picture(index))


def folder(root, train, val, size=(20, 15)):
    """A folder of pictures: the names of the classes and how many of each."""
    for part, classes in (("train", train), ("val", val)):
        for number, (name, count) in enumerate(classes.items()):
            (root / part / name).mkdir(parents=True)
            for index in range(count):
                shade = Image.new("RGB", size, (40 * number, 10 * index, 200))
                shade.save(root / part / name / f"{name}_{index}.JPEG", quality=95)
    return root


CLASSES = {"n02": 3, "n01": 2, "n10": 4}


def test_made_up_pictures_are_the_same_every_time_and_of_the_size_asked_for():
    first, again = image_data("made-up-48x7"), image_data("made-up-48x7")
    assert (len(first.train), len(first.held_out), len(first.classes)) == (2048, 512, 7)
    assert first.train.labels.dtype == np.int64 and set(first.train.labels.tolist()) == set(range(7))
    picture = first.train.picture(5)
    assert (picture.size, picture.mode) == ((48, 48), "RGB")
    assert np.array_equal(picture, again.train.picture(5))
    assert not np.array_equal(picture, first.train.picture(6))
    assert not np.array_equal(picture, first.held_out.picture(5))
    assert image_data("made-up").train.picture(0).size == (32, 32)


@pytest.mark.parametrize("classes", [10, 40, 200])
def test_the_class_of_a_made_up_picture_shows(classes):
    """Where the spectrum of a held-out picture is large, how its channels go together, and its mean."""
    data = made_up(32, classes, train=2, held_out=60)

    def seen(image):
        mean = image.mean((0, 1))
        waves = np.fft.fft2(image - mean, axes=(0, 1))
        together = (waves[..., :1] * waves[..., 1:].conj()).real  # forgets the phase
        near = np.abs(np.fft.fftfreq(32, 1 / 32)) <= 5
        return together[near][:, near].ravel() / 1e7, mean

    def drawn(label, number):
        images = made_up(32, classes, train=classes, held_out=1).train
        images.labels[:] = label
        return seen(pixels(images, number).astype(float))

    known = [[drawn(label, number) for number in range(3)] for label in range(classes)]
    means = [[np.mean([one[part] for one in each], 0) for part in (0, 1)] for each in known]
    hits = 0
    for index in range(len(data.held_out)):
        found = seen(pixels(data.held_out, index).astype(float))
        far = [sum(((a - b) ** 2).mean() for a, b in zip(found, mean, strict=True)) for mean in means]
        hits += int(np.argmin(far)) == data.held_out.labels[index]
    assert hits > 54


def test_sets_of_gray_pictures_are_split_as_their_authors_did():
    data = image_data("digits")
    assert (len(data.train), len(data.held_out), data.classes[7]) == (1437, 360, "7")
    assert data.train.picture(0).mode == "L" and data.train.picture(0).size == (8, 8)
    assert pixels(data.train, 0).max() == 239  # 15 sixteenths of 255
    need("fashion_mnist")
    data = image_data("fashion-mnist")
    assert (len(data.train), len(data.held_out)) == (60_000, 10_000)
    assert data.classes[data.train.labels[0]] == "ankle boot"
    assert data.train.picture(0).size == (28, 28) and pixels(data.train, 0).max() == 255
    assert np.bincount(data.held_out.labels).tolist() == [1000] * 10


def test_a_limit_takes_the_same_pictures_of_all_classes(tmp_path):
    whole, some = image_data("digits"), image_data("digits", limit=200)
    assert len(some.train) == 200 and len(some.held_out) == 360
    assert np.bincount(some.train.labels).min() > 10
    positions = [
        next(
            i
            for i in range(len(whole.train))
            if np.array_equal(pixels(whole.train, i), pixels(some.train, j))
        )
        for j in (0, 1, 50)
    ]
    assert positions == sorted(positions)
    for name in ("made-up", str(folder(tmp_path, CLASSES, CLASSES))):
        few, all_of_it = image_data(name, limit=4).train, image_data(name).train
        assert len(few) == 4
        assert any(np.array_equal(pixels(few, 2), pixels(all_of_it, i)) for i in range(len(all_of_it)))
    with pytest.raises(ValueError, match="data: limit must be from 1 to 9, the number of pictures, not 10"):
        image_data(str(tmp_path), limit=10)


def test_a_folder_of_class_folders_is_a_data_set(tmp_path):
    root = folder(tmp_path / "pictures", CLASSES, {name: 1 for name in CLASSES})
    (root / "train" / "n01" / "notes.txt").write_text("no picture")
    Image.new("L", (20, 15), 7).save(root / "train" / "n01" / "z.png")  # ImageNet has gray ones too
    data = image_data(str(root))
    assert data.classes == ("n01", "n02", "n10")
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert data.train.picture(2).mode == "RGB" and data.train.picture(2).getpixel((0, 0)) == (7, 7, 7)
    assert data.train.picture(3).size == (20, 15)
    assert np.abs(pixels(data.train, 4)[0, 0].astype(int) - [0, 10, 200]).max() < 4  # n02_1: first class made
    assert np.array_equal(pixels(pickle.loads(pickle.dumps(data.held_out)), 2), pixels(data.held_out, 2))


def test_folders_of_another_layout_are_refused(tmp_path):
    loose = tmp_path / "loose"
    (loose / "train").mkdir(parents=True)
    (loose / "val").mkdir()
    Image.new("RGB", (4, 4)).save(loose / "train" / "a.png")
    with pytest.raises(
        ValueError, match=r"train has no class folders \(1 pictures lie in it directly\): a fol"
    ):
        image_data(str(loose))
    one = folder(tmp_path / "one", CLASSES, {})
    with pytest.raises(
        ValueError, match=r"one has no folder val\. A folder of pictures holds train/CLASS/PICT"
    ):
        image_data(str(one))
    other = folder(tmp_path / "other", CLASSES, {"n01": 1, "n99": 1})
    with pytest.raises(
        ValueError, match=r"val has other classes than train: val lacks n02, n10; train lacks n99"
    ):
        image_data(str(other))
    empty = folder(tmp_path / "empty", {**CLASSES, "n03": 0}, CLASSES)
    with pytest.raises(ValueError, match=r"class folder .*n03 has no pictures"):
        image_data(str(empty))


def test_a_damaged_picture_is_named(tmp_path):
    root = folder(tmp_path, CLASSES, CLASSES, size=(64, 64))
    path = root / "train" / "n10" / "n10_2.JPEG"
    whole = io.BytesIO(path.read_bytes()).getvalue()
    for damaged in (whole[: len(whole) // 2], b"not a picture"):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"data: .*n10_2.JPEG cannot be decoded: "):
            image_data(str(root)).train.picture(7)


def test_unknown_names_are_answered_with_the_known_ones(tmp_path):
    with pytest.raises(
        ValueError, match=r"data: no images named 'cifar'. Known: .*made-up; or the path of a"
    ):
        image_data("cifar")
    with pytest.raises(ValueError, match=r"data: there is no folder .*nowhere"):
        image_data(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"have a size from 1 and 1 to 4000 classes, not 0 and 10"):
        image_data("made-up-0x10")
    assert set(photos.NAMES) >= {"digits", "mnist", "fashion-mnist", "made-up"}

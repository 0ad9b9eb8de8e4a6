"""ImageNet out of a folder and out of the files of the hub, both made up; lists of files hold or are new."""

import io
import os

import numpy as np
import pytest
from PIL import Image

from gkalib.data import folders, registry
from gkalib.data.photos import image_data

CLASSES = ("n01440764", "n01443537", "n02123394")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Two empty places, and an ImageNet of three classes, six pictures and three held out."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GKALIB_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(folders, "COUNTS", (3, 6, 3))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def write(root, counts=(2, 1)):
    for part, count in zip(("train", "val"), counts, strict=True):
        for label, name in enumerate(CLASSES):
            (root / part / name).mkdir(parents=True)
            for index in range(count):
                shade = Image.new("RGB", (50, 40), (80 * label, 40 * index, 9))
                shade.save(root / part / name / f"{name}_{index}.JPEG", quality=95)


def test_a_folder_of_that_name_is_imagenet(place):
    assert not registry.ready("imagenet")
    write(place / "imagenet")
    assert registry.ready("imagenet")
    registry.check("imagenet")
    data = image_data("imagenet", limit=4)
    assert data.classes == CLASSES and len(data.train) == 4
    assert data.held_out.labels.tolist() == [0, 1, 2]
    assert np.abs(np.asarray(data.held_out.picture(1))[5, 5].astype(int) - [80, 0, 9]).max() < 4


def test_a_part_of_imagenet_is_no_imagenet(place):
    write(place / "imagenet", (1, 1))
    with pytest.raises(ValueError) as failure:
        image_data("imagenet")
    have, whole = "3 classes, 3 pictures to train on and 3", "3 classes, 6 pictures to train on and 3"
    assert str(failure.value) == (
        f"data: 'imagenet' is not whole: it has {have} held out, not {whole} held out. "
        f"A part of it is a data set by its path: {place / 'imagenet'}"
    )


def test_where_it_is_not_every_way_to_get_it_is_named(place):
    with pytest.raises(ValueError) as failure:
        image_data("imagenet")
    message = str(failure.value)
    assert message.startswith(
        "datasets: 'imagenet' is not here. Get it with: python -m gkalib data get imagenet\n(about 150 GB of"
    )
    assert "has accepted its terms (hf auth login)" in message
    assert (
        f"or put its pictures as train/CLASS/PICTURE and val/CLASS/PICTURE into {place / 'imagenet'}"
        in message
    )


def write_hub(place, pictures):
    """Files as the hub has them; pictures are given as those of Pillow or as the bytes of a file."""
    pytest.importorskip("datasets", reason="the package datasets is not installed")
    import datasets

    datasets.disable_progress_bars()
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))}
    )
    folder = place / "imagenet-1k" / "data"
    folder.mkdir(parents=True)
    for part, count in (("train", 6), ("validation", 3)):
        rows = {"image": pictures[:count], "label": [2 - row % 3 for row in range(count)]}
        table = datasets.Dataset.from_dict(rows, features=features)
        for shard in range(count // 3):
            one = table.shard(count // 3, shard, contiguous=True)
            one.to_parquet(str(folder / f"{part}-0000{shard}-of-0000{count // 3}.parquet"))


def test_the_hubs_files_are_imagenet(place):
    write_hub(place, [Image.new("L" if row == 5 else "RGB", (30, 20), 40 * row) for row in range(6)])
    assert registry.ready("imagenet")
    data = image_data("imagenet", limit=5)
    assert data.classes == CLASSES and len(data.train) == 5
    whole = image_data("imagenet").train
    assert whole.labels.tolist() == [2, 1, 0, 2, 1, 0]
    picture = whole.picture(5)
    assert (picture.mode, picture.size, picture.getpixel((3, 3))) == ("RGB", (30, 20), (200, 200, 200))
    rows = data.train.rows
    assert data.train.labels.tolist() == whole.labels[rows].tolist()
    assert data.train.picture(4).getpixel((0, 0))[0] == whole.picture(int(rows[4])).getpixel((0, 0))[0]


def test_what_a_camera_wrote_beside_a_picture_neither_turns_it_nor_stops_a_run(place):
    turned = Image.Exif()
    turned[0x0112] = 6  # orientation: a quarter turn
    files = []
    for exif, note in ((turned, b""), (Image.Exif(), b"<x:xmpmeta tiff:Orientation='1'> \xa8 is no UTF-8")):
        stream = io.BytesIO()
        Image.new("RGB", (30, 20), (200, 10, 10)).save(stream, "JPEG", exif=exif, xmp=note)
        files.append({"bytes": stream.getvalue(), "path": None})
    write_hub(place, 2 * files + [{"bytes": b"no picture", "path": None}, *files])
    data = image_data("imagenet").train
    assert [data.picture(row).size for row in (0, 1)] == [(30, 20)] * 2
    with pytest.raises(ValueError, match="data: picture 4 of the hub's files cannot be decoded: cannot"):
        data.picture(4)


def test_the_list_of_many_files_is_kept_and_made_anew_when_they_change(place, monkeypatch):
    write(place / "imagenet")
    monkeypatch.setattr(folders, "MANY", 4)
    listed, scans = folders._classes, []
    monkeypatch.setattr(folders, "_classes", lambda root: scans.append(root.name) or listed(root))
    first = image_data("imagenet")
    again = image_data("imagenet")
    assert scans == ["train", "val", "val"]  # three pictures are too few to keep a list of
    assert np.array_equal(first.train.names, again.train.names)
    file = place / "imagenet" / "train" / CLASSES[1] / "another.JPEG"
    Image.new("RGB", (5, 5)).save(file)
    monkeypatch.setattr(folders, "COUNTS", (3, 7, 3))
    assert len(image_data("imagenet").train) == 7
    kept = next((place.parent / "cache" / "gkalib" / "lists").iterdir())
    for damage in ("", "[]", '{"stamps": 3}'):
        kept.write_text(damage)
        assert len(image_data("imagenet").train) == 7
    assert [path.suffix for path in kept.parent.iterdir()] == [".json"]
    os.remove(file)
    monkeypatch.setattr(folders, "COUNTS", (3, 6, 3))
    assert len(image_data("imagenet").train) == 6

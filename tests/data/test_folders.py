"""A folder of pictures, ImageNet out of a folder, and ImageNet out of the files of the hub, all made up."""

import io
import os
import pickle
import zlib

import numpy as np
import pytest
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from gkalib.cli import main
from gkalib.data import folders, registry
from gkalib.data.images import image_data
from tests.data.conftest import lay, pixels

CLASSES = ("n01440764", "n01443537", "n02123394")


SET = "train/n02:3 train/n01:2 train/n10:4 val/n02:1 val/n01:1 val/n10:1"


def test_a_folder_of_class_folders_is_a_data_set(tmp_path):
    root = lay(tmp_path / "pictures", SET)
    (root / "train" / "n01" / "notes.txt").write_text("no picture")
    Image.new("L", (20, 15), 7).save(root / "train" / "n01" / "z.png")  # ImageNet has gray ones too
    data = image_data(str(root))
    assert data.classes == ("n01", "n02", "n10")
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert data.train.picture(2).mode == "RGB" and data.train.picture(2).getpixel((0, 0)) == (7, 7, 7)
    assert data.train.picture(3).size == (20, 15)
    assert np.abs(pixels(data.train, 4)[0, 0].astype(int) - [0, 10, 200]).max() < 4  # n02_1: first class made
    assert np.array_equal(pixels(pickle.loads(pickle.dumps(data.held_out)), 2), pixels(data.held_out, 2))


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("val/n01 val/n02", r"set has a folder val and no folder train; it holds "),
        ("train/n01:1 train/n02:1", r"set has one picture of each class, so that none can be held out"),
        (
            "train/n01 train/n02 train/n10 val/n01 val/n99",
            r"val has other classes than train: val lacks n02, n10; train lacks n99",
        ),
        ("train/n01 train/n03:0 val/n01 val/n03", r"class folder .*n03 has no pictures \(.jpg"),
        ("train:1", r"train has no class folders \(1 pictures lie in it direct"),
        ("Train/cat train/cat val/cat", r"Train and .*train could both be the part train"),
    ],
)
def test_folders_of_another_layout_are_refused(tmp_path, layout, message):
    with pytest.raises(ValueError, match=f"^data: .*{message}"):
        image_data(str(lay(tmp_path / "set", layout)))


PARTS = ("Train Val", "Training Testing", "TRAIN validation", "train Test", "training valid")


@pytest.mark.parametrize(
    ("layout", "classes", "said"),
    [
        *((f"{a}/cat {a}/dog {b}/cat {b}/dog", "cat dog", "") for a, b in map(str.split, PARTS)),
        ("train/cat train/dog test", "cat dog", "has no folder val"),  # test has no classes
        ("cat test", "cat test", "has no folder val"),
        ("cat training valid", "cat training valid", "has no folder val"),
        ("test/cat test/dog", "cat dog", "holds nothing but"),
        ("cat/2024", "cat", "has no folder val"),
        ("train/one/x train/one/y val/one", "one", ""),
        ("archive/train/cat archive/val/cat", "cat", "holds nothing but"),
    ],
)
def test_a_folder_is_a_class_or_a_part(tmp_path, capsys, layout, classes, said):
    data = image_data(str(lay(tmp_path, layout)))
    assert data.classes == tuple(classes.split())
    assert len(data.train) and len(data.held_out)
    printed = capsys.readouterr().err
    assert said in printed and bool(said) == bool(printed)


def test_a_folder_in_a_folder_is_read_as_itself(tmp_path, capsys):
    inner = tmp_path / "photos" / "photos"
    lay(inner, "cat dog")
    (tmp_path / "photos" / "__MACOSX" / "cat").mkdir(parents=True)
    assert image_data(str(tmp_path)).classes == ("cat", "dog")
    assert f"data: {tmp_path} holds nothing but {inner}, which is read" in capsys.readouterr().err
    (inner / "self").symlink_to(inner)
    (tmp_path / "photos" / "loop").symlink_to(tmp_path)
    assert image_data(str(tmp_path)).classes == ("cat", "dog")


def test_the_folder_where_one_stands_is_read(tmp_path, monkeypatch):
    lay(tmp_path, "cat dog")
    monkeypatch.chdir(tmp_path)
    here, there = image_data("."), image_data(str(tmp_path))
    assert here.classes == there.classes and np.array_equal(here.train.names, there.train.names)
    assert np.array_equal(pixels(here.train, 7), pixels(there.train, 7))


def test_links_give_each_file_once(tmp_path):
    """A loop, a way up, a second link to a file, and one to a folder that lies elsewhere."""
    lay(tmp_path, "set/cat set/dog elsewhere/more:2")
    cats = tmp_path / "set" / "cat"
    for name, to in (("loop", cats), ("up", tmp_path / "set"), ("more", tmp_path / "elsewhere" / "more")):
        (cats / name).symlink_to(to)
    (cats / "again.JPEG").symlink_to(cats / "cat_0.JPEG")
    data = image_data(str(tmp_path / "set"))
    names = [os.fsdecode(name) for name in (*data.train.names, *data.held_out.names)]
    assert len({os.path.realpath(tmp_path / "set" / name) for name in names}) == len(names) == 12
    assert data.classes == ("cat", "dog")
    (tmp_path / "set" / "dog" / "a_cat.JPEG").symlink_to(cats / "cat_1.JPEG")
    with pytest.raises(ValueError, match=r"data: .*cat_1.JPEG and .*a_cat.JPEG are one file, in two classes"):
        image_data(str(tmp_path / "set"))


DAMAGED = {
    "half": lambda whole: whole[: len(whole) // 2],
    "another file": lambda whole: b"not a picture",
    "nothing": lambda whole: b"",
    "huge": lambda whole: huge(),
}


def huge():
    """The beginning of a picture of 40,000 by 40,000 pixels."""
    header = b"IHDR" + (40_000).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    return b"\x89PNG\r\n\x1a\n" + (13).to_bytes(4, "big") + header + zlib.crc32(header).to_bytes(4, "big")


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_picture_is_named(tmp_path, damage):
    root = lay(tmp_path, SET, size=(64, 64))
    path = root / "train" / "n10" / "n10_2.JPEG"
    path.write_bytes(DAMAGED[damage](path.read_bytes()))
    with pytest.raises(ValueError, match=r"data: .*n10_2.JPEG cannot be decoded: "):
        image_data(str(root)).train.picture(7)


def test_a_broken_held_out_picture_is_found_before_training(tmp_path, capsys):
    root = lay(tmp_path / "set", "train/a:6 train/b:6 val/a:2 val/b:2", size=(40, 40))
    paths = [root / "val" / "b" / "b_1.JPEG", root / "train" / "a" / "a_0.JPEG"]
    for path in paths:
        path.write_bytes(path.read_bytes()[:300])
    words = ["train", "gka-imagenet-tiny", "--arm", "gka", "--smoke", "--data", str(root)]
    assert main([*words, "--out", str(tmp_path / "run"), "--device", "cpu"]) == 2
    said = capsys.readouterr()
    assert "data: 2 of 16 pictures cannot be read:\n" in said.err
    assert all(f"{path} cannot be decoded: " in said.err for path in paths)
    assert "step " not in said.out + said.err


RAMP = np.arange(256, dtype=np.uint8)[None].repeat(4, 0)


@pytest.mark.parametrize(
    ("name", "pixels"),
    [
        ("gray.png", RAMP),
        ("sixteen.png", RAMP.astype(np.uint16) * 257),
        ("sixteen.tif", RAMP.astype(np.uint16) * 257),
        ("other-end.tif", (RAMP.astype(np.uint16) * 257).astype(">u2")),
        ("sixteen.pgm", RAMP.astype(np.uint16) * 257),
        ("alpha.png", np.stack([0 * RAMP, 255 - RAMP], -1)),  # black as far as it is to be seen, on white
    ],
)
def test_a_ramp_is_read_as_a_ramp(tmp_path, name, pixels):
    Image.fromarray(pixels).save(tmp_path / name)
    picture = folders.read_picture(tmp_path / name)
    assert picture.mode == "RGB"
    assert np.abs(np.asarray(picture).astype(int) - RAMP[..., None]).max() <= 1


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_values_without_a_known_white_are_refused(tmp_path, dtype):
    Image.fromarray(RAMP.astype(dtype)).save(tmp_path / "deep.tif")
    with pytest.raises(ValueError, match=r"data: .*deep.tif cannot be decoded: its values have 32 bits"):
        folders.read_picture(tmp_path / "deep.tif")


def test_the_transparent_value_of_sixteen_bits_lies_on_white(tmp_path):
    values = RAMP.astype(np.uint16) * 257
    Image.fromarray(values).save(tmp_path / "clear.png", transparency=0)
    picture = folders.read_picture(tmp_path / "clear.png")
    assert np.array_equal(np.asarray(picture), np.where(RAMP == 0, 255, RAMP)[..., None].repeat(3, -1))


# What is shown of rows stored from above, by the orientation of EXIF.
SHOWN = {
    1: lambda stored: stored,
    2: np.fliplr,
    3: lambda stored: np.rot90(stored, 2),
    4: np.flipud,
    5: lambda stored: stored.T,
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: np.rot90(stored, 2).T,
    8: np.rot90,
}


@pytest.mark.parametrize("orientation", SHOWN)
@pytest.mark.parametrize("name", ["phone.png", "phone.jpg", "phone.tif", "sixteen.tif"])
def test_a_picture_is_turned_as_the_camera_noted(tmp_path, name, orientation):
    exif, stored = Image.Exif(), np.zeros((40, 60), np.uint8)
    exif[0x0112], stored[:16, :32] = orientation, 255
    written = stored.astype(np.uint16) * 257 if name == "sixteen.tif" else stored
    Image.fromarray(written).save(tmp_path / name, exif=exif)
    picture = np.asarray(folders.read_picture(tmp_path / name))[..., 0]
    assert np.array_equal(picture > 127, SHOWN[orientation](stored) > 127)


def test_a_broken_note_turns_nothing(tmp_path):
    note = PngInfo()
    note.add_text("Raw profile type exif", "\nexif\n 4\nno hexadecimal\n")
    Image.new("RGB", (6, 4)).save(tmp_path / "note.png", pnginfo=note)
    with Image.open(tmp_path / "note.png") as image, pytest.raises(ValueError, match="hexadecimal"):
        image.getexif()
    assert folders.read_picture(tmp_path / "note.png").size == (6, 4)


@pytest.mark.parametrize("inside", ["", "train"])
def test_of_a_folder_without_val_a_fifth_of_each_class_is_held_out(tmp_path, capsys, inside):
    lay(tmp_path / inside, "cat:11 dog:3 eel:1")
    (tmp_path / inside / ".hidden").mkdir()
    data = image_data(str(tmp_path))
    assert data.classes == ("cat", "dog", "eel")
    assert np.bincount(data.train.labels).tolist() == [9, 2, 1]
    assert np.bincount(data.held_out.labels).tolist() == [2, 1]
    assert capsys.readouterr().err == (
        f"data: {tmp_path} has no folder val: 3 of its 15 pictures are held out, a fifth of each class, "
        "always the same ones\n"
    )
    assert {*data.train.names} | {*data.held_out.names} == {*image_data(str(tmp_path)).train.names} | {
        *image_data(str(tmp_path)).held_out.names
    }
    assert not {*data.train.names} & {*data.held_out.names}
    assert data.held_out.names.tolist() == image_data(str(tmp_path)).held_out.names.tolist()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Two empty places, and an ImageNet of three classes, six pictures and three held out."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GKALIB_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(folders, "COUNTS", (3, 6, 3))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def imagenet(place, each):
    """A folder of that name with so many pictures of each class to train on, and one held out."""
    words = [f"{part}/{name}:{count}" for part, count in (("train", each), ("val", 1)) for name in CLASSES]
    lay(place / "imagenet", " ".join(words))


def test_a_folder_of_that_name_is_imagenet(place):
    assert not registry.ready("imagenet")
    imagenet(place, 2)
    assert registry.ready("imagenet")
    registry.check("imagenet")
    data = image_data("imagenet", limit=4)
    assert data.classes == CLASSES and len(data.train) == 4
    assert data.held_out.labels.tolist() == [0, 1, 2]
    assert np.abs(pixels(data.held_out, 1)[5, 5].astype(int) - [40, 0, 200]).max() < 4


def test_a_part_of_imagenet_is_no_imagenet(place):
    imagenet(place, 1)
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
        "data: 'imagenet' is not here. Get it with: python -m gkalib data get imagenet\n(about 150 GB of"
    )
    assert "has accepted its terms (hf auth login)" in message
    assert f"into the folder imagenet-1k of {place} or " in message
    assert (
        "or its pictures as train/CLASS/PICTURE and val/CLASS/PICTURE into a folder imagenet there" in message
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
            part_table = table.shard(count // 3, shard, contiguous=True)
            part_table.to_parquet(str(folder / f"{part}-0000{shard}-of-0000{count // 3}.parquet"))


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

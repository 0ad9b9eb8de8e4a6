"""What tests of data share: a machine without data, and a set's archive with made-up files in it."""

import dataclasses
import io
import os
import sys
import tarfile

import numpy as np
import pytest
from PIL import Image

from gkalib.data import fetch, registry


def write_tar(stream, files):
    """An archive of tar, packed by gzip, with these files."""
    with tarfile.open(fileobj=stream, mode="w:gz") as packed:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))


def pixels(images, index):
    """One of some pictures, as an array."""
    return np.asarray(images.picture(index))


def lay(root, layout, size=(20, 15)):
    """A folder of pictures: words such as ``train/cat:3``, a folder and how many lie in it, five if not said.

    A picture has the number of its class in red and its own in green.
    """
    classes = []
    for word in layout.split():
        path, _, count = word.partition(":")
        folder = root / path
        folder.mkdir(parents=True)
        classes += [] if folder.name in classes else [folder.name]
        for index in range(int(count or 5)):
            shade = Image.new("RGB", size, (40 * classes.index(folder.name), 10 * index, 200))
            shade.save(folder / f"{folder.name}_{index}.JPEG", quality=95)
    return root


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The default cache, empty, with no other place to look in and no proxy on the way."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    for name in ("GKALIB_DATA", *(name for name in os.environ if name.lower().endswith("_proxy"))):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home" / "gkalib"


@pytest.fixture
def put(cache, monkeypatch):
    """Lay a set's archive into the cache: what it holds, and the content that is registered."""

    def archive(name, files, content, client="npm"):
        cache.mkdir(parents=True, exist_ok=True)
        entry = registry.DATASETS[name]
        source = next(archive for archive in entry.archives if archive.client == client)
        with (cache / source.file).open("wb") as stream:
            write_tar(stream, files)
        source = dataclasses.replace(source, sha256=fetch.sha256_of(cache / source.file))
        changed = dataclasses.replace(entry, archives=(source,), sha256=registry.digest(content))
        monkeypatch.setitem(registry.DATASETS, name, changed)

    return archive

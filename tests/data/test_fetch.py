"""Fetching is whole or not at all, from packages, servers and the hub, and every failure says what to do."""

import dataclasses
import gzip
import hashlib
import io
import lzma
import os
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from gkalib.data import fetch as fetching
from gkalib.data import registry, text
from gkalib.data.fetch import Archive, fetch, find, members, whole
from gkalib.data.registry import DATASETS, digest
from tests.data.conftest import write_tar

CONTENT = b"what the registry serves"
GOOD = Archive(
    file="set-1.0.whl", client="pip", package="set==1.0", sha256=hashlib.sha256(CONTENT).hexdigest()
)


def client(program):
    """A package client that runs a line of Python with the folder as its argument."""
    return lambda package, folder: [sys.executable, "-c", f"import pathlib, sys; {program}", str(folder)]


WRITES = f"(pathlib.Path(sys.argv[1]) / 'set-1.0.whl').write_bytes({CONTENT!r})"
WRITES_OTHER = "(pathlib.Path(sys.argv[1]) / 'set-1.0.whl').write_bytes(b'half of it')"
WRITES_THEN_FAILS = f"{WRITES_OTHER}; sys.exit('connection lost')"


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def serve(monkeypatch, program):
    monkeypatch.setitem(fetching.COMMANDS, "pip", client(program))


def test_pip_itself_brings_a_wheel(cache, tmp_path, monkeypatch):
    """The real command, answered from a folder instead of a registry."""
    wheel = tmp_path / "gkalib_made_up-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        info = "gkalib_made_up-1.0.dist-info"
        packed.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: gkalib-made-up\nVersion: 1.0\n")
        packed.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    archive = Archive(wheel.name, "pip", "gkalib-made-up==1.0", fetching.sha256_of(wheel))
    assert fetch(archive) == cache / wheel.name


def test_a_fetched_archive_is_found_afterwards_behind_the_named_folder(cache, tmp_path, monkeypatch):
    serve(monkeypatch, WRITES)
    assert find(GOOD) is None
    path = fetch(GOOD)
    assert path == find(GOOD) == cache / "set-1.0.whl"
    assert path.read_bytes() == CONTENT
    assert names(cache) == ["set-1.0.whl"]
    monkeypatch.setenv("GKALIB_DATA", str(tmp_path))
    assert find(GOOD) == path
    (tmp_path / "set-1.0.whl").write_bytes(CONTENT)
    assert find(GOOD) == tmp_path / "set-1.0.whl"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (client(WRITES_OTHER), r"set-1.0.whl has sha256 \w{64}, not \w{64}: it was not kept"),
        (client(WRITES_THEN_FAILS), "pip could not fetch set==1.0: connection lost"),
        (client("pass"), "pip could not fetch set==1.0: no file set-1.0.whl"),
        (lambda *_: ["no-such-program"], "fetching set==1.0 needs the program pip, which is not here"),
    ],
    ids=["wrong checksum", "client fails midway", "client writes nothing", "no client"],
)
def test_a_failed_fetch_leaves_nothing(cache, monkeypatch, command, message):
    monkeypatch.setitem(fetching.COMMANDS, "pip", command)
    with pytest.raises(ValueError, match=message):
        fetch(GOOD)
    assert names(cache) == []


def test_what_killed_fetches_left_goes_a_day_later(cache, monkeypatch):
    old, new = cache / ".partial-old", cache / ".partial-new"
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    serve(monkeypatch, WRITES)
    fetch(GOOD)
    assert names(cache) == [".partial-new", "set-1.0.whl"]
    with pytest.raises(KeyboardInterrupt), whole(cache / "half") as partial:
        partial.write_bytes(b"half of it")
        raise KeyboardInterrupt
    assert names(cache) == [".partial-new", "set-1.0.whl"]


@pytest.mark.parametrize(
    ("platform", "tail"),
    [
        ("linux", (".cache", "gkalib")),
        ("darwin", ("Library", "Caches", "gkalib")),
        ("win32", ("AppData", "Local", "gkalib", "Cache")),
    ],
)
def test_the_default_cache_is_where_the_system_keeps_such_things(monkeypatch, platform, tail):
    monkeypatch.setattr(sys, "platform", platform)
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    assert fetching.default_cache().parts[-len(tail) :] == tail


def test_checking_what_is_not_here_fetches_nothing(cache, monkeypatch):
    serve(monkeypatch, "raise AssertionError('fetched')")
    with pytest.raises(ValueError, match=r"Get it with: python -m gkalib data get minilm\n"):
        registry.check("minilm")
    assert not cache.exists()


FILES = {"set/data/a.txt": b"one", "set/data/b.txt": b"two", "set/README": b"about it"}


def zipped():
    with zipfile.ZipFile(stream := io.BytesIO(), "w") as packed:
        for name, content in FILES.items():
            packed.writestr(name, content)
    return stream.getvalue()


def tarred():
    write_tar(stream := io.BytesIO(), FILES)
    return stream.getvalue()


def debian():
    def member(name, data):
        return f"{name:<48}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)

    packed = lzma.compress(gzip.decompress(tarred()))
    return b"!<arch>\n" + member("debian-binary", b"2.0\n") + member("data.tar.xz", packed)


@pytest.mark.parametrize(
    ("name", "write"), [("set.whl", zipped), ("set.tgz", tarred), ("set.tar.gz", tarred), ("set.deb", debian)]
)
def test_every_kind_of_archive_gives_the_files_asked_for(tmp_path, name, write):
    (tmp_path / name).write_bytes(write())
    asked = members(tmp_path / name, "*.txt", "set/data/*")
    assert asked == {path: FILES[path] for path in ("set/data/a.txt", "set/data/b.txt")}
    assert members(tmp_path / name, "set/README") == {"set/README": b"about it"}


STORY = "Once upon a time.\n"


@pytest.fixture
def story(cache, monkeypatch):
    """A short story in the place of those that have to be put in place by hand, and the folder for it."""
    entry = DATASETS["tinystories"]
    files = {name: hashlib.sha256(STORY.encode()).hexdigest() for name in entry.folder.files}
    changed = dataclasses.replace(entry.folder, files=files)
    monkeypatch.setitem(
        DATASETS, "tinystories", dataclasses.replace(entry, folder=changed, sha256=digest(STORY))
    )
    (cache / entry.folder.name).mkdir(parents=True)
    return cache / entry.folder.name / "tinystories_sample.txt"


@pytest.mark.parametrize(
    ("ending", "written"),
    [
        ("", STORY.encode()),
        ("", b"\xef\xbb\xbf" + STORY.replace("\n", "\r\n").encode()),
        (".xz", lzma.compress(STORY.encode())),
    ],
    ids=["plain", "byte order mark and carriage returns", "xz"],
)
def test_a_text_put_in_place_by_hand_is_read(story, ending, written):
    assert not registry.ready("tinystories")
    story.with_name(story.name + ending).write_bytes(written)
    assert registry.ready("tinystories")
    assert text.tinystories() == STORY


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (b"Twice upon a time.", r"sample.txt holds a text with sha256 \w{64}, not \w{64}: replace it"),
        ("Ein Märchen".encode("latin-1"), r"sample.txt is no text in utf-8"),
    ],
)
def test_another_text_is_refused(story, written, message):
    story.write_bytes(written)
    with pytest.raises(ValueError, match=rf"^data: .*{message}"):
        text.tinystories()


@pytest.mark.parametrize("name", ["dickens", "tinystories"])
def test_what_no_package_carries_says_where_to_put_it_and_where_it_is_to_be_had(cache, name):
    assert not registry.ready(name)
    folder = DATASETS[name].folder
    with pytest.raises(ValueError) as failure:
        getattr(text, name)()
    message = str(failure.value)
    assert message.startswith(
        f"data: '{name}' is not here. No package carries it: put {', '.join(folder.files)}"
    )
    assert f"into the folder {folder.name} of {cache}" in message
    assert message.endswith(f"to be had from {folder.source}")


BYTES = os.urandom(300_000)


def url(path):
    return Archive("set.bin", "url", path.as_uri(), hashlib.sha256(BYTES).hexdigest(), len(BYTES))


def test_a_file_of_a_server_comes_whole_and_is_found_afterwards(cache, tmp_path, capsys):
    (tmp_path / "there").write_bytes(BYTES)
    source = url(tmp_path / "there")
    assert fetch(source) == find(source) == cache / "set.bin"
    assert (cache / "set.bin").read_bytes() == BYTES and names(cache) == ["set.bin"]
    assert capsys.readouterr().err == f"data: fetching {source.package} (0.3 MB)\n"


def test_what_is_not_the_whole_file_is_refused_and_not_kept(cache, tmp_path):
    there = tmp_path / "there"
    with pytest.raises(ValueError, match=r"there could not be read: .*No such file"):
        fetch(url(there))
    there.write_bytes(BYTES[:-1])
    with pytest.raises(ValueError, match=r"set.bin has sha256 \w{64}, not \w{64}: it was not kept"):
        fetch(url(there))
    assert names(cache) == []


def test_who_asks_for_a_file_that_another_fetches_waits_and_takes_it(cache, monkeypatch):
    """Threads stand for processes: the lock belongs to whoever opened its file."""
    serve(monkeypatch, f"import time; time.sleep(0.3); {WRITES}")
    began = []
    monkeypatch.setattr(fetching, "say", began.append)
    with ThreadPoolExecutor(3) as others:
        paths = list(others.map(fetch, [GOOD] * 3))
    assert paths == [cache / "set-1.0.whl"] * 3 and len(began) == 1

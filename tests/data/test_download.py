"""A download from a public address goes on where it was cut off: against a real server that breaks off."""

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gkalib.data import download as downloading
from gkalib.data import fetch as fetching
from gkalib.data import progress
from gkalib.data.download import Url
from gkalib.data.fetch import fetch, find

CONTENT = os.urandom(300_000)


@contextmanager
def serving(content=CONTENT, *, ranges=True, cut=None, times=1, status=200):
    """A server of one file that sends ``cut`` bytes of an answer and hangs up, as many times as it is told.

    Yields the file's address and the list of the ranges that were asked for.
    """
    asked = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers.get("Range")
            asked.append(wanted)
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and ranges else 0
            if status != 200:
                self.send_error(status)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.end_headers()
            end = start + cut if cut is not None and len(asked) <= times else len(content)
            self.wfile.write(content[start:end])

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/set.bin", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty default cache, with no other place to look in and no proxy on the way."""
    monkeypatch.setattr(fetching, "default_cache", lambda: tmp_path / "cache")
    monkeypatch.delenv("GKALIB_DATA", raising=False)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    return tmp_path / "cache"


def url(address, content=CONTENT):
    return Url("set.bin", address, hashlib.sha256(content).hexdigest(), len(content))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_comes_whole_and_is_found_afterwards(cache, capsys):
    with serving() as (address, asked):
        source = url(address)
        assert fetch(source) == find(source) == cache / "set.bin"
    assert (cache / "set.bin").read_bytes() == CONTENT
    assert names(cache) == ["set.bin"] and asked == [None]
    assert capsys.readouterr().err == f"data: fetching {address} (0.3 MB)\n"


def test_a_lost_connection_is_taken_up_again_where_it_was_lost(cache):
    with serving(cut=70_000, times=3) as (address, asked):
        assert fetch(url(address)).read_bytes() == CONTENT
    assert asked == [None, "bytes=70000-", "bytes=140000-", "bytes=210000-"]
    assert names(cache) == ["set.bin"]


def test_without_ranges_it_begins_anew(cache):
    with serving(ranges=False, cut=70_000, times=2) as (address, asked):
        assert fetch(url(address)).read_bytes() == CONTENT
    assert asked == [None, "bytes=70000-", "bytes=70000-"]


def test_an_interrupted_attempt_is_gone_on_with_by_the_next(cache):
    with serving(cut=70_000) as (address, asked):
        source = url(address)

        def interrupt(here):
            if here == 70_000:
                raise KeyboardInterrupt

        cache.mkdir()
        with pytest.raises(KeyboardInterrupt):
            downloading.download(source, cache / "set.bin.partial", interrupt)
        assert find(source) is None and names(cache) == ["set.bin.partial"]
        assert fetch(source).read_bytes() == CONTENT
    assert asked == [None, "bytes=70000-"]


def test_a_server_that_goes_silent_is_given_up_with_what_came_kept(cache):
    with serving(cut=70_000) as (address, _), pytest.raises(ValueError) as failure:
        # after the first answer, every other one is empty
        source = url(address)
        read = downloading._go_on
        answers = iter(range(100))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                downloading, "_go_on", lambda *given: read(*given) if next(answers) == 0 else "silence"
            )
            fetch(source)
    expected = (
        f"{address} could not be read: silence; 70000 of 300000 bytes are kept, and the next attempt goes on"
    )
    assert str(failure.value) == expected
    assert names(cache) == ["set.bin.partial"]


@pytest.mark.parametrize(
    ("server", "declared", "message"),
    [
        ({"status": 404}, CONTENT, r"set.bin answers 404 Not Found$"),
        ({}, CONTENT + b"more", r"set.bin has 300000 bytes, not 300004: it is another file$"),
        ({}, CONTENT[::-1], r"set.bin has sha256 \w{64}, not \w{64}: it was not kept$"),
    ],
    ids=["no such file", "another size", "another content"],
)
def test_what_is_not_the_file_is_refused_and_not_kept(cache, server, declared, message):
    with serving(**server) as (address, asked), pytest.raises(ValueError, match=message):
        fetch(url(address, declared))
    assert names(cache) == [] and len(asked) == 1


def test_a_server_that_cannot_be_reached_is_asked_once(cache, monkeypatch):
    with serving() as (address, _):
        pass
    calls, opened = [], downloading.urlopen
    monkeypatch.setattr(downloading, "urlopen", lambda *a, **k: calls.append(k) or opened(*a, **k))
    with pytest.raises(ValueError, match=r"set.bin could not be read: \[Errno 111\] Connection refused$"):
        fetch(url(address))
    assert calls == [{"timeout": 10}] and names(cache) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
def test_a_full_disk_is_no_lost_connection(cache):
    cache.mkdir()
    (cache / "set.bin.partial").symlink_to("/dev/full")
    with serving() as (address, asked), pytest.raises(OSError, match="No space left on device"):
        fetch(url(address))
    assert len(asked) == 1 and names(cache) == ["set.bin.partial"]


def test_who_asks_for_a_file_that_another_fetches_waits_and_takes_it(cache, monkeypatch):
    """Threads stand for processes: the lock belongs to whoever opened the folder, not to the process."""
    fcntl = pytest.importorskip("fcntl", reason="this system has no such lock")
    refused, lock = threading.Semaphore(0), fcntl.flock

    def told(handle, how):
        try:
            lock(handle, how)
        except BlockingIOError:
            refused.release()
            raise

    monkeypatch.setattr(fcntl, "flock", told)
    cache.mkdir()
    with serving() as (address, asked), ThreadPoolExecutor(2) as others:
        source = url(address)
        with fetching._alone(cache) as waited:
            assert not waited
            waiting = [others.submit(fetch, source) for _ in range(2)]
            assert all(refused.acquire(timeout=10) for _ in waiting)
            fetched = fetching._from_address(source, cache)
        assert [one.result() for one in waiting] == [fetched, fetched]
    assert len(asked) == 1 and fetched.read_bytes() == CONTENT


def test_the_bar_is_shown_in_a_terminal_alone(monkeypatch, capsys):
    with progress.bar("set", 100) as show:
        show(50)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.bar("set", 100) as show:
        show(50)
    assert "set" in capsys.readouterr().err


def test_the_bar_counts_a_package_once_and_what_killed_fetches_left_goes(cache, tmp_path):
    (tmp_path / "cache" / "inner").mkdir(parents=True)
    for name, size in (("a", 10), ("inner/b", 30), ("inner/c", 20)):
        (cache / name).write_bytes(bytes(size))
    assert fetching._largest(cache) == 30
    old, new = cache / ".partial-old", cache / ".partial-new"
    for folder in (old, new):
        folder.mkdir()
    os.utime(old, (0, 0))
    fetching._sweep(cache)
    assert not old.exists() and new.exists()

"""Downloads a file from its public address, going on where an earlier attempt was cut off."""

import http.client
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

TIMEOUT = 10.0  # seconds in which no byte arrives
ATTEMPTS = 3  # without a byte, before giving up on a server that has sent some


@dataclass(frozen=True)
class Url:
    """One file of a public server.

    Args:
        file: its name here.
        url: its address.
        sha256: of the file, in hexadecimal.
        size: in bytes.
    """

    file: str
    url: str
    sha256: str
    size: int


def download(source: Url, partial: Path, show: Callable[[int], None]) -> None:
    """Bring all bytes of a file into ``partial``, after those that are there already.

    A lost connection is taken up again with a range request. A server that knows no ranges sends the file
    from its beginning, and it is written from its beginning.

    Args:
        source: the file.
        partial: where its bytes go. It stays if the download fails, for the next attempt to go on from.
        show: called with the number of bytes that are there.

    Raises:
        ValueError: if the server cannot be reached, has no such file or one of another size, or breaks off
            too often.
        OSError: if the bytes cannot be written.
    """
    silent = ATTEMPTS - 1  # a server that sends nothing at first is not waited for
    while (before := _size(partial)) != source.size:
        if before > source.size:
            partial.unlink()
        try:
            reason = _go_on(source, partial, show)
        except HTTPError as refusal:
            raise ValueError(f"{source.url} answers {refusal.code} {refusal.reason}") from refusal
        silent = 0 if _size(partial) > before else silent + 1
        if silent == ATTEMPTS:
            here = _size(partial)
            kept = f"; {here} of {source.size} bytes are kept, and the next attempt goes on" if here else ""
            raise ValueError(f"{source.url} could not be read: {reason}{kept}")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _go_on(source: Url, partial: Path, show: Callable[[int], None]) -> str:
    """One connection; returns why it ended. Only reading may fail without an error: writing may not."""
    start = _size(partial)
    request = Request(source.url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        response = urlopen(request, timeout=TIMEOUT)
    except HTTPError:
        raise
    except (OSError, http.client.HTTPException) as failure:
        return str(getattr(failure, "reason", failure)) or type(failure).__name__
    with response:
        start, size = _offered(response, start)
        if size is not None and size != source.size:
            raise ValueError(f"{source.url} has {size} bytes, not {source.size}: it is another file")
        with partial.open("ab" if start else "wb") as file:
            while True:
                try:
                    some = response.read1(1 << 16)
                except (OSError, http.client.HTTPException) as failure:
                    return str(failure) or type(failure).__name__
                if not some:
                    return "the connection was lost"
                file.write(some)
                show(file.tell())


def _offered(response: http.client.HTTPResponse, start: int) -> tuple[int, int | None]:
    """At which byte an answer begins, and how many the file has if it says so."""
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
    if response.status == 206 and found and int(found[1]) == start:
        return start, int(found[2])
    length = response.headers.get("Content-Length")
    return 0, int(length) if length and response.status == 200 else None

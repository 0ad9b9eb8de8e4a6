"""Runs a chapter again in a fresh kernel and compares every output with the stored one, strictly (nbval)."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import nbformat
from execute import environment
from pairs import ROOT

SANITIZE = ROOT / "tests" / "chapters" / "sanitize.cfg"
# Any of these would excuse a cell from the comparison.
EXCUSES = ("nbval-ignore-output", "nbval-skip", "NBVAL_IGNORE_OUTPUT", "NBVAL_SKIP")


def rerun(notebook: Path) -> int:
    """Execute a stored notebook again; return the number of cells whose outputs were compared and agreed.

    Raises:
        ValueError: when an output differs or a cell fails; also when a cell was never run, is excused from
            the comparison, or no cell was compared: nbval alone would pass those.
    """
    stored = nbformat.read(notebook, as_version=4)
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    unrun = [cell.source for cell in code if cell.execution_count is None and cell.source.strip()]
    if unrun:
        raise ValueError(f"rerun: {notebook.name}: {len(unrun)} cells have not run, the first {unrun[0]!r}")
    for cell in code:
        if any(word in cell.source or word in cell.metadata.get("tags", []) for word in EXCUSES):
            raise ValueError(f"rerun: {notebook.name}: a cell is excused from comparison:\n{cell.source}")
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.xml"
        # The project's own pytest settings are for tests, not for cells.
        settings = ["-c", os.devnull, "--rootdir", str(notebook.parent), f"--junitxml={report}"]
        plugins = ["-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", "-p", "no:timeout"]
        strict = ["--nbval", "--nbval-current-env", "--nbval-sanitize-with", str(SANITIZE)]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *settings, *plugins, *strict, str(notebook)],
            env=environment(),
            capture_output=True,
            text=True,
        )
        cases = list(ElementTree.parse(report).getroot().iter("testcase")) if report.exists() else []
    passed = sum(len(case) == 0 or all(child.tag.startswith("system") for child in case) for case in cases)
    if done.returncode or passed != len(code) or not passed:
        raise ValueError(
            f"rerun: {notebook.name}: {passed} of {len(code)} cells agree with what is stored\n{done.stdout}"
        )
    return passed


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(f"{argument}: {rerun(Path(argument).resolve())} cells agree with what is stored")

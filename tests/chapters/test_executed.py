"""Every chapter gives its stored outputs again, and the comparison sees each kind of stale output."""

import os
import re
import subprocess
import sys

import execute
import jitter
import nbformat
import pytest
from nbclient.exceptions import CellExecutionError
from pairs import ROOT, code_cells, paths, slugs

from gkalib.viz.digest import MIME
from tests.chapters.conftest import SLUG

PLOT, CONTROL, LOSS, ERROR = "label=", "viz.explore", "loss", "on purpose"


def code_cell(notebook, words):
    return next(cell for cell in code_cells(notebook) if words in cell.source)


@pytest.mark.parametrize("slug", [pytest.param(s, marks=pytest.mark.xdist_group(s)) for s in slugs(ROOT)])
def test_the_chapter_gives_its_outputs_again(slug):
    assert jitter.jitter(paths(ROOT, slug)[0]) == {}


def test_a_user_may_check_a_chapter_by_nbval_alone():
    """Nothing but the notebook is named, and the cells keep their order though other tests are shuffled."""
    chapter = min(
        slugs(ROOT), key=lambda slug: nbformat.read(paths(ROOT, slug)[0], 4).metadata.gkalib.stamp.seconds
    )
    command = [sys.executable, "-m", "pytest", "--nbval", f"{chapter}.ipynb", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=ROOT / "chapters", env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout


def test_a_chapter_says_itself_whether_the_interpreter_is_on(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert "TRITON_INTERPRET" not in execute.environment()


def test_the_outputs_carry_digests(executed):
    notebook = nbformat.read(paths(executed, SLUG)[0], as_version=4)
    figure, control = (code_cell(notebook, words).outputs for words in (PLOT, CONTROL))
    assert [sorted(output.data) for output in figure] == [[MIME, "image/png", "text/plain"]]
    assert [sorted(output.data) for output in control] == [[MIME, "text/html", "text/plain"]]
    assert sorted(control[0].data[MIME]) == ["power=1", "power=2", "power=3"]


def test_what_may_differ_is_no_fault(spoil):
    def change(notebook):
        # Pixels differ between versions of a font; the arrays that were plotted do not.
        code_cell(notebook, PLOT).outputs[0].data["image/png"] = "AAAA"
        # In base64 a slash is a letter: no other rule may cut a picture into pieces.
        html = code_cell(notebook, CONTROL).outputs[0].data
        html["text/html"] = re.sub(r"(?<=;base64,)[^\"']+", "AAAA/usr/lib/took+0x123456==", html["text/html"])
        cell = code_cell(notebook, LOSS)
        cell.source = 'import time\nprint(f"took {time.perf_counter():.3f} s at {id(time):#x}")'
        cell.outputs[0].text = "took 0.001 s at 0x7fffffffffff\n"

    assert jitter.jitter(spoil(change)) == {}


def test_each_kind_of_stale_output_is_found(spoil):
    def change(notebook):
        # Pictures stay as they were while the code plots something else: only the digests tell.
        for words, old, new in (
            (PLOT, "x**2", "1.01 * x**2"),
            (CONTROL, "x**power", "x ** (power + (power == 3))"),
            (ERROR, 'raise ValueError("on purpose")', "pass"),
        ):
            cell = code_cell(notebook, words)
            assert old in cell.source
            cell.source = cell.source.replace(old, new)
        code_cell(notebook, LOSS).outputs[0].text = "loss 0.260\n"

    found = jitter.jitter(spoil(change))
    assert len(found) == 4 and sum(text.startswith(f"{MIME}: ") for text in found.values()) == 2
    assert "stdout: - is stored, + is new\n- loss 0.260\n+ loss 0.250" in "\n".join(found.values())


def test_a_failing_cell_is_found(spoil):
    def change(notebook):
        code_cell(notebook, LOSS).source += "\nassert record.metrics['loss'] > 1"

    (said,) = jitter.jitter(spoil(change)).values()
    assert said.startswith("error: ") and "AssertionError" in said


def edit_text(book, old, new):
    text = paths(book, SLUG)[1]
    assert old in text.read_text()
    text.write_text(text.read_text().replace(old, new))


def test_execution_stops_at_a_failing_cell_and_keeps_the_notebook(book):
    before = paths(book, SLUG)[0].read_bytes()
    edit_text(book, "record = load", "1 / 0\nrecord = load")
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        execute.execute(SLUG, root=book)
    assert paths(book, SLUG)[0].read_bytes() == before


def test_execution_refuses_a_warning_on_the_page(book):
    edit_text(book, "record = load", "import warnings\nwarnings.warn('beware')\nrecord = load")
    with pytest.raises(ValueError, match=r"wrote to stderr(.|\n)*beware"):
        execute.execute(SLUG, root=book)


def test_the_work_of_others_does_not_count(book, monkeypatch):
    monkeypatch.setitem(execute._AFTER, "work", "0.25")  # of a kernel that waited most of the time
    assert execute.execute(SLUG, root=book)["seconds"] == 0.2


def test_execution_twice_stores_the_same_cells(book, executed):
    execute.execute(SLUG, root=book)
    first, second = (nbformat.read(paths(root, SLUG)[0], as_version=4) for root in (executed, book))
    assert first.cells == second.cells


def pretend(monkeypatch, *, output=None, seconds=1.0):
    """Stand in for the kernel: the chapter took `seconds`, and its first cell showed `output`."""

    async def run(notebook, root):
        if output is not None:
            code_cells(notebook)[0].outputs = [output]
        return {"records": {}, "seconds": seconds, "peak_mib": 100, "versions": {}}

    monkeypatch.setattr(execute, "run", run)


WIDGET = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "interactive(...)"}


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        ({"output": nbformat.v4.new_output("display_data", data=WIDGET)}, "no kernel for a widget"),
        ({"seconds": 60.1}, r"took 60\.1 s, more than 60 s"),
        ({"output": nbformat.v4.new_output("stream", text="x" * execute.BYTES)}, "more than 1572864"),
    ],
    ids=["widget", "slow", "large"],
)
def test_execution_refuses_what_no_page_can_have(book, monkeypatch, shown, message):
    pretend(monkeypatch, **shown)
    with pytest.raises(ValueError, match=message):
        execute.execute(SLUG, root=book)


def test_outputs_name_no_place_of_the_machine(book, monkeypatch):
    text = f"{book}/chapters {ROOT}/gkalib {execute.sys.prefix}/lib /tmp/ipykernel_12/34.py\n"
    pretend(monkeypatch, output=nbformat.v4.new_output("stream", text=text))
    execute.execute(SLUG, root=book)
    notebook = nbformat.read(paths(book, SLUG)[0], as_version=4)
    assert code_cells(notebook)[0].outputs[0].text == "./chapters ./gkalib python/lib <cell>\n"

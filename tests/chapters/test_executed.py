"""Every chapter gives its stored outputs again, and the comparison sees each kind of stale output."""

import nbformat
import pytest
from execute import execute
from nbclient.exceptions import CellExecutionError
from pairs import ROOT, paths, slugs
from rerun import rerun

from gkalib.viz.digest import MIME
from tests.chapters.conftest import SLUG


def code_cell(notebook, words):
    return next(cell for cell in notebook.cells if cell.cell_type == "code" and words in cell.source)


@pytest.mark.parametrize("slug", [pytest.param(s, marks=pytest.mark.xdist_group(s)) for s in slugs(ROOT)])
def test_the_chapter_gives_its_outputs_again(slug):
    path = paths(ROOT, slug)[0]
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert rerun(path) == len(cells) > 0


def test_a_sound_chapter_agrees(book):
    assert rerun(paths(book, SLUG)[0]) == 5


def test_the_outputs_carry_digests(executed):
    notebook = nbformat.read(paths(executed, SLUG)[0], as_version=4)
    figure, control = (code_cell(notebook, words).outputs for words in ("label=", "viz.explore"))
    assert [sorted(output.data) for output in figure] == [[MIME, "image/png", "text/plain"]]
    assert [sorted(output.data) for output in control] == [[MIME, "text/html", "text/plain"]]
    assert sorted(control[0].data[MIME]) == ["power=1", "power=2", "power=3"]


def test_a_stale_output_is_found(spoil):
    def change(notebook):
        code_cell(notebook, "loss").outputs[0].text = "loss 0.260\n"

    with pytest.raises(ValueError, match=r"4 of 5 cells agree(.|\n)*loss 0\.260"):
        rerun(spoil(change))


def test_a_stale_picture_is_found(spoil):
    # The picture stays as it was and the code plots something else: only the digest tells.
    def change(notebook):
        cell = code_cell(notebook, "label=")
        cell.source = cell.source.replace("x**2", "1.01 * x**2")

    with pytest.raises(ValueError, match=r"4 of 5 cells agree(.|\n)*gkalib\.digest"):
        rerun(spoil(change))


def test_a_stale_control_is_found(spoil):
    def change(notebook):
        cell = code_cell(notebook, "viz.explore")
        cell.source = cell.source.replace("x**power", "x ** (power + (power == 3))")

    with pytest.raises(ValueError, match=r"4 of 5 cells agree(.|\n)*gkalib\.digest"):
        rerun(spoil(change))


def test_another_picture_under_the_same_digest_is_no_fault(spoil):
    # Pixels differ between versions of a font; the arrays that were plotted do not.
    def change(notebook):
        code_cell(notebook, "label=").outputs[0].data["image/png"] = "AAAA"

    assert rerun(spoil(change)) == 5


def test_a_failing_cell_is_found(spoil):
    def change(notebook):
        cell = code_cell(notebook, "loss")
        cell.source += "\nassert record.metrics['loss'] > 1"

    with pytest.raises(ValueError, match=r"4 of 5 cells agree(.|\n)*AssertionError"):
        rerun(spoil(change))


def test_a_cell_that_no_longer_fails_is_found(spoil):
    def change(notebook):
        code_cell(notebook, "on purpose").source = "pass"

    with pytest.raises(ValueError, match="4 of 5 cells agree"):
        rerun(spoil(change))


def test_a_notebook_without_outputs_is_found(spoil):
    def change(notebook):
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None

    with pytest.raises(ValueError, match="5 cells have not run"):
        rerun(spoil(change))


def test_a_notebook_without_code_is_found(spoil):
    def change(notebook):
        notebook.cells = [cell for cell in notebook.cells if cell.cell_type == "markdown"]

    with pytest.raises(ValueError, match="0 of 0 cells agree"):
        rerun(spoil(change))


@pytest.mark.parametrize("excuse", ["tag", "comment"])
def test_a_cell_excused_from_the_comparison_is_found(spoil, excuse):
    def change(notebook):
        cell = code_cell(notebook, "loss")
        if excuse == "tag":
            cell.metadata["tags"] = ["nbval-ignore-output"]
        else:
            cell.source = "# NBVAL_SKIP\n" + cell.source

    with pytest.raises(ValueError, match="excused from comparison"):
        rerun(spoil(change))


def test_timings_and_addresses_may_differ(spoil):
    def change(notebook):
        cell = code_cell(notebook, "loss")
        cell.source = 'import time\nprint(f"took {time.perf_counter():.3f} s at {id(time):#x}")'
        cell.outputs[0].text = "took 0.001 s at 0x7fffffffffff\n"

    assert rerun(spoil(change)) == 5


def fault(book, old, new):
    text = paths(book, SLUG)[1]
    assert old in text.read_text()
    text.write_text(text.read_text().replace(old, new))


def test_execution_stops_at_a_failing_cell_and_keeps_the_notebook(book):
    before = paths(book, SLUG)[0].read_bytes()
    fault(book, "record = load", "1 / 0\nrecord = load")
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        execute(SLUG, root=book)
    assert paths(book, SLUG)[0].read_bytes() == before


def test_execution_refuses_warnings_on_the_page(book):
    fault(book, "record = load", "import warnings\nwarnings.warn('beware')\nrecord = load")
    with pytest.raises(ValueError, match=r"wrote to stderr(.|\n)*beware"):
        execute(SLUG, root=book)


def test_execution_refuses_a_widget(book):
    fault(book, 'alt="A curve of degree {power}.")', 'alt="A curve of degree {power}.").live()')
    with pytest.raises(ValueError, match="no kernel for a widget"):
        execute(SLUG, root=book)


def test_execution_refuses_a_slow_chapter(book, monkeypatch):
    monkeypatch.setattr("execute.SECONDS", 0.1)
    with pytest.raises(ValueError, match=r"more than 0\.1 s"):
        execute(SLUG, root=book)


def test_execution_refuses_a_large_chapter(book, monkeypatch):
    monkeypatch.setattr("execute.BYTES", 10_000)
    with pytest.raises(ValueError, match="more than 10000"):
        execute(SLUG, root=book)


def test_execution_twice_stores_the_same_cells_and_pictures(book, executed):
    execute(SLUG, root=book)
    first, second = (nbformat.read(paths(root, SLUG)[0], as_version=4) for root in (executed, book))
    assert first.cells == second.cells


def test_outputs_name_no_place_of_the_machine(book):
    fault(book, "loss {record", "{Path.cwd()} {np.__file__} loss {record")
    execute(SLUG, root=book)
    output = code_cell(nbformat.read(paths(book, SLUG)[0], as_version=4), "loss").outputs[0].text
    assert output.startswith("./chapters python/lib/python3")
    assert output.endswith("loss 0.250\n")

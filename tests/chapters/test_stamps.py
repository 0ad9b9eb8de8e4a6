"""A stamp ties outputs to the code and the records that made them: each way to go stale is found."""

import nbformat
from pairs import check, paths

from gkalib.results import save
from tests.chapters.conftest import SLUG, record


def only_fault(book) -> str:
    faults = check(SLUG, root=book)
    assert len(faults) == 1, faults
    return faults[0]


def edit_code_in_both(book, old, new):
    """Edit a code cell in text and notebook alike, as an editor that syncs the pair would."""
    for path in paths(book, SLUG):
        content = path.read_text()
        assert old in content
        path.write_text(content.replace(old, new))


def test_the_stamp_says_what_was_run(executed):
    stamp = nbformat.read(paths(executed, SLUG)[0], as_version=4).metadata.gkalib.stamp
    assert sorted(stamp) == ["asked", "code", "date", "outputs", "peak_mib", "records", "seconds", "versions"]
    assert list(stamp.records) == ["demo/base-smoke-s0-cpu"] and stamp.asked == ["demo/*"]
    assert 0 < stamp.seconds < 60
    assert 50 < stamp.peak_mib < 4096
    assert sorted(stamp.versions) == ["python", "torch"]


def test_edited_code_under_an_old_stamp_is_found(book):
    edit_code_in_both(book, "x**2, label", "x**4, label")
    assert only_fault(book) == f"{SLUG}: the code cells changed since it was executed"


def test_edited_prose_keeps_the_stamp(book):
    edit_code_in_both(book, "The end.", "The very end.")
    assert check(SLUG, root=book) == []


def test_a_changed_record_is_found(book):
    save(record(loss=0.5), root=book / "data" / "results")
    assert only_fault(book) == f"{SLUG}: the record demo/base-smoke-s0-cpu it read changed or is missing"


def test_a_removed_record_is_found(book):
    (book / "data" / "results" / "demo" / "base-smoke-s0-cpu" / "run.json").unlink()
    assert "changed or is missing" in only_fault(book)


def test_a_newer_record_of_an_arm_it_did_not_ask_for_is_none_of_its_business(book, spoil):
    def ask(notebook):
        notebook.metadata.gkalib.stamp.asked = ["demo/bas*"]

    spoil(ask)
    save(record(arm="other"), root=book / "data" / "results")
    assert check(SLUG, root=book) == []
    save(record(arm="basic"), root=book / "data" / "results")
    newer = "the record demo/basic-smoke-s0-cpu is newer than its reading of demo/bas*"
    assert only_fault(book) == f"{SLUG}: {newer}"


def test_a_notebook_without_outputs_is_found(spoil, book):
    def clear(notebook):
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None

    spoil(clear)
    assert check(SLUG, root=book) == [
        f"{SLUG}: the outputs changed since it was executed",
        f"{SLUG}: 5 of 5 code cells have not run",
        f"{SLUG}: no cell has an output",
    ]


def test_an_exchanged_picture_is_found(spoil, book):
    # Its digest is the same, so a rerun would not tell.
    def exchange(notebook):
        picture = next(cell for cell in notebook.cells if "label=" in cell.source).outputs[0]
        picture.data["image/png"] = "AAAA"

    spoil(exchange)
    assert only_fault(book) == f"{SLUG}: the outputs changed since it was executed"


def test_a_missing_stamp_is_found(spoil, book):
    spoil(lambda notebook: notebook.metadata.gkalib.pop("stamp"))
    assert only_fault(book) == f"{SLUG}: no stamp: it was never executed"

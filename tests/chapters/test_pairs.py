"""Every chapter's notebook holds the cells of its text, and the comparison sees every way to differ."""

import re
import shutil
import subprocess
import sys

import jupytext
import pytest
import yaml
from pairs import ROOT, check, paths, read_text, set_up, slugs, write_set_up

from tests.chapters.conftest import SLUG


def chapters_of_the_contents() -> list[str]:
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    files = [entry["file"] for part in contents["parts"] for entry in part["chapters"]]
    return sorted(file.removeprefix("chapters/") for file in files if file.startswith("chapters/"))


def test_the_contents_list_every_chapter():
    assert slugs(ROOT) == chapters_of_the_contents() != []


@pytest.mark.parametrize("slug", slugs(ROOT))
def test_pair_and_stamp_agree(slug):
    assert check(slug) == []


@pytest.mark.parametrize("slug", slugs(ROOT))
def test_the_minutes_to_read_are_those_of_the_words_and_the_code(slug):
    """A minute for 100 words or ten lines of visible code before the exercises, to five minutes."""
    text, words, lines = read_text(ROOT, slug), 0, 0
    for cell in text.cells:
        if cell.cell_type == "markdown":
            taught, *exercises = re.split(r"^## (?:Exercises|Puzzles)$", cell.source, flags=re.M)
            words += len(taught.split())
            if exercises:
                break
        elif not {"set-up", "hide-input"} & set(cell.metadata.get("tags", [])):
            lines += len(cell.source.splitlines())
    assert abs(text.metadata.gkalib.minutes_to_read - (words / 100 + lines / 10)) <= 5


@pytest.mark.parametrize("slug", slugs(ROOT))
def test_a_stored_notebook_names_no_place_of_the_machine(slug):
    stored = paths(ROOT, slug)[0].read_text(encoding="utf-8")
    assert str(ROOT) not in stored
    assert "site-packages" not in stored


def test_the_command_fails_when_there_is_a_fault(book):
    (book / "book").mkdir()
    for script in ("execute.py", "pairs.py"):
        shutil.copy(ROOT / "book" / script, book / "book")
    command = [sys.executable, str(book / "book" / "execute.py"), "--check"]
    sound = subprocess.run(command, capture_output=True, text=True)
    assert (sound.returncode, sound.stdout) == (0, "1 chapters: pairs and stamps agree\n")
    paths(book, SLUG)[1].unlink()
    faulty = subprocess.run(command, capture_output=True, text=True)
    assert (faulty.returncode, faulty.stdout) == (1, f"{SLUG}: chapters/text/{SLUG}.md is missing\n")


EDITED = [  # a piece of the text, what takes its place, and what is said then
    ("one cell of every", "a cell of every", "cell 0 differs between notebook and text: '# An example for"),
    ("torch.manual_seed(0)", "torch.manual_seed(1)", "the set-up cell is not the book's"),
    (":tags: [set-up]", ":tags: [other]", "0 cells are tagged set-up, there must be one"),
]


@pytest.mark.parametrize(("old", "new", "said"), EDITED)
def test_an_edited_text_is_found(book, old, new, said):
    text = paths(book, SLUG)[1]
    text.write_text(text.read_text().replace(old, new))
    assert f"{SLUG}: {said}" in "\n".join(check(SLUG, root=book))


SPOILT = {  # what is said, and what was done to the notebook
    "cell 1 differs": lambda notebook: notebook.cells[1].update(source="Two cells became one."),
    "the notebook has 7 cells, the text 8": lambda notebook: notebook.cells.pop(),
    "cell 3 differs": lambda notebook: notebook.cells[3].metadata.mystnb.figure.update(caption="Another."),
    "the gkalib metadata": lambda notebook: notebook.metadata.gkalib.update(gpu="yes"),
}


@pytest.mark.parametrize("said", SPOILT)
def test_an_edited_notebook_is_found(spoil, book, said):
    spoil(SPOILT[said])
    assert check(SLUG, root=book)[0].startswith(f"{SLUG}: {said}")


@pytest.mark.parametrize("which", [0, 1])
def test_a_missing_half_is_found(book, which):
    paths(book, SLUG)[which].unlink()
    assert "is missing" in check(SLUG, root=book)[0]


def test_the_set_up_cell_installs_once_the_address_is_known(book):
    (book / "_config.yml").write_text("repository:\n  url: https://example.org/book\n")
    write_set_up(book, SLUG)
    cell = next(cell for cell in read_text(book, SLUG).cells if "set-up" in cell.metadata.get("tags", []))
    assert cell.source == set_up(book)
    assert '%pip install -q "gkalib[book,language,vision] @ git+https://example.org/book"' in cell.source
    assert cell.source.count("import gkalib") == 2


def test_jupytext_pairs_the_two_files_as_we_do(book):
    settings = jupytext.config.load_jupytext_configuration_file(str(ROOT / "jupytext.toml"))
    notebook, text = paths(book, SLUG)
    formats = jupytext.config.notebook_formats(jupytext.read(notebook), settings, str(notebook), "ipynb")
    pairs = jupytext.paired_paths.paired_paths(str(notebook), "ipynb", formats)
    assert {path for path, _ in pairs} == {str(notebook), str(text)}

"""The book without the solutions of its exercises, on the chapter that the teacher's page shows."""

import re

import pytest

from tests.book.conftest import ROOT, tiny_book

pytestmark = pytest.mark.book
PAGE = (ROOT / "book" / "teach.md").read_text(encoding="utf-8")
CHAPTER = re.search(r"^````md\n(.+?)^````$", PAGE, re.M | re.S)[1]
SOLVED = "attention_weights"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    made = tiny_book(tmp_path_factory.mktemp("course") / "tiny")
    made.write("page.md", CHAPTER)
    return made


def test_a_chapter_of_ones_own_has_its_solution(tiny):
    done = tiny.build()
    assert done.returncode == 0, done.stderr
    assert "What is the first weight" in tiny.html() and SOLVED in tiny.html()


def test_without_solutions_no_file_has_them(tiny):
    done = tiny.build("--without-solutions")
    assert done.returncode == 0, done.stderr
    html = tiny.root / "_build" / "without-solutions" / "html"
    assert "What is the first weight" in (html / "page.html").read_text(encoding="utf-8")
    files = [path for path in html.rglob("*") if path.suffix in (".html", ".js", ".md", ".ipynb", ".txt")]
    assert not [path for path in files if SOLVED in path.read_text(encoding="utf-8")]

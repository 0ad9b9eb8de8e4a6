"""Front and back matter: mentions of chapters become links by themselves, terms are explained once."""

import re

import pytest

from tests.book.conftest import ROOT, tiny_book

PAGES = ("intro", "glossary")


def text(name: str) -> str:
    """A page's source."""
    return (ROOT / "book" / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.book
def test_a_mention_is_a_link_once_the_chapter_is_in_the_book(tmp_path):
    tiny = tiny_book(tmp_path / "tiny")
    tiny.page("# Page\n\n{chapter}`Chapter 3` is written, {chapter}`chapter 4` is not.")
    tiny.write("chapters/03-written.md", "# Written\n\nText.\n")
    tiny.write(
        "_toc.yml", "format: jb-book\nroot: start\nchapters:\n  - file: page\n  - file: chapters/03-written\n"
    )
    done = tiny.build()
    assert done.returncode == 0, done.stderr
    html = tiny.html()
    assert re.search(
        r'<a class="reference internal" href="chapters/03-written.html"><span[^>]*>Chapter 3</span></a>', html
    )
    assert "chapter 4</span> is not" in html and html.count("chapters/04") == 0


@pytest.mark.book
def test_a_mention_without_a_number_fails_the_build(tmp_path):
    tiny = tiny_book(tmp_path / "tiny")
    tiny.page("# Page\n\n{chapter}`the first chapter`")
    done = tiny.build()
    assert done.returncode != 0
    assert "no number in" in done.stderr


@pytest.mark.parametrize("name", PAGES)
def test_chapters_are_mentioned_by_the_role(name):
    bare = re.sub(r"\{chapter\}`[^`]*`", "", text(name))
    assert not re.findall(r"[Cc]hapter \d+|\]\([^)]*chapters/", bare)
    assert len(re.findall(r"\{chapter\}`", text(name))) >= 10


def test_every_term_has_a_definition_of_at_most_four_sentences_and_a_place_in_the_book():
    body = re.search(r"```\{glossary\}\n:sorted:\n\n(.*?)```", text("glossary"), re.S)[1]
    terms = re.findall(r"^(\S.*)\n((?:  .*\n)+)", body, re.M)
    assert len(terms) >= 45
    assert len({term for term, _ in terms}) == len(terms) == len(re.findall(r"^\S", body, re.M))
    for term, meaning in terms:
        assert re.search(r"\{(chapter|doc)\}`", meaning), f"{term} names no chapter or page"
        plain = re.sub(r"\{\w+\}`[^`]*`[^.]*\.", "", meaning)
        assert 0 <= plain.count(". ") + plain.count(".\n") <= 4, f"{term} is explained at length"


@pytest.mark.parametrize(
    "word",
    [
        "kernel",
        "bandwidth",
        "score",
        "weights",
        "normalizer",
        "mask",
        "gram",
        "feature map",
        "landmarks",
        "registers",
        "head",
        "effective neighbors",
        "degrees of freedom",
        "leave-one-out",
        "positive semi-definite",
        "prior weight",
        "fused operation",
    ],
)
def test_the_vocabulary_of_the_library_is_explained(word):
    assert f"\n{word}\n  " in text("glossary")


@pytest.mark.parametrize("page", ["findings", "traps", "decisions", "dropped"])
def test_the_log_is_dated_newest_first(page):
    dates = re.findall(r"^## (.+)$", text(f"log/{page}"), re.M)
    assert dates and all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for date in dates)
    assert dates == sorted(set(dates), reverse=True)

"""The built book as files: a page per entry of the contents, no dead link, nothing loaded from elsewhere."""

import os
import re
import shutil
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml

from tests.book.conftest import ROOT
from tests.book.test_faults import EQUATION, STAMPED, notebook, registered

pytestmark = pytest.mark.book
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "video": "src"}


class Page(HTMLParser):
    """The ids, links and loaded resources of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if given.get(LOADING.get(tag, "")):
            self.loads.append(given[LOADING[tag]])


@cache
def read(path: Path) -> Page:
    """A parsed page."""
    return Page(path.read_text(encoding="utf-8"))


def pages(html: Path) -> list[Path]:
    """The pages of the book; the theme keeps templates among its static files."""
    return [path for path in sorted(html.rglob("*.html")) if "_static" not in path.relative_to(html).parts]


def dead_links(html: Path) -> list[str]:
    """The links between pages whose file or anchor does not exist, and the local files that are not there."""
    dead = []
    for path in pages(html):
        page = read(path)
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            where = f"{path.relative_to(html)}: {link}"
            if not target.is_file():
                dead.append(where)
            elif parts.fragment and target.suffix == ".html" and link in page.links:
                dead += [where] if unquote(parts.fragment) not in read(target).ids else []
    return dead


def foreign_loads(html: Path) -> list[str]:
    """What pages and style sheets load from another host."""
    loads = [
        f"{path.relative_to(html)}: {load}"
        for path in pages(html)
        for load in read(path).loads
        if urlsplit(load).scheme in ("http", "https") or load.startswith("//")
    ]
    for path in sorted(html.rglob("*.css")):
        found = re.findall(
            r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)", path.read_text(encoding="utf-8")
        )
        loads += [f"{path.relative_to(html)}: {url}" for url in found]
    return loads


def test_every_chapter_and_page_is_in_the_contents(build_module):
    entries = build_module.toc_entries(ROOT / "_toc.yml")
    assert len(entries) == len(set(entries))
    chapters = [f"chapters/{path.stem}" for path in (ROOT / "chapters").glob("*.ipynb")]
    pages = [f"book/{path.stem}" for path in (ROOT / "book").glob("*.md")]
    assert sorted(set(chapters + pages) - set(entries)) == []


def test_old_addresses_of_chapters_lead_to_the_new_ones(book):
    moved = [
        path for path in (book / "chapters").glob("*.html") if "chapter has moved" in path.read_text("utf-8")
    ]
    assert len(moved) == 17
    assert read(book / "chapters/14-memory-wall.html").links == ["16-memory-wall.html"]
    assert read(book / "chapters/30-one-budget.html").links == ["32-one-budget.html"]


def test_no_link_is_dead(book):
    assert dead_links(book) == []


def test_no_formula_begins_or_ends_with_a_blank(book):
    """As one does where a line break took the place of the ``\\n`` of a ``\\nu``."""
    formula = re.compile(r'<span class="math notranslate nohighlight">\\\((\s|[^<]*\s\\\)</span>)')
    assert [path.name for path in pages(book) if formula.search(path.read_text("utf-8"))] == []


def test_nothing_is_loaded_from_another_host(book):
    if shutil.which("npm") is None and not os.environ.get("CI"):
        pytest.skip("without npm the build takes MathJax from its public host, and says so")
    assert foreign_loads(book) == []
    assert (book / "mathjax" / "tex-mml-chtml.js").is_file()


def test_without_an_address_there_is_no_link_to_a_repository(book):
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    if config["repository"]["url"]:
        pytest.skip("the public address is set")
    for path in pages(book):
        text = path.read_text(encoding="utf-8")
        assert "colab.research" not in text and "mybinder.org" not in text
        assert not re.search(r'href="[^"]*/(edit|blob|issues/new)[/?]', text), path


def test_a_dead_link_and_a_foreign_load_are_noticed(tmp_path):
    (tmp_path / "a.html").write_text(
        '<a id="here" href="b.html#there">x</a> <a href="gone.html">y</a> <a href="#here">z</a>'
        '<script src="https://elsewhere.example/x.js"></script><img src="gone.png">'
    )
    (tmp_path / "b.html").write_text('<link rel="stylesheet" href="c.css"><p id="else"></p>')
    (tmp_path / "c.css").write_text(
        "@import '//elsewhere.example/x.css'; p { background: url(https://e.example/p) }"
    )
    assert dead_links(tmp_path) == ["a.html: b.html#there", "a.html: gone.html", "a.html: gone.png"]
    assert foreign_loads(tmp_path) == [
        "a.html: https://elsewhere.example/x.js",
        "c.css: //elsewhere.example/x.css",
        "c.css: https://e.example/p",
    ]


def test_one_setting_brings_the_repository_edit_colab_and_binder_links(tiny):
    tiny.write(
        "_toc.yml", "format: jb-book\nroot: start\nchapters:\n  - file: page\n  - file: chapters/01-one\n"
    )
    tiny.page(
        "# Page\n\n" + EQUATION,
        registered('{function: gkalib.double, test: "tests/test_inner.py::test_double"}'),
    )
    tiny.write("chapters/01-one.ipynb", notebook(STAMPED))
    done = tiny.build("--cdn", "--repository-url", "https://github.com/someone/somewhere")
    assert done.returncode == 0, done.stderr
    page, chapter = tiny.html(), tiny.html("chapters/01-one")
    address = "https://github.com/someone/somewhere"
    assert f'href="{address}"' in page
    assert f'href="{address}/edit/main/page.md"' in page
    assert f'href="{address}/blob/main/tests/test_inner.py#L1"' in page
    assert "colab.research.google.com/github/someone/somewhere/blob/main/chapters/01-one.ipynb" in chapter
    assert "mybinder.org/v2/gh/someone/somewhere/main?urlpath=lab/tree/chapters/01-one.ipynb" in chapter
    # What a button of a chapter leads to is a file of the book's sources.
    targets = re.findall(r'href="[^"]*/main(?:\?urlpath=lab/tree)?/([^"?#]*)', chapter)
    assert len(targets) > 3 and set(targets) == {"chapters/01-one.ipynb"}
    assert (tiny.root / targets[0]).is_file()
    pages = "https://someone.github.io/somewhere"
    assert f'<link rel="canonical" href="{pages}/page.html"' in page
    picture = re.search(f'<meta content="{pages}/([^"]*)" property="og:image"', page)
    assert picture and (tiny.root / "_build" / "html" / picture[1]).is_file()
    assert 'name="description"' in page


@pytest.mark.parametrize(
    ("repository", "pages"),
    [
        ("https://github.com/Someone/book", "https://someone.github.io/book/"),
        ("https://github.com/someone/someone.github.io/", "https://someone.github.io/"),
    ],
)
def test_a_fork_has_pages_of_its_own(build_module, repository, pages):
    assert build_module.pages_address(repository) == pages


def test_without_npm_the_build_says_where_formulas_come_from(build_module, tmp_path, monkeypatch):
    monkeypatch.setattr(build_module.shutil, "which", lambda name: None)
    assert build_module.local_mathjax(tmp_path, tmp_path / "extra") == "npm is not installed"


def test_a_failing_npm_is_reported(build_module, tmp_path, monkeypatch):
    monkeypatch.setattr(build_module.shutil, "which", lambda name: "/bin/npm")
    failed = type("Done", (), {"returncode": 1, "stderr": "no network"})
    monkeypatch.setattr(build_module.subprocess, "run", lambda *args, **options: failed)
    assert build_module.local_mathjax(tmp_path, tmp_path / "extra") == "npm failed: no network"


def test_a_slow_npm_is_given_up(build_module, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "npm").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "bin" / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(build_module, "NPM_SECONDS", 0.2)
    assert build_module.local_mathjax(tmp_path, tmp_path / "extra") == "npm took more than 0.2 s"


def test_the_fallback_to_the_public_host_builds_and_says_so(tiny):
    tiny.page("# Page\n\n$y = x$")
    done = tiny.build("--cdn")
    assert done.returncode == 0
    assert done.stderr == "book: formulas will load MathJax from its public CDN, because that was asked for\n"
    assert [load for load in Page(tiny.html()).loads if "mathjax" in load and load.startswith("https://")]

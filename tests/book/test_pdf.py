"""The book as one PDF: pages in order, names that stay apart, links and pictures that lead somewhere."""

import importlib.util
import re

import pytest
from bs4 import BeautifulSoup

from tests.book.conftest import ROOT, tiny_book
from tests.book.test_browser import CHROMIUM

pytestmark = pytest.mark.book
TEXT = """# Second

See [the start](start.md), $x$ and [below](#below).

![An empty square of nine pixels](picture.svg)

## Below

```{note}
:class: dropdown

Folded.
```
"""


@pytest.fixture(scope="module")
def pdf():
    """The script as a module."""
    pytest.importorskip("playwright")
    spec = importlib.util.spec_from_file_location("book_pdf", ROOT / "book" / "pdf.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    made = tiny_book(tmp_path_factory.mktemp("pdf") / "tiny")
    below = "## Below\n\nGo to [the page](page.md#below).\n"
    made.write("start.md", f"# Start\n\n{below}\n## Contents\n\n```{{tableofcontents}}\n```\n")
    made.page(TEXT)
    done = made.build()
    assert done.returncode == 0, done.stderr
    return made


def test_every_link_and_picture_of_the_one_file_leads_somewhere(pdf, tiny):
    html = tiny.root / "_build" / "html"
    soup = BeautifulSoup(pdf.joined(html, tiny.root), "html.parser")
    names = [node["id"] for node in soup.select("[id]")]
    assert len(set(names)) == len(names) and {"page-0-below", "page-1-below"} <= {*names}
    assert [node.h1.text for node in soup.select("article")] == ["Start", "Second"]
    links = [node["href"].removeprefix("#") for node in soup.select("article [href], li [href]")]
    assert {"page-0", "page-1", "page-1-below"} <= {*links} <= {*names}
    pictures = [html / node["src"] for node in soup.select("article img")]
    assert len(pictures) == 1 and pictures[0].is_file()
    assert not soup.select("button, .headerlink, .toctree-wrapper") and "MathJax" in str(
        soup.select("script")
    )


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_the_browser_prints_it(pdf, tiny):
    html = tiny.root / "_build" / "html"
    pdf.main(html, tiny.root)
    printed = (html / "book.pdf").read_bytes()
    assert printed.startswith(b"%PDF") and len(re.findall(rb"/Type /Page\b", printed)) == 4
    assert not (html / "print.html").exists()

"""Prints the built book as one PDF: ``python book/pdf.py _build/html`` writes ``book.pdf`` there.

The ledger, the log, the API reference and folded code stay out.
"""

import re
import shutil
import sys
from pathlib import Path
from posixpath import dirname, join, normpath, relpath

import yaml
from bs4 import BeautifulSoup, Tag
from build import ROOT, toc_entries
from playwright.sync_api import sync_playwright

LEFT_OUT = ("book/reproduced", "book/log", "book/api/")
UNPRINTED = ".headerlink, .hide, section#contents, .gk-tip, .gk-hint, button, script, noscript"
STYLE = """
  @page { size: A4; margin: 16mm 17mm 18mm; }
  html { font-size: 12px; }
  body { display: block; background: #fff; }
  .gk-page { break-before: page; }
  .gk-cover { display: grid; height: 240mm; place-content: center; justify-items: center; }
  pre, .output, .pst-scrollable-table-container { overflow: visible !important; white-space: pre-wrap; }
  h1, h2, h3 { break-after: avoid; }
  .cell_input, .cell_output, .gk-card, img, tr { break-inside: avoid; }
  td, th { position: static !important; }
"""
FOOTER = "<p class='pageNumber' style='width: 100%; font-size: 8px; text-align: center'></p>"


def page(html: Path, entry: str) -> BeautifulSoup:
    """A built page."""
    return BeautifulSoup((html / f"{entry}.html").read_text(encoding="utf-8"), "html.parser")


def article(html: Path, entry: str, places: dict[str, str]) -> Tag:
    """What a page says, with names, pictures and links as they are in the file of all pages."""
    found, here, start = page(html, entry).select_one("article"), dirname(entry), places[entry]
    for node in found.select(UNPRINTED):
        node.decompose()
    for node in found.select("[id]"):
        node["id"] = f"{start}-{node['id']}"
    for node in found.select("details"):
        node["open"] = ""
    for node in found.select("img:not([src^='data:'])"):
        node["src"] = relpath(join(here, node["src"]), dirname(next(iter(places))) or ".")
    for node in found.select("[href]"):
        path, _, name = node["href"].partition("#")
        target = places.get(normpath(join(here, path)).removesuffix(".html")) if path else start
        if target:
            node["href"] = f"#{target}-{name}" if name else f"#{target}"
        elif not re.match(r"\w+:", path):
            del node["href"]
    found.attrs = {"id": start, "class": "bd-article gk-page"}
    return found


def joined(html: Path, source: Path = ROOT) -> str:
    """The book as one file, which stands beside its first page and has that page's styles and formulas."""
    entries = [each for each in toc_entries(source / "_toc.yml") if not each.startswith(LEFT_OUT)]
    places = {entry: f"page-{number}" for number, entry in enumerate(entries)}
    articles = [article(html, entry, places) for entry in entries]
    head = page(html, entries[0]).select("link[rel=stylesheet], script")
    kept = "".join(str(each) for each in head if each.name == "link" or "athjax" in str(each).lower())
    book = yaml.safe_load((source / "_config.yml").read_text(encoding="utf-8"))
    lines = "".join(f"<li><a href='#{one['id']}'>{one.h1.decode_contents()}</a></li>" for one in articles)
    picture = (ROOT / "book" / "img" / "smoother.png").as_uri()
    return (
        "<!doctype html><html lang='en' data-theme='light'><meta charset='utf-8'>"
        f"<title>{book['title']}</title>{kept}<style>{STYLE}</style><body class='bd-content'><div>"
        f"<div class='gk-cover'><h1>{book['title']}</h1>{book['author']}<img src='{picture}' alt=''></div>"
        f"<div class='gk-page'><h1>Contents</h1><ul>{lines}</ul></div>{''.join(map(str, articles))}"
        "</div></body></html>"
    )


def main(html: Path, source: Path = ROOT) -> None:
    """Join the pages and let the browser print them."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        sys.exit("pdf: there is no Chromium here")
    file = html / dirname(toc_entries(source / "_toc.yml")[0]) / "print.html"
    file.write_text(joined(html, source), encoding="utf-8")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
        opened.set_default_timeout(0)
        opened.goto(file.as_uri())
        opened.evaluate("() => window.MathJax?.startup?.promise?.then(() => true)")
        form = {"prefer_css_page_size": True, "print_background": True, "outline": True, "tagged": True}
        head = {"display_header_footer": True, "header_template": "<p></p>", "footer_template": FOOTER}
        opened.pdf(path=html / "book.pdf", **form, **head)
    file.unlink()
    print(f"The book is at {html / 'book.pdf'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())

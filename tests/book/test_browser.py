"""Every page in a headless Chromium: no fault, no other host, formulas, sliders, search, a phone, WCAG AA."""

import functools
import http.server
import os
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from tests.book.conftest import ROOT

pytestmark = pytest.mark.browser
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE, NARROW = {"width": 1400, "height": 900}, {"width": 390, "height": 844}
# The notes that the theme's own scripts write about themselves.
HARMLESS = ("log", "debug", "info")


def entries() -> list[str]:
    """The pages of the table of contents, root first."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))

    def walk(node: dict):
        for child in [*node.get("parts", []), *node.get("chapters", []), *node.get("sections", [])]:
            if "file" in child:
                yield child["file"]
            yield from walk(child)

    return [toc["root"], *walk(toc)]


def serve(folder: Path):
    """A server of a folder on this machine; returns it and its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_port}"


@contextmanager
def phone(chromium, folder: Path, **context):
    """The page ``page.html`` of a folder on a screen as wide as a phone; nothing on it may be at fault."""
    server, url = serve(folder)
    opened = chromium.new_context(viewport=NARROW, **context)
    page = opened.new_page()
    watch = Watch(page, url)
    page.goto(f"{url}/page.html")
    yield page
    assert watch.faults == []
    opened.close()
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def address(book):
    """The built book, served on this machine."""
    if not (book / "mathjax").is_dir():
        if os.environ.get("CI"):
            pytest.fail("the book was built without npm; .ci/run installs it")
        pytest.skip("the book was built without npm, so its formulas come from another host")
    server, url = serve(book)
    yield url
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def chromium():
    """The system's Chromium; a developer may lack it, CI may not."""
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium on this machine; .ci/run installs it")
        pytest.skip("no Chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


SHOWN = "(root) => [...root.querySelectorAll('img')].filter((one) => one.offsetParent).map((one) => one.src)"


class Watch:
    """What went wrong on a page and whom it asked."""

    def __init__(self, page, address: str) -> None:
        self.faults: list[str] = []
        self.requests: list[str] = []
        host = urlsplit(address).netloc
        page.on(
            "console", lambda said: self.note(said.type not in HARMLESS, f"console {said.type}: {said.text}")
        )
        page.on("pageerror", lambda error: self.note(True, f"error: {error}"))
        page.on("requestfailed", lambda request: self.note(True, f"failed: {request.url}"))
        page.on("response", lambda got: self.note(got.status >= 400, f"{got.status}: {got.url}"))
        page.on("request", lambda request: self.asked(request.url, host))

    def note(self, wrong: bool, text: str) -> None:
        """Keep a fault."""
        if wrong:
            self.faults.append(text)

    def asked(self, url: str, host: str) -> None:
        """Keep a request; one to another host is a fault."""
        self.requests.append(url)
        parts = urlsplit(url)
        self.note(parts.scheme not in ("data", "blob") and parts.netloc != host, f"another host: {url}")


def settle(page) -> None:
    """Wait until the page is loaded and its formulas are set."""
    page.wait_for_load_state("networkidle")
    page.wait_for_function(
        "() => !document.querySelector('.math') || window.MathJax?.startup?.promise !== undefined"
    )
    page.evaluate("() => window.MathJax?.startup?.promise?.then(() => true)")


@contextmanager
def open_page(browser, address: str, entry: str, *, size: dict = WIDE):
    """A page of the book in a fresh context; nothing on it may be at fault."""
    with browser.new_context(viewport=size, color_scheme="light") as context:
        page = context.new_page()
        watch = Watch(page, address)
        page.goto(f"{address}/{entry}.html")
        settle(page)
        yield page
        assert watch.faults == []
        assert len(watch.requests) > 3, "the page loaded its style and scripts"


def shoot(page, entry: str, name: str) -> None:
    """Keep a screenshot for people to look at."""
    folder = ROOT / "_build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{entry.replace('/', '-')}-{name}.png")


def unset_formulas(page) -> list[str]:
    """The formulas that are still TeX source, or that MathJax could not read."""
    return page.evaluate(
        """() => [...document.querySelectorAll('.math')]
            .filter((one) => !one.querySelector('mjx-container') || one.querySelector('mjx-merror'))
            .map((one) => one.textContent.slice(0, 80))"""
    )


def sideways(page) -> int:
    """How many pixels the page can be scrolled to the side."""
    return page.evaluate("() => document.documentElement.scrollWidth - document.documentElement.clientWidth")


# Of 10 points at 130 dots an inch: no figure that is not cut has less (gkalib/viz/style.py).
UNFIT = """() => [...document.querySelectorAll(".bd-article .cell_output img:not(.gk-large)")].map((one) => {
    const { paddingLeft, paddingRight, width } = getComputedStyle(one);
    const box = one.closest(".output") ?? one.parentElement;
    const shown = parseFloat(width) - parseFloat(paddingLeft) - parseFloat(paddingRight);
    const label = (10 / 72) * 130 * shown / one.naturalWidth;
    const fits = box.scrollWidth <= box.clientWidth;
    return one.offsetParent && !one.closest(".gk-drag, .gkalib-wipe") && (label < 9 || !fits)
      ? `${one.alt.slice(0, 60)}: labels of ${label.toFixed(1)} px` : "";
  }).filter(Boolean)"""


def unfit(page) -> list[str]:
    """Pictures whose labels are under 9 px or whose box scrolls, but for panels that cannot be cut apart."""
    page.wait_for_function("() => [...document.images].every((one) => one.complete)")
    return page.evaluate(UNFIT)


AXE = ROOT / "book" / "node_modules" / "axe-core" / "axe.min.js"
# What MathJax draws is its own affair, and would take most of the time.
BARRIERS = """async () => {
  const found = await axe.run({exclude: [["mjx-container"]]}, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"],
    resultTypes: ["violations"],
    preload: false,
  });
  return found.violations
    .filter((one) => ["serious", "critical"].includes(one.impact))
    .flatMap((one) => one.nodes.map((at) => `${one.id}: ${at.html.slice(0, 120)} ${at.failureSummary}`));
}"""


def barriers(page) -> list[str]:
    """The serious and critical violations of WCAG 2.1 A and AA that axe-core finds."""
    if page.evaluate("() => window.axe === undefined"):
        page.add_script_tag(path=AXE)
    # The theme lets boxes that scroll take the focus, a moment after the window has its size.
    page.wait_for_timeout(500)
    return page.evaluate(BARRIERS)


def stuck(page) -> list[str]:
    """The sliders that do not change which picture is shown; each is moved from its first place."""
    found = []
    for control in page.locator(".gkalib-explore").all():
        for slider in control.locator("input[type=range]").all():
            slider.scroll_into_view_if_needed()
            slider.focus()
            slider.press("Home")
            first = control.evaluate(SHOWN)
            slider.press("ArrowRight")
            second = control.evaluate(SHOWN)
            if not (len(first) == len(second) == 1 and first != second):
                found.append(f"{slider.evaluate('(one) => one.outerHTML')}: {first}, {second}")
    return found


@pytest.mark.parametrize("entry", entries())
def test_a_page_is_quiet_and_whole(chromium, address, entry):
    with open_page(chromium, address, entry) as page:
        assert page.locator("article h1").count() == 1
        assert unset_formulas(page) == []
        assert (
            page.evaluate(
                "() => [...document.images].filter((one) => !one.alt && !one.closest('.navbar-brand')).length"
            )
            == 0
        )
        shoot(page, entry, "wide-light")
        assert barriers(page) == []
        page.set_viewport_size(NARROW)
        page.wait_for_timeout(100)
        shoot(page, entry, "narrow-light")
        assert sideways(page) == 0, "the page scrolls sideways on a phone"
        assert unfit(page) == []
        page.emulate_media(color_scheme="dark")
        page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'", timeout=10_000)
        shoot(page, entry, "narrow-dark")
        assert unfit(page) == []
        assert barriers(page) == []
        page.set_viewport_size(WIDE)
        shoot(page, entry, "wide-dark")
        assert stuck(page) == []


def test_search_finds_a_word(chromium, address):
    with open_page(chromium, address, "search") as page:
        page.goto(f"{address}/search.html?q=bandwidth")
        page.wait_for_selector("#search-results ul.search li", timeout=20_000)
        # Results appear one by one, each followed by its summary: leaving earlier would break a request off.
        page.wait_for_load_state("networkidle")
        found = page.locator("#search-results ul.search li a").all_text_contents()
        assert any("Notation" in title for title in found), found
        page.goto(f"{address}/search.html?q=zyxwvut")
        page.wait_for_selector("#search-results p.search-summary")
        page.wait_for_function(
            "() => document.querySelector('#search-results').textContent.includes('did not match')"
        )


NUMBER = """() => {
  const line = document.querySelector("article p");
  line.innerHTML = "word ".repeat(60) + '<span class="gk-res" tabindex="0">0.944' +
    '<span class="gk-tip" role="tooltip">' + "experiment/arm/metric: reduced run, ".repeat(5) +
    "</span></span>" + line.innerHTML;
  line.style.textAlign = "right";
}"""


@pytest.mark.parametrize("width", [390, 700, 1000, 1400])
def test_the_origin_of_a_number_shows_when_it_is_focused(chromium, address, width):
    with open_page(chromium, address, entries()[0], size={"width": width, "height": 800}) as page:
        page.evaluate(NUMBER)
        tip = page.locator(".gk-tip")
        assert not tip.is_visible()
        page.locator(".gk-res").focus()
        assert tip.is_visible()
        box = tip.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
        assert sideways(page) == 0


FAULTY = """<!doctype html><html><head><meta charset="utf-8"></head><body>
<h1>A page with every fault</h1>
<span class="math">\\(x\\)</span>
<div style="width: 1000px">wide</div><p style="color: #999">pale</p>
<script>console.error("a complaint"); setTimeout(() => { throw new Error("a failure"); }, 0);</script>
<img src="gone.png"><script src="http://elsewhere.invalid/x.js"></script>
<div class="gkalib-explore"><input type="range" aria-label="a slider of nothing"></div>
</body></html>"""


def test_faults_on_a_page_are_noticed(chromium, tmp_path):
    (tmp_path / "page.html").write_text(FAULTY, encoding="utf-8")
    server, url = serve(tmp_path)
    context = chromium.new_context(viewport=NARROW)
    page = context.new_page()
    try:
        watch = Watch(page, url)
        page.goto(f"{url}/page.html")
        page.wait_for_load_state("networkidle")
        said = "\n".join(watch.faults)
        for fault in (
            "console error: a complaint",
            "error: a failure",
            f"404: {url}/gone.png",
            "another host: http://elsewhere.invalid/x.js",
            "failed: http://elsewhere.invalid/x.js",
        ):
            assert fault in said, fault
        assert unset_formulas(page) == ["\\(x\\)"]
        assert sideways(page) > 0
        assert len(stuck(page)) == 1
        rules = {fault.split(":")[0] for fault in barriers(page)}
        assert rules == {"color-contrast", "document-title", "html-has-lang", "image-alt"}
    finally:
        context.close()
        server.shutdown()
        server.server_close()

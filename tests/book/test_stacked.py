"""On a phone panels side by side stand below one another, and one panel fits, in a headless Chromium."""

import base64
import io
import json
import shutil

import pytest
from PIL import Image, ImageDraw

from gkalib.viz import style
from gkalib.viz.digest import MIME
from tests.book.conftest import ROOT
from tests.book.test_browser import (  # noqa: F401  one is a fixture
    WIDE,
    chromium,
    phone,
    sideways,
)

pytestmark = pytest.mark.browser
GROUND, INK, RED = (252, 252, 252), (0, 0, 0), (200, 0, 0)
PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>t</title>
<link rel="stylesheet" href="book.css"><link rel="icon" href="data:,">
<script defer src="book.js"></script></head>
<body><article class="bd-article"><div class="cell_output"><div><img alt="two" src="two.png"></div>
<div><img alt="one" src="one.png"></div></div></article></body></html>"""


def drawn(panels) -> Image.Image:
    """Axes at their left edges with a line each; numbers left of the first alone, 30 pixels wide."""
    image = Image.new("RGB", (900, 300), GROUND)
    pen = ImageDraw.Draw(image)
    pen.rectangle((10, 140, 40, 150), fill=INK)
    for left, right in panels:
        pen.line((left, 20, left, 280), fill=INK, width=2)
        pen.line((left, 200, right, 200), fill=RED, width=3)
    return image


@pytest.fixture
def page(chromium, tmp_path):  # noqa: F811
    for name in ("book.js", "book.css"):
        shutil.copy(ROOT / "book" / "_static" / name, tmp_path)
    drawn([(50, 430), (480, 890)]).save(tmp_path / "two.png")
    drawn([(50, 890)]).save(tmp_path / "one.png")
    (tmp_path / "page.html").write_text(PAGE, encoding="utf-8")
    with phone(chromium, tmp_path) as page:
        page.wait_for_function("document.images[1].classList.contains('gk-large')")
        yield page


def test_panels_are_cut_apart_and_the_second_gets_the_numbers_of_the_first(page):
    bytes_of = """async (image) => [...new Uint8Array(await (await fetch(image.src)).arrayBuffer())]"""
    page.wait_for_function("document.images[0].src.startsWith('data:') && document.images[0].complete")
    cut = Image.open(io.BytesIO(bytes(page.locator("img").first.evaluate(bytes_of)))).convert("RGB")
    assert cut.height == 600 and 400 < cut.width < 500
    for top in (0, 300):  # numbers, axis and line of both
        assert cut.getpixel((20, top + 145)) == INK and cut.getpixel((200, top + 200)) == RED
        assert INK in [cut.getpixel((x, top + 50)) for x in range(45, 55)]
    page.set_viewport_size(WIDE)
    page.wait_for_function("document.images[0].src.endsWith('two.png')")


def test_a_wide_picture_that_cannot_be_cut_stays_large_and_scrolls_in_its_box(page):
    one = page.locator("img").last
    assert one.bounding_box()["width"] == 464 and sideways(page) == 0
    assert one.evaluate("(image) => getComputedStyle(image.parentElement).overflowX") == "auto"
    page.set_viewport_size(WIDE)
    page.wait_for_function("!document.images[1].classList.contains('gk-large')")


def test_no_stored_picture_of_one_panel_is_wider_than_a_phone_shows_whole():
    wide, narrow = [], 0
    for path in sorted((ROOT / "chapters").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for data in (output.get("data", {}) for output in cell.get("outputs", [])):
                if "image/png" in data and sum(name.startswith("axes") for name in data[MIME]) == 1:
                    width = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).width
                    narrow += width <= style.PANEL * 130
                    wide += [(path.stem, width)] * (width > style.PANEL * 130)
    assert wide == [] and narrow > 30

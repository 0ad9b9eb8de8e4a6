"""Tables that a reader sorts and filters, in a headless Chromium: by mouse and by keys."""

import shutil

import pytest

from gkalib.results import Table
from tests.book.conftest import ROOT
from tests.book.test_browser import barriers, chromium, phone, sideways  # noqa: F401  one is a fixture

pytestmark = pytest.mark.browser

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>t</title>
<link rel="stylesheet" href="book.css"><link rel="icon" href="data:,">
<script defer src="sort.js"></script></head>
<body style="margin: 8px"><main class="bd-article"><h1>t</h1>{}</main></body></html>"""
TABLE = Table(
    ("variant", "parameters", "minus softmax", "verdict"),
    (
        ("softmax", "205,066", "–", "–"),
        ("gka", "98,130", "−1.25", "undecided"),
        ("l2", "1,205,066", "+0.5", "as good as"),
        ("karat", "–", "−10.5", "behind"),
    ),
    "gkalib-standings",
)
ORDERS = {  # by the click on a column's name: once and twice
    "variant": ("gka karat l2 softmax", "softmax l2 karat gka"),
    "parameters": ("gka softmax l2 karat", "l2 softmax gka karat"),
    "minus softmax": ("karat gka l2 softmax", "l2 gka karat softmax"),
    "verdict": ("l2 karat gka softmax", "gka karat l2 softmax"),
}


@pytest.fixture
def page(chromium, tmp_path):  # noqa: F811
    for name in ("sort.js", "book.css"):
        shutil.copy(ROOT / "book" / "_static" / name, tmp_path)
    (tmp_path / "page.html").write_text(PAGE.format(TABLE._repr_html_()), encoding="utf-8")
    with phone(chromium, tmp_path) as page:
        yield page


def shown(page) -> str:
    """The variants that are seen, in their order."""
    return " ".join(page.locator("tbody tr:visible td:first-child").all_text_contents())


@pytest.mark.parametrize("by", ["mouse", "keys"])
def test_each_column_sorts_by_number_or_word_and_dashes_stay_last(page, by):
    for column, orders in ORDERS.items():
        button = page.get_by_role("button", name=column, exact=True)
        for order, said in zip(orders, ("ascending", "descending"), strict=True):
            if by == "mouse":
                button.click()
            else:
                button.focus()
                page.keyboard.press("Enter")
            assert shown(page) == order
            assert page.locator("th[aria-sort]").get_attribute("aria-sort") == said


def test_a_word_leaves_the_rows_that_have_it(page):
    word = page.get_by_role("searchbox")
    word.fill("GKA")
    assert shown(page) == "gka" and page.get_by_role("status").text_content() == "1 of 4"
    word.fill("")
    assert shown(page) == "softmax gka l2 karat"


def test_the_table_has_no_barrier_and_the_page_no_sideways_scroll(page):
    assert sideways(page) == 0
    assert barriers(page) == []

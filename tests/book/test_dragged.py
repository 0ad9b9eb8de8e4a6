"""Dragged figures in a headless Chromium: by keys, mouse and finger their numbers are the library's."""

import re
import shutil

import pytest
import torch

import gkalib
from gkalib import kernels
from gkalib.kernels import ExpDot, Gaussian
from gkalib.normalizers import RowSum, Simplex, TopK, Unnormalized
from gkalib.viz.drag import posterior, recalled
from tests.book.conftest import ROOT
from tests.book.test_browser import (  # noqa: F401  two are fixtures
    address,
    chromium,
    open_page,
    phone,
    sideways,
)
from tests.tolerance import oracle
from tests.viz.test_drag import a_field, a_memory, a_process, a_walk, in_the_plane, on_a_line

pytestmark = pytest.mark.browser

NORMALIZERS = {"RowSum": RowSum(), "TopK(3)": TopK(3), "Simplex": Simplex(), "Unnormalized": Unnormalized()}


def expected(state: dict) -> list[dict]:
    """What the library makes of a figure's state, kernel by kernel."""
    if state.get("memory"):
        angles, values = ([row[0] for row in state[name]] for name in ("keys", "values"))
        asked = [*angles, 0.0, 90.0]  # at 0 and 90 degrees it recalls the two numbers of its map
        every = [recalled(rule, angles, values, state["sigma"], asked) for rule in state["kernels"]]
        told = torch.tensor(values, dtype=torch.float64)
        return [
            {"recalled": one[:-2], "error": (one[:-2] - told).square().mean(), "map": one[-2:]}
            for one in every
        ]
    if state.get("process"):
        keys, values = (torch.tensor(state[name], dtype=torch.float64) for name in ("keys", "values"))
        places, kernel = (
            torch.linspace(*state["x"], 201, dtype=torch.float64),
            Gaussian(float(state["sigma"])),
        )
        mean, deviation = posterior(kernel, keys[:, 0], values[:, 0], state["process"], places)
        mean_of_keys = gkalib.smooth(places[:, None], keys, values, kernel)[:, 0]
        return [{"places": places, "mean": mean, "deviation": deviation, "average": mean_of_keys}]
    keys = torch.tensor(state["keys"], dtype=torch.float64)[None, None]
    values = (
        keys if state["values"] is None else torch.tensor(state["values"], dtype=torch.float64)[None, None]
    )
    query = torch.tensor([state["query"] or state["keys"][state["chosen"]]], dtype=torch.float64)[None, None]
    found = []
    for name in state["kernels"]:
        sigma = float(state["sigma"])
        kernel = ExpDot(1 / sigma**2) if name == "ExpDot" else getattr(kernels, name)(sigma)
        slots: dict = {"degree": 1, "ridge": 1e-6} if state.get("degree") else {}
        slots["normalizer"] = NORMALIZERS[state.get("normalizer", "RowSum")]
        row = gkalib.attention_weights(query, keys, kernel, **slots)[0, 0, 0]
        every = gkalib.attention_weights(keys, keys, kernel, **slots)[0, 0]
        found.append(
            {
                "weights": row,
                "estimate": gkalib.smooth(query, keys, values, kernel, method="dense", **slots)[0, 0, 0],
                "neighbors": 1 / row.square().sum() if row.any() else row.sum(),
                "trace": every.trace(),
            }
        )
        if state["walk"]:
            sums = kernel(keys, keys)[0, 0].sum(-1)
            visits = sums / sums.sum()
            oracle(visits @ every, visits)  # a step of the walk leaves them as they are
            found[-1] |= {"flows": visits[:, None] * every, "stays": visits @ every.diagonal()}
        if state["field"]:
            axes = (
                low + (torch.arange(60, dtype=torch.float64) + 0.5) / 60 * (high - low)
                for low, high in (state["x"], state["y"])
            )
            places = torch.stack(torch.meshgrid(*axes, indexing="xy"), dim=-1).reshape(1, 1, -1, 2)
            shares = gkalib.attention_weights(places, keys, kernel)[0, 0, :, state["chosen"]]
            found[-1] |= {"field": shares, "share": shares.mean()}
    return found


PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>t</title>
<link rel="stylesheet" href="book.css"><link rel="icon" href="data:,">
<script defer src="drag.js"></script></head><body style="margin: 8px">{}</body></html>"""
NOW = "(figure) => [figure.gkDrag.state, figure.gkDrag.numbers()]"


def compare(figure) -> dict:
    """Compare every number of a figure on a page with the library's, and the words below it with those."""
    state, found = figure.evaluate(NOW)
    said = figure.locator(".gk-said").text_content().replace("\N{MINUS SIGN}", "-")
    shown = [float(number) for number in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", said)]
    every = []
    for ours, theirs in zip(found, expected(state), strict=True):
        for name, value in theirs.items():
            computed = torch.tensor(ours[name], dtype=torch.float64).reshape(value.shape)
            if state.get("process"):  # near an observation the variance is a small difference
                torch.testing.assert_close(computed, value, rtol=1e-6, atol=1e-6)
            elif state.get("degree"):  # a line through weights that see one point is a small difference
                torch.testing.assert_close(computed, value, rtol=1e-7, atol=1e-7)
            else:
                oracle(computed, value)
        if state.get("memory"):
            every += [*theirs["recalled"].tolist(), theirs["error"].item()]
            continue
        if state.get("process"):
            every += [len(state["keys"]), theirs["deviation"].min().item(), theirs["deviation"].max().item()]
            continue
        if state["field"]:
            every += [theirs["weights"][state["chosen"]].item(), theirs["share"].item()]
            continue
        shares = not state.get("degree") and state.get("normalizer") != "Unnormalized"
        neighbors = [theirs["neighbors"].item()] if shares else []
        every += [*theirs["estimate"].tolist(), *neighbors, theirs["trace"].item()]
        every += [theirs["stays"].item()] if state["walk"] else []
    assert len(shown) == len(every)
    assert all(abs(a - b) <= max(0.0051, 0.006 * abs(b)) for a, b in zip(shown, every, strict=True))
    return state


@pytest.fixture
def page(chromium, tmp_path):  # noqa: F811
    for name in ("drag.js", "book.css"):
        shutil.copy(ROOT / "book" / "_static" / name, tmp_path)
    body = on_a_line().to_html() + in_the_plane().to_html() + in_the_plane(query=[1.0, 1.0]).to_html()
    body += a_walk().to_html() + a_field().to_html() + a_memory().to_html()
    body += a_process().to_html()
    (tmp_path / "page.html").write_text(PAGE.format(body), encoding="utf-8")
    with phone(chromium, tmp_path, has_touch=True) as page:
        page.wait_for_selector(".gk-drag circle.gk-dot[r]")
        yield page


def test_the_page_computes_what_the_library_computes(page):
    assert sideways(page) == 0
    for index in range(7):
        figure = page.locator(".gk-drag").nth(index)
        assert not figure.locator("img").is_visible()
        before = compare(figure)
        slider = figure.locator("input")
        slider.focus()
        slider.press("ArrowRight")
        slider.press("PageUp")
        assert compare(figure)["sigma"] > before["sigma"]
        dot = figure.locator('.gk-handle[tabindex="0"]').first
        dot.focus()
        for press in ("ArrowRight", "Shift+ArrowUp", "PageDown", "Shift+ArrowLeft", "ArrowDown"):
            page.keyboard.press(press)
            compare(figure)
        after = compare(figure)
        assert after["chosen"] == 1 and after["keys"] != before["keys"]
        figure.locator("button").last.click()
        assert compare(figure) == before


def test_shades_and_numbers_of_a_field_follow_the_chosen_key(page):
    """As many cells are shaded at each level as have more than that, and another key has another field."""
    figure = page.locator(".gk-drag").nth(4)
    for _ in range(2):
        state, found = figure.evaluate(NOW)
        for panel, one in enumerate(found):
            paths = figure.locator(".gk-shade").all()[5 * panel : 5 * panel + 5]
            cells = [path.get_attribute("d").count("M") for path in paths]
            assert cells == [
                sum(share > level for share in one["field"]) for level in (0.05, 0.2, 0.5, 0.8, 0.95)
            ]
            assert 0 < cells[2] < 3600
            shown = (
                figure.locator("svg > g:has(> .gk-handle)")
                .nth(panel)
                .locator(".gk-number")
                .all_text_contents()
            )
            assert [float(number) for number in shown] == pytest.approx(one["weights"], abs=0.0051)
        figure.locator(".gk-chosen").first.focus()
        page.keyboard.press("PageDown")
        assert compare(figure)["chosen"] == state["chosen"] + 1


def test_a_pair_of_a_memory_follows_the_mouse_and_its_curves_pass_what_is_recalled(page):
    figure = page.locator(".gk-drag").nth(5)
    before = compare(figure)
    figure.scroll_into_view_if_needed()
    box = figure.locator("circle.gk-dot").nth(2).bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + 4)
    page.mouse.down()
    page.mouse.move(box["x"] - 36, box["y"] + 20)
    page.mouse.up()
    after = compare(figure)
    assert after["keys"][2] != before["keys"][2] and after["values"][2] != before["values"][2]
    assert after["keys"][:2] == before["keys"][:2]
    drawn = [path.get_attribute("d") for path in figure.locator(".gk-curve").all()]
    assert len({path for path in drawn if path}) == 3


def test_a_click_adds_what_a_process_has_seen(page):
    figure = page.locator(".gk-drag").nth(6)
    before = compare(figure)
    figure.scroll_into_view_if_needed()
    box = figure.locator("svg").bounding_box()
    page.mouse.click(box["x"] + 240, box["y"] + 200)
    clicked = compare(figure)
    assert len(clicked["keys"]) == len(before["keys"]) + 1
    dot = figure.locator("circle.gk-dot").last.bounding_box()
    assert (
        abs(dot["x"] + dot["width"] / 2 - box["x"] - 240) < 1
        and abs(dot["y"] + dot["height"] / 2 - box["y"] - 200) < 1
    )
    page.mouse.click(dot["x"] + 4, dot["y"] + 4)  # a click on a point chooses it and adds none
    assert len(compare(figure)["keys"]) == len(clicked["keys"])
    widest = max(figure.evaluate(NOW)[1][0]["deviation"])
    figure.locator("button").first.click()  # another one where the process knows least
    assert len(compare(figure)["keys"]) == len(clicked["keys"]) + 1
    assert max(figure.evaluate(NOW)[1][0]["deviation"]) <= widest
    figure.locator("button").last.click()
    assert compare(figure) == before


def test_a_query_and_a_key_follow_the_mouse_and_the_finger(page):
    line, _, plane = (page.locator(".gk-drag").nth(index) for index in range(3))
    for figure in (line, plane):
        before = compare(figure)
        figure.scroll_into_view_if_needed()
        for name, handle in (("query", ".gk-query .gk-dot"), ("keys", "circle.gk-dot")):
            box = figure.locator(handle).first.bounding_box()
            x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
            page.mouse.move(x, y)
            page.mouse.down()
            page.mouse.move(x + 40, y + 30)
            page.mouse.up()
            page.mouse.move(x, y)
            assert compare(figure)[name] != before[name]
    before = compare(line)
    line.scroll_into_view_if_needed()
    box = line.locator("circle.gk-dot").first.bounding_box()
    x, y = box["x"] + 4, box["y"] + 4
    session = page.context.new_cdp_session(page)
    for kind, dy in (("touchStart", 0), ("touchMove", 20), ("touchMove", 40), ("touchEnd", None)):
        points = [] if dy is None else [{"x": x, "y": y + dy}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    assert compare(line)["values"][0] != before["values"][0]


@pytest.fixture
def own(chromium, tmp_path):  # noqa: F811
    """The figure of the playground, and the address of its page."""
    for name in ("drag.js", "book.css"):
        shutil.copy(ROOT / "book" / "_static" / name, tmp_path)
    (figure,) = re.findall(
        r'<div class="gk-drag".*?</div>', (ROOT / "book" / "playground.md").read_text(encoding="utf-8")
    )
    (tmp_path / "page.html").write_text(PAGE.format(figure), encoding="utf-8")
    with phone(chromium, tmp_path) as page:
        page.wait_for_selector(".gk-drag circle.gk-dot[r]")
        yield page


def test_own_points_kernels_normalizers_and_lines_are_those_of_the_library(own):
    figure = own.locator(".gk-drag")
    kernel, normalizer, degree = own.locator("select").all()
    assert sideways(own) == 0
    for name in ("Gaussian", "Laplace", "Epanechnikov", "Boxcar", "ExpDot"):
        kernel.select_option(name)
        degree.select_option("1")
        state = compare(figure)
        assert (state["kernels"], state["degree"], state["normalizer"]) == ([name], 1, "RowSum")
        degree.select_option("0")
        offered = normalizer.locator("option:enabled").all_text_contents()
        assert len(offered) == (3 if name == "ExpDot" else 4)  # its sums exceed every number
        for other in offered:
            normalizer.select_option(other)
            state = compare(figure)
            assert (state["degree"], state["normalizer"]) == (0, other)
    kernel.select_option("Boxcar")
    own.locator("textarea").fill("0 0\n1, 2\nnothing\n20;3")
    figure.locator("input").press("Home")  # the smallest bandwidth: most queries see no point
    for other in NORMALIZERS:
        normalizer.select_option(other)
        assert compare(figure)["keys"] == [[0], [1], [20]]


def test_a_point_is_added_and_all_of_it_stands_in_the_address(own):
    figure = own.locator(".gk-drag")
    box = figure.locator("svg").bounding_box()
    own.mouse.dblclick(box["x"] + 200, box["y"] + 150)
    state = compare(figure)
    assert len(state["keys"]) == 13
    own.locator("select").nth(1).select_option("Simplex")
    own.wait_for_function("location.hash.includes('normalizer=Simplex')")
    own.reload()
    own.wait_for_selector(".gk-drag circle.gk-dot[r]")
    again = compare(figure)
    assert again["normalizer"] == "Simplex" and len(again["keys"]) == 13
    assert again["keys"][12][0] == pytest.approx(state["keys"][12][0], abs=1e-3)
    page = own.url.partition("#")[0]
    own.goto(f"{page}#kernel=Laplace&degree=0&sigma=1&query=2&points=1,2;3,4")  # without loading it anew
    own.wait_for_function("document.querySelector('.gk-drag').gkDrag.state.keys.length === 2")
    assert compare(figure)["kernels"] == ["Laplace"]
    for words in (
        "points=1,2;nonsense&kernel=Laplace&sigma=1&query=0&degree=0",
        "points=1,2;5,6;7,8&kernel=Laplace&normalizer=Sum&sigma=1&query=0&degree=0",
        "a-section",
    ):
        own.goto(f"{page}#{words}")
        own.wait_for_timeout(500)
        assert len(compare(figure)["keys"]) == 2 and own.url.endswith(words)


@pytest.mark.parametrize(
    ("chapter", "dot", "moved"),
    [
        ("01-nadaraya-watson", ".gk-query", lambda state: state["query"][0]),
        ("03-kernels", '[tabindex="0"]', lambda state: state["keys"][0][0]),
        ("04-attention-is-smoothing", '.gk-chosen[tabindex="0"]', lambda state: state["keys"][0][0]),
        ("07-gaussian-kernel-attention", '[tabindex="0"]', lambda state: state["keys"][0][0]),
        ("15-recurrent-memories", '[tabindex="0"]', lambda state: state["keys"][0][0]),
    ],
)
def test_the_figures_of_the_book_are_drawn_and_move(chromium, address, chapter, dot, moved):  # noqa: F811
    with open_page(chromium, address, f"chapters/{chapter}") as page:
        figure = page.locator(".gk-drag")
        before = compare(figure)
        figure.locator(f".gk-handle{dot}").focus()
        page.keyboard.press("Shift+ArrowRight")
        assert moved(compare(figure)) > moved(before)

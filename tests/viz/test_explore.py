"""A control holds every frame, and moves by mouse and keyboard with no kernel behind the page."""

import base64
import io
import re
import shutil

import matplotlib.pyplot as plt
import numpy as np
import pytest
from PIL import Image

from gkalib.viz import style
from gkalib.viz.digest import MIME, digest
from gkalib.viz.explore import MAX_BYTES, explore

X = np.linspace(0.0, 1.0, 50)


def draw(power, shift=0.0):
    figure, axes = plt.subplots(figsize=(4, 2))
    axes.plot(X, X**power + shift)
    return figure


def two():
    return explore(
        draw,
        alt="power {power}, shift {shift}",
        labels={"power": "power p"},
        power=[1, 2, 3],
        shift=[0.0, 0.5],
    )


def images(page: str) -> list[tuple[str, str, bytes, bool]]:
    found = re.findall(
        r'<img class="dark-light" data-at="(.*?)" alt="(.*?)" src="data:.*?,(.*?)"(.*?)>', page
    )
    return [(at, alt, base64.b64decode(data), hidden == " hidden") for at, alt, data, hidden in found]


def test_every_frame_is_on_the_page_and_one_is_shown():
    control = two()
    frames = images(control.to_html())
    assert [at for at, *_ in frames] == ["0,0", "0,1", "1,0", "1,1", "2,0", "2,1"]
    assert [at for at, _, _, hidden in frames if not hidden] == ["1,1"]
    assert frames[2][1] == "power 2, shift 0"
    assert len({data for _, _, data, _ in frames}) == 6
    assert all(len(data) < MAX_BYTES for _, _, data, _ in frames)
    assert {Image.open(io.BytesIO(data)).size for _, _, data, _ in frames} == {(520, 260)}


def test_narrow_frames_are_not_blown_up_to_the_width_of_a_page():
    assert 'role="group" style="max-width: min(100%, 520px)' in two().to_html()
    wide = explore(lambda h: plt.subplots(1, 2, figsize=(style.COLUMN, h))[0], alt="two", h=[1.0])
    assert 'role="group">' in wide.to_html()


def test_the_page_needs_no_other_host_and_says_what_moves():
    page = two().to_html()
    assert not re.search(r"https?://|<script[^>]+src|<link", page)
    sliders = re.findall(r"<input[^>]+>", page)
    assert len(sliders) == 2
    assert 'aria-label="power p" aria-valuetext="2" data-values="1|2|3"' in sliders[0]
    assert 'max="1" step="1" value="1"' in sliders[1]
    assert all('type="range"' in slider for slider in sliders)


def test_two_runs_give_the_same_page_and_no_figure_stays_open():
    assert two().to_html() == two().to_html()
    assert plt.get_fignums() == []


def test_it_carries_the_digest_of_every_frame():
    bundle = two()._repr_mimebundle_()
    assert sorted(bundle) == [MIME, "text/html", "text/plain"]
    assert bundle[MIME]["power=2 shift=0.5"] == digest(draw(2, 0.5))


def test_the_reader_starts_where_told():
    control = explore(draw, alt="x", start={"power": 3}, power=np.array([1, 2, 3]))
    assert [at for at, _, _, hidden in images(control.to_html()) if not hidden] == ["2"]


def test_words_are_escaped():
    page = explore(draw, alt='"a" < b', labels={"power": "<b>p</b>"}, power=[1]).to_html()
    assert "&lt;b&gt;p&lt;/b&gt;" in page and "<b>p" not in page
    assert 'alt="&quot;a&quot; &lt; b"' in page


def noise(power):
    figure, axes = plt.subplots(figsize=(10, 8))
    axes.imshow(np.random.default_rng(0).random((400, 400)), cmap="cividis")
    return figure


@pytest.mark.parametrize(
    ("message", "drawing", "options"),
    [
        ("one or two parameters", draw, {"alt": "x"}),
        ("one or two parameters", draw, {"alt": "x", "a": [1], "b": [1], "c": [1]}),
        ("one or two parameters", draw, {"alt": "x", "power": []}),
        ("alt is empty", draw, {"alt": " ", "power": [1]}),
        ("'pwer'", draw, {"alt": "x", "labels": {"pwer": "p"}, "power": [1]}),
        ("start power = 4 is not among", draw, {"alt": "x", "start": {"power": 4}, "power": [1]}),
        ("26 frames; a page carries at most 25", draw, {"alt": "x", "power": list(range(26))}),
        ("must return a matplotlib Figure", lambda power: power, {"alt": "x", "power": [1]}),
        ("differ in size", lambda power: plt.figure(figsize=(power, 2)), {"alt": "x", "power": [2, 3]}),
        ("lower dpi", noise, {"alt": "x", "power": [1]}),
    ],
)
def test_what_cannot_be_shown_is_refused(message, drawing, options):
    with pytest.raises(ValueError, match=message):
        explore(drawing, **options)
    assert plt.get_fignums() == []


def test_in_a_kernel_it_draws_anew():
    calls = []

    def counted(power):
        calls.append(power)
        return draw(power)

    widget = explore(counted, alt="x", power=[1, 2, 3]).live()
    slider = widget.children[0]
    assert (slider.value, calls[-1]) == (2, 2)
    before = len(calls)
    slider.value = 3
    assert calls[before:] == [3]
    assert plt.get_fignums() == []


@pytest.mark.browser
def test_it_moves_by_keyboard_and_mouse_and_leaves_its_neighbour_alone(tmp_path):
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on this machine")
    page_file = tmp_path / "page.html"
    page_file.write_text(f"<!doctype html><html><body>{two().to_html()}{two().to_html()}</body></html>")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        page = browser.new_page()
        errors = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(page_file.as_uri())
        first, second = page.locator(".gkalib-explore").all()

        def shown(control):
            return [image.get_attribute("data-at") for image in control.locator("img:visible").all()]

        power, shift = first.locator("input").all()
        assert shown(first) == shown(second) == ["1,1"]
        power.focus()
        page.keyboard.press("ArrowRight")
        assert shown(first) == ["2,1"]
        assert first.locator("output").all_inner_texts() == ["3", "0.5"]
        assert power.get_attribute("aria-valuetext") == "3"
        page.keyboard.press("Tab")
        page.keyboard.press("Home")
        assert shown(first) == ["2,0"]
        box = power.bounding_box()
        page.mouse.click(box["x"] + 2, box["y"] + box["height"] / 2)
        assert shown(first) == ["0,0"]
        assert shift.input_value() == "0"
        assert shown(second) == ["1,1"]
        assert errors == []
        browser.close()

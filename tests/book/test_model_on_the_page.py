"""The model that computes in the page, in a headless Chromium: its logits and weights are the library's."""

import math
import shutil

import pytest
import torch

import gkalib
from gkalib.data.tokenizers import tokenizer_of
from gkalib.training.record import open_run
from tests.book.conftest import ROOT
from tests.book.test_add_a_variant import blocks
from tests.book.test_browser import chromium, phone, sideways  # noqa: F401  one is a fixture

from _ext.model import script  # isort: skip

pytestmark = pytest.mark.browser
NAME, TEXT = "gpa-dickens", "It was the best of times, it was the worst of times"
PAGE = f"""<!doctype html><html lang="en"><head><meta charset="utf-8"><title>t</title>
<link rel="stylesheet" href="book.css"><link rel="icon" href="data:,">
<script defer src="model.js"></script></head><body style="margin: 8px">
<div class="gk-model" data-model="{NAME}" data-size="2 MB" data-text="{TEXT}"></div></body></html>"""
LOGITS = "(root) => root.gkModel.result.logits.map((row) => [...row])"
WEIGHTS = "(root) => root.gkModel.result.last.map((layer) => layer.map((row) => [...row]))"


@pytest.fixture
def model():
    """The stored model in double precision."""
    return open_run(NAME).model.eval().double()


@pytest.fixture
def ids() -> torch.Tensor:
    """The text as the model reads it."""
    tokenizer = open_run(NAME).tokenizer_json
    assert tokenizer
    return torch.as_tensor(tokenizer_of(tokenizer).encode(TEXT))


def close(page, model, ids) -> None:
    """Logits, and the loss said below them, are the library's."""
    expected = model(ids[None])[0]
    loss = torch.nn.functional.cross_entropy(expected[:-1], ids[1:]).item()
    settled(page, f"Loss on this text: {loss:.3f} nats")
    actual = torch.tensor(page.locator(".gk-model").evaluate(LOGITS), dtype=torch.float64)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-4)


@pytest.fixture
def page(chromium, tmp_path):  # noqa: F811
    for name in ("model.js", "book.css"):
        shutil.copy(ROOT / "book" / "_static" / name, tmp_path)
    (tmp_path / f"{NAME}.js").write_text(script(ROOT / "data" / "models" / NAME), encoding="utf-8")
    (tmp_path / "page.html").write_text(PAGE, encoding="utf-8")
    with phone(chromium, tmp_path) as page:
        page.get_by_role("button", name="Load the model").click()
        page.wait_for_function("document.querySelector('.gk-model').gkModel")
        yield page


def settled(page, text: str) -> None:
    """Until what stands below the drawing holds a text."""
    page.wait_for_function(
        "(text) => document.querySelector('.gk-said').textContent.includes(text)", arg=text
    )


@torch.no_grad()
def test_it_computes_what_the_library_computes(page, model, ids):
    close(page, model, ids)
    captured = gkalib.capture_attention(model, ids[None])
    found = page.locator(".gk-model").evaluate(WEIGHTS)
    for layer, rows in zip(captured, found, strict=True):
        weights = gkalib.smoothing.compute_weights(layer.problems[0])[0, :, -1]
        torch.testing.assert_close(torch.tensor(rows, dtype=torch.float64), weights, rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_bank_that_is_flat_or_dragged_is_that_of_the_library(page, model, ids):
    page.get_by_role("button", name="Flat in every head").click()
    for block in model.blocks:
        block.attn.kernel.second.sigma.zero_()
    close(page, model, ids)
    page.get_by_label("bank at lag 5", exact=True).press("Shift+ArrowUp")
    page.wait_for_function("document.querySelector('.gk-model').gkModel.state.bank[0][0][5] === 5")
    dragged = page.locator(".gk-model").evaluate("(root) => [...root.gkModel.state.bank[0][0]]")
    x = [math.log2(1 + lag) for lag in range(9)]
    hat = [
        0,
        0,
        0,
        0,
        5 * (x[4] - x[3]) / (x[5] - x[3]),
        5,
        *(5 * (x[8] - x[lag]) / (x[8] - x[5]) for lag in (6, 7, 8)),
    ]
    assert dragged == pytest.approx(hat + 119 * [0.0])


def test_letter_by_letter_it_computes_what_it_computes_at_once(page):
    whole, steps = page.locator(".gk-model").evaluate("""(root) => {
        const ids = root.gkModel.state.ids, kept = root.gkMemory();
        const parts = [ids.slice(0, 9), ...ids.slice(9).map((id) => [id])];
        const steps = parts.flatMap((some) => root.gkForward(some, kept).logits);
        return [root.gkForward(ids).logits, steps].map((all) => all.map((row) => [...row]));
    }""")
    torch.testing.assert_close(torch.tensor(steps), torch.tensor(whole), rtol=0, atol=1e-12)


def test_it_fits_a_phone_and_takes_any_text(page):
    assert sideways(page) == 0
    text = page.locator("textarea")
    text.fill("")
    settled(page, "Type some letters")
    text.fill("a")
    settled(page, "Type one more letter")
    text.fill("é" + 200 * "b")  # a letter that it does not know is left out, and the context is 128
    page.wait_for_function("document.querySelector('.gk-model').gkModel.state.ids.length === 128")
    text.fill("It was ")
    page.get_by_role("button", name="Write 80 letters").click()
    page.wait_for_function("document.querySelector('textarea').value.length === 87")


def test_the_code_of_the_page_predicts():
    (code,) = blocks((ROOT / "book" / "playground.md").read_text(encoding="utf-8"))
    names: dict = {}
    exec(code.replace("run.model.eval()", "chances = run.model.eval()"), names)
    assert names["chances"].shape == (84,) and names["chances"].sum().item() == pytest.approx(1)

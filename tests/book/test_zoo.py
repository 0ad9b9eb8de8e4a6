"""The zoo: every variant has a card, whose code is the library's layer and whose pictures are computed."""

import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import elu, normalize

from book import zoo
from gkalib import layers
from gkalib.data.images import picture
from gkalib.layers.parts import merge
from gkalib.results.claims import claims, number, word
from gkalib.smoothing import compute_output
from tests.book.conftest import ROOT
from tests.variants import VARIANTS, only_causal

PAGE = (ROOT / "book" / "zoo.md").read_text(encoding="utf-8")
CARDS = dict(re.findall(r"^````\{variant\} (\w+)(.+?)^````$", PAGE, re.M | re.S))
SIZE, COUNT = 8, 16
SMALL = {
    "karat": {"rank": 4},
    "krause": {"top_k": 5},
    "linformer": {"rank": 4},
    "nystrom": {"landmarks": 4, "iterations": None},
    "skyformer": {"landmarks": 8, "iterations": None, "sampling": "spaced"},
}


def test_every_variant_has_a_card():
    assert sorted(CARDS) == layers.variants() == sorted(VARIANTS)


def test_a_card_has_every_slot_and_says_when():
    for name, card in CARDS.items():
        slots = re.findall(r"^:(\w+): .", card, re.M)
        assert {"kernel", "normalizer", "values", "mask", "chapter"} <= set(slots), name
        assert card.count("**When.**") == 1, name
        code = re.search(r"```python\n(.+?)```", card, re.S)[1]
        assert len([line for line in code.splitlines() if line]) <= 6, name


def parameters(layer: torch.nn.Module, x: torch.Tensor) -> dict:
    """What the code on the cards calls a layer's parameters, for its one head."""
    own = {name.rsplit(".", 1)[-1]: one.detach() for name, one in layer.named_parameters()}
    own = {name: one[0] if one.shape[:1] == (1,) else one for name, one in own.items()}
    named = {name.removeprefix("log_"): one.exp() for name, one in own.items() if name.startswith("log_")}
    gates = {name: getattr(layer, name)(x).sigmoid()[:, 0] for name in layer.gates}
    operator = getattr(layer.normalizer, "first", None)
    if operator is not None:
        waves = operator.coefficients[0] * operator.basis_scale[0, ..., None]
        named |= {"A": waves[..., :3], "B": waves[..., 3:], "W": layer.normalizer.second.weight[0]}
    for module in layer.modules():
        named |= {"omega": module.omega} if hasattr(module, "omega") else {}
    if "slope" in dict(layer.named_children()):
        named["slope"] = layer.slope(x)
    return (
        own
        | named
        | {
            "a": gates.get("decay"),
            "log_f": gates["decay"].log() if "decay" in gates else None,
            "beta": gates.get("rate"),
            "b": own.get("bias") if layer.name() == "rpe" else None,
            "E": own.get("key_map"),
            "F": own.get("value_map"),
            "WQ": layer.query.weight.mT if hasattr(layer, "query") else None,
            "WV": layer.value.weight.mT if hasattr(layer, "value") else None,
        }
    )


@pytest.mark.parametrize("name", [name for name in layers.variants() if name != "mixed"])
def test_the_code_on_a_card_is_the_layer(name):
    torch.manual_seed(0)
    cls = layers.attention(name, **SMALL.get(name, {}))
    layer = cls(SIZE, 1, **({"length": COUNT} if cls.sized else {}), dtype=torch.float64)
    x = torch.randn(COUNT, SIZE, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.randn_like(parameter) / 5)
        problem = layer.problem(x[None], is_causal=only_causal(name))
        expected = merge(layer.finish(compute_output(problem, layer.method), problem))[0]
        made = [each for each in ("query", "key", "value") if hasattr(layer, each)]
        scope = {each[0]: getattr(layer, each)(x) for each in made}
        if layer.name() in ("gated", "delta", "gated_delta", "mesa"):
            scope |= {each: normalize(scope[each], dim=-1) for each in "qk"}
        place = torch.arange(COUNT)
        scope |= {"x": x, "n": COUNT, "d": problem.query.shape[-1], "lag": place[:, None] - place}
        scope |= {"torch": torch, "normalize": normalize, "elu": elu, "eps": 1e-6, "top_k": 5, "r": 4}
        scope |= {"drawn": place[2::4]} | parameters(layer, x)
        scope |= {"ridge": scope.get("ridge", 0.1)}
        torch.set_default_dtype(torch.float64)
        try:
            exec(re.search(r"```python\n(.+?)```", CARDS[name], re.S)[1], scope)
        finally:
            torch.set_default_dtype(torch.float32)
    out = scope["out"]
    out = torch.stack(out) if isinstance(out, list) else out
    # The library's norm of queries and keys adds float32's epsilon to a mean square.
    assert (out - expected).norm() < 1e-5 * expected.norm()


def stored(name: str, kind: str) -> torch.Tensor:
    """The shades that a card is drawn with."""
    rows = json.loads(zoo.FILE.read_text(encoding="utf-8"))["weights"][name][kind]
    return torch.tensor([[zoo.LETTERS.index(letter) - zoo.SHADES for letter in row] for row in rows])


def differ(drawn: torch.Tensor, name: str, kind: str) -> float:
    """By how much a shade is off, beyond what rounding and another machine's arithmetic take."""
    return float((zoo.shades(drawn) - stored(name, kind)).abs().max() - 0.51)


@pytest.mark.parametrize("name", layers.variants())
def test_the_photograph_is_what_the_layer_gives(name):
    drawn = zoo.weights(name, zoo.patches(), is_causal=False)[zoo.QUERY]
    assert differ(drawn.view(zoo.GRID, zoo.GRID), name, "image") <= 0


def test_the_photograph_under_the_weights_is_the_one_that_was_read():
    with Image.open(zoo.PHOTOGRAPH) as stored:
        shown = np.asarray(stored) / 255
    assert abs(shown - picture("cat", zoo.GRID * zoo.PATCH)).mean() < 0.02  # JPEG's loss


@pytest.mark.data("minilm")
def test_the_words_are_what_the_layers_give():
    for name in layers.variants():
        assert differ(zoo.weights(name, zoo.words(), is_causal=True), name, "text") <= 0, name


def test_what_a_picture_hides_is_noticed():
    drawn = zoo.weights("gka", zoo.patches(), is_causal=False)[zoo.QUERY].view(zoo.GRID, zoo.GRID)
    assert differ(drawn, "softmax", "image") > 0


@pytest.mark.book
def test_the_page_has_every_card_with_its_verdicts(book):
    page = (book / "book" / "zoo.html").read_text(encoding="utf-8")
    cards = dict(re.findall(r'<section id="(\w+)">\n<h3>(.+?)</section>', page, re.S))
    assert cards.keys() == {*layers.variants()}
    for kind in ("images", "text"):
        for one, seeds, found in claims(f"one-budget-{kind}").judged:
            card = cards[next(iter(one.weights)).replace("-", "_")]
            assert f"<strong>{word(one, found)}</strong>, {number(one, found.estimate.value)} (" in card
            assert f"{seeds} seeds" in card
    for name, card in cards.items():
        assert f"href='#{name}-drawn'" in page and f"id='{name}-drawn'" in card

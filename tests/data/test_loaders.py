"""Every data set loads with the registered content, or is skipped because it would have to be fetched."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from gkalib import data
from gkalib.data import registry
from gkalib.data.registry import DATASETS
from gkalib.kernels import ExpDot
from gkalib.smoothing import smooth

TABLES = {
    "mcycle": (133, 1),
    "sunspots": (309, 1),
    "co2": (2225, 1),
    "diabetes": (442, 10),
    "california_schools": (303, 8),
}
PICTURES = {
    "camera": (512, 512),
    "astronaut": (512, 512, 3),
    "cat": (300, 451, 3),
    "coffee": (400, 600, 3),
    "coins": (303, 384),
    "brick": (512, 512),
    "grass": (512, 512),
    "gravel": (512, 512),
}


def need(name):
    if not registry.ready(name):
        pytest.skip(f"{name} is not here: python -m gkalib data get {name}")


@pytest.mark.parametrize("name", DATASETS)
def test_content_is_the_registered_one(name):
    need(name)
    registry.check(name)


@pytest.mark.parametrize("name", DATASETS)
def test_other_content_is_refused(name, monkeypatch):
    need(name)
    monkeypatch.setitem(DATASETS, name, dataclasses.replace(DATASETS[name], sha256="0" * 64))
    with pytest.raises(ValueError, match=rf"content of '{name}' has sha256 \w{{64}}, not 0000"):
        registry.check(name)


@pytest.mark.parametrize("name", DATASETS)
def test_every_row_of_the_registry_says_what_where_and_under_which_terms(name):
    entry = DATASETS[name]
    assert entry.name == name
    assert min(map(len, (entry.description, entry.source, entry.license))) > 3
    assert len(entry.sha256) == (0 if entry.hub else 64)


def test_the_readme_prints_the_registry():
    readme = Path(__file__).parents[2] / "data" / "README.md"
    printed = readme.read_text(encoding="utf-8").split("<!-- sets -->\n")[1].split("\n<!-- /sets -->")[0]
    assert printed == registry.as_table()


@pytest.mark.parametrize(("name", "shape"), TABLES.items())
def test_tables_are_finite_and_named(name, shape):
    table = getattr(data, name)()
    assert table.x.shape == shape
    assert table.y.shape == shape[:1]
    assert len(table.features) == shape[1]
    assert np.isfinite(table.x).all()
    assert np.isfinite(table.y).all()


def test_values_are_where_they_should_be():
    x, y, *_ = data.mcycle()
    assert (x[0, 0], y[0], x[-1, 0], y[-1]) == (2.4, 0.0, 57.6, 10.7)
    x, y, *_ = data.co2()
    assert (np.diff(x[:, 0]) > 0).all()
    assert x[0, 0] == pytest.approx(1958 + 87 / 365)  # 29 March
    share = data.california_schools().y
    assert 0 < share.min() < share.max() < 1


@pytest.mark.parametrize(("name", "shape"), PICTURES.items())
def test_pictures_lie_between_black_and_white(name, shape):
    picture = data.picture(name)
    assert picture.shape == shape
    assert picture.dtype == np.float64
    assert 0 <= picture.min() < 0.25 < 0.7 < picture.max() <= 1


def test_digits_have_ten_classes():
    digits = data.digits()
    assert digits.images.shape == (1797, 8, 8)
    assert digits.images.max() == 1
    assert set(digits.labels.tolist()) == set(range(10))


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_each_class_is_as_frequent_as_its_authors_say(name):
    need(name)
    images, labels = getattr(data, name)()
    assert images.shape == (70_000, 28, 28)
    assert images.dtype == np.float32
    assert (images.min(), images.max()) == (0, 1)
    counts = np.bincount(labels[60_000:])
    # Fashion-MNIST is balanced; MNIST's test set is known to hold 980 zeros and 1,135 ones.
    assert counts.tolist() == [1000] * 10 if name == "fashion_mnist" else counts[:2].tolist() == [980, 1135]


def test_novels_are_the_cut_that_is_trained_on():
    need("dickens")
    novels = data.dickens()
    assert len(novels) == 12_920_542
    assert novels.isascii()
    assert novels.startswith("Pickwick Papers\nCharles Dickens\n")
    held_out = data.dickens("GE", "TTC")
    assert len(held_out) == 998_648 + 758_806
    assert held_out[:18] == "Great Expectations"
    with pytest.raises(ValueError, match=r"'dickens' has no file 'XX.txt'. Its files: BH.txt, BR.txt"):
        data.dickens("XX")


def test_stories_end_with_their_mark():
    need("tinystories")
    stories = data.tinystories()
    assert len(stories.encode()) == 2 * 2**20
    assert stories.count("<|endoftext|>") == 2316


def test_addresses_are_ascii_and_small():
    text = data.state_of_the_union()
    assert text.isascii()
    assert text.count("\n") == 12
    assert 200_000 < len(text) <= 300_000


def test_encoder_is_whole():
    need("minilm")
    encoder = data.minilm()
    assert (encoder.config["num_hidden_layers"], encoder.config["num_attention_heads"]) == (6, 12)
    key = encoder.weights["encoder.layer.5.attention.self.key.weight"]
    assert tuple(key.shape) == (384, 384)
    assert encoder.tokenizer.encode("kernel regression").tokens[:4] == [
        "[CLS]",
        "kernel",
        "regression",
        "[SEP]",
    ]


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(ValueError, match=r"no picture named 'dog'. Known: camera, astronaut, cat"):
        data.picture("dog")


def test_a_missing_library_is_named_with_its_command(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "skimage", None)
    with pytest.raises(
        ValueError, match=r"'cat' needs scikit-image. Install it with: pip install scikit-image"
    ):
        data.picture("cat")


def test_the_encoder_in_parts_is_the_model_of_chapter_4():
    need("minilm")
    reading = data.trained_heads(2, 12)
    assert [tuple(part.shape) for heads in reading.heads for part in heads] == 18 * [(2, 12, 12, 32)]
    assert np.allclose(reading.vectors.norm(dim=-1), 1)
    again = data.trained_heads(
        2, 12, attend=lambda query, key, value, layer: smooth(query, key, value, ExpDot())
    )
    assert np.allclose(reading.vectors, again.vectors, atol=1e-5)  # float32 through six layers
    layers = []
    silent = data.trained_heads(
        2, 12, attend=lambda query, key, value, layer: layers.append(layer) or 0 * value
    )
    assert layers == list(range(6))
    assert not np.allclose(reading.vectors, silent.vectors, atol=1e-2)


@pytest.mark.parametrize(
    ("count", "length", "message"),
    [
        (0, 12, "count must be at least 1 and length 3 to 512, not 0 and 12"),
        (1, 513, "length 3 to 512, not 1 and 513"),
        (10**5, 12, "too few for 100000 passages of 12"),
    ],
)
def test_passages_that_the_text_or_the_model_does_not_hold_are_refused(count, length, message):
    need("minilm")
    with pytest.raises(ValueError, match=message):
        data.trained_heads(count, length)

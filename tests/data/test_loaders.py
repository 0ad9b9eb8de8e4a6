"""Every data set loads with the registered content, or is skipped because it would have to be fetched."""

import dataclasses

import numpy as np
import pytest
import torch

from gkalib import data
from gkalib.data import registry
from gkalib.data.pretrained import passages
from gkalib.data.registry import DATASETS
from gkalib.kernels import ExpDot
from gkalib.masks import KeyPadding
from gkalib.models.pretrained import read_minilm
from gkalib.smoothing import smooth
from tests.need import marks

EACH = pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in DATASETS])


@EACH
def test_content_is_the_registered_one(name):
    registry.check(name)


@EACH
def test_other_content_is_refused(name, monkeypatch):
    monkeypatch.setitem(DATASETS, name, dataclasses.replace(DATASETS[name], sha256="0" * 64))
    with pytest.raises(ValueError, match=rf"content of '{name}' has sha256 \w{{64}}, not 0000"):
        registry.check(name)


@pytest.mark.parametrize("name", DATASETS)
def test_every_row_of_the_registry_says_what_where_and_under_which_terms(name):
    entry = DATASETS[name]
    assert entry.name == name
    assert min(map(len, (entry.description, entry.source, entry.license))) > 3
    assert len(entry.sha256) == (0 if entry.hub else 64)


@pytest.mark.data("dickens")
def test_novels_are_the_cut_that_is_trained_on():
    novels = data.dickens()
    assert len(novels) == 12_920_542
    assert novels.isascii()
    assert novels.startswith("Pickwick Papers\nCharles Dickens\n")


FEW = data.Table(np.ones((3, 1)), np.ones(3), ("one",), "one")


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: data.picture("dog"), "no picture named 'dog'. Known: camera, astronaut, cat"),
        (lambda: data.picture("cat", side=0), "data: side must be at least 1"),
        (lambda: data.image_data("cifar"), "data: no images named 'cifar'. Known: .*made-up; or a folder"),
        (lambda: data.image_data("/no/where"), "data: there is no folder /no/where"),
        (lambda: data.image_data("digits", limit=0), "data: limit must be at least 1, not 0"),
        (lambda: data.benchmark("mmlu"), "data: no questions named 'mmlu'"),
        (lambda: data.random_splits(FEW, 1), "1 splits of 3 cases"),
    ],
)
def test_what_there_is_not_is_answered_with_what_there_is(read, message):
    with pytest.raises(ValueError, match=message):
        read()


def test_a_missing_library_is_named_with_its_command(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "skimage.data", None)
    with pytest.raises(ValueError, match=r"^cat needs skimage: pip install 'gkalib\[vision\]'$"):
        data.picture("cat")


@pytest.mark.data("minilm")
def test_the_encoder_in_parts_is_the_model_of_chapter_4():
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


@pytest.mark.data("minilm")
def test_a_padded_sentence_is_read_as_it_is_alone():
    encoder = data.minilm()
    tokens, lengths = passages(3, 12), torch.tensor([5, 12, 8])
    parts = encoder.weights, encoder.config
    together = read_minilm(*parts, tokens, lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = read_minilm(*parts, tokens[row : row + 1, :length])
        assert np.allclose(together.vectors[row], alone.vectors[0], atol=1e-5)  # float32, six layers
    assert not np.allclose(together.vectors[0], read_minilm(*parts, tokens).vectors[0], atol=1e-2)
    mask = KeyPadding(lengths)
    again = read_minilm(
        *parts, tokens, lengths=lengths, attend=lambda *x: smooth(*x[:3], ExpDot(), mask=mask)
    )
    assert np.allclose(together.vectors, again.vectors, atol=1e-5)


@pytest.mark.data("minilm")
@pytest.mark.parametrize(
    ("count", "length", "message"),
    [
        (0, 12, "count must be at least 1 and length 3 to 512, not 0 and 12"),
        (1, 513, "length 3 to 512, not 1 and 513"),
        (10**5, 12, "too few for 100000 passages of 12"),
    ],
)
def test_passages_that_the_text_or_the_model_does_not_hold_are_refused(count, length, message):
    with pytest.raises(ValueError, match=message):
        data.trained_heads(count, length)


def test_random_splits_share_no_case_and_are_standardized():
    table = data.Table(np.arange(22.0)[:, None] ** 2, np.arange(22.0), ("square",), "number")
    x, y, queries, truth = data.random_splits(table, 3)
    assert x.shape == y.shape == (3, 17, 1) and queries.shape == truth.shape == (3, 5, 1)
    np.testing.assert_allclose([x.mean(1), y.mean(1)], 0.0, atol=1e-12)
    np.testing.assert_allclose([x.std(1), y.std(1)], 1.0)
    for fit, test in zip(y, truth, strict=True):
        assert len(np.unique(np.concatenate([fit, test]).round(9))) == 22
    assert not np.array_equal(y[0], y[1])
    np.testing.assert_array_equal(data.random_splits(table, 3)[1], y)

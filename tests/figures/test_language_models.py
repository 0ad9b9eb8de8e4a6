"""A run that forgets its generator reads a text again; one that forgets its optimizer only goes astray."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from chapters.figures.language_models import lost_states, rows, usual_run
from gkalib.models import GPTConfig

SIZES = GPTConfig(vocab_size=7, context=8, dim=8, depth=1, num_heads=1)
STREAM = torch.randint(7, (200,), generator=torch.Generator().manual_seed(0))


def test_a_checkpoint_with_all_states_changes_nothing():
    path, begins = usual_run(STREAM, SIZES, steps=4)
    again, same = usual_run(STREAM, SIZES, steps=4, stop=2)
    assert torch.equal(path, again) and begins == same and len(path) == 4


def test_what_is_forgotten_decides_what_changes():
    path, begins = usual_run(STREAM, SIZES, steps=6)
    repeated, twice = usual_run(STREAM, SIZES, steps=6, stop=3, forgets="generator")
    astray, once = usual_run(STREAM, SIZES, steps=6, stop=3, forgets="optimizer")
    assert twice == 2 * begins[:3] and once == begins
    for other in (repeated, astray):
        assert torch.equal(path[:3], other[:3]) and not torch.equal(path[3], other[3])


def test_the_figure_draws_both():
    left, right = lost_states(STREAM, SIZES, steps=4, stop=2).axes
    path, read = usual_run(STREAM, SIZES, steps=4)
    _, begins = usual_run(STREAM, SIZES, steps=4, stop=2, forgets="generator")
    astray, _ = usual_run(STREAM, SIZES, steps=4, stop=2, forgets="optimizer")
    np.testing.assert_array_equal(left.lines[0].get_ydata(), np.array(begins) / 1000)
    away = 100 * torch.linalg.vector_norm(astray - path, dim=1) / torch.linalg.vector_norm(path, dim=1)
    np.testing.assert_allclose(np.asarray(right.lines[1].get_ydata(), dtype=float), away.numpy(), rtol=1e-12)
    assert set(left.lines[1].get_xdata()) == {2.5}
    np.testing.assert_array_equal(left.lines[2].get_ydata(), np.array(read) / 1000)
    assert read[:2] == begins[:2] and read[2:] != begins[2:]
    plt.close("all")


def test_a_text_shorter_than_an_excerpt_is_refused():
    with pytest.raises(ValueError, match="an excerpt has 9 tokens, and the text only 9"):
        usual_run(STREAM[:9], SIZES, steps=1)


def test_rows_have_a_color_per_document_and_a_dot_where_one_begins(axes):
    tokens = torch.tensor([[9, 1, 2, 9], [3, 4, 9, 5], [9, 6, -1, -1]])
    image = rows(axes, tokens, 9, title="rows")
    shades = np.ma.filled(image.get_array(), np.nan)
    numbers = np.array([[1, 1, 1, 2], [2, 2, 3, 3], [4, 4, np.nan, np.nan]])
    np.testing.assert_allclose(shades, numbers * 7 % 20)
    (dots,) = axes.lines
    assert dots.get_ydata().tolist() == [0, 2] and axes.get_title("left") == "rows"

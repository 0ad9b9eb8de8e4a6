"""The figures of a trained model carry the numbers that they are named for, and leave it as it was."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from gkalib import capture_attention, gpt, vit
from gkalib.analysis import banks, class_row, patch_rows, received, rollout, spectrum_metrics
from gkalib.analysis.landscape import loss_on, snapshot, trajectory_plane
from gkalib.analysis.spectrum import effective_rank, singular_values
from gkalib.models import GPTConfig, ViTConfig
from gkalib.viz import figures, maps
from gkalib.viz.digest import digest

SMALL = ViTConfig(image_size=16, patch_size=4, dim=16, depth=2, num_heads=2, num_classes=3)
PICTURE = np.linspace(0, 1, 64).reshape(8, 8)
SIZES = ViTConfig(image_size=4, patch_size=2, channels=1, dim=8, depth=2, num_heads=2, num_classes=3)


@pytest.fixture
def looked():
    model = vit(SMALL, attention="gka")
    return model, [layer.weights for layer in capture_attention(model, torch.randn(1, 3, 16, 16))]


def drawn(figure, place: int, image: int = -1) -> np.ndarray:
    return np.asarray(figure.axes[place].images[image].get_array())


def test_rollout_stands_beside_the_picture(looked):
    model, weights = looked
    figure = figures.rollouts(PICTURE, model, weights)
    assert len(figure.axes) == 4
    np.testing.assert_array_equal(drawn(figure, 0), PICTURE)
    for place, discard in enumerate((0.0, 0.5, 0.9), start=1):
        flow = class_row(model, rollout(weights, discard=discard))[0].view(4, 4)
        np.testing.assert_allclose(drawn(figure, place), flow)


def test_maps_of_class_token_and_patches(looked):
    model, weights = looked
    figure = figures.class_maps(PICTURE, model, weights[1])
    np.testing.assert_allclose(drawn(figure, 1), weights[1][0, 1, 0, 1:].view(4, 4))
    found = patch_rows(model, weights[0])
    assert [place for place, _ in found.values()] == [(1, 1), (2, 2), (3, 3), (1, 3)]
    np.testing.assert_allclose(found["upper right"][1], weights[0][0].mean(0)[1 + 7, 1:].view(4, 4))
    figure = figures.patch_maps(PICTURE, model, weights[0])
    np.testing.assert_allclose(drawn(figure, 3), found["upper right"][1])
    np.testing.assert_allclose(drawn(figure, 7), found["upper right"][1])


def test_a_row_a_layer_and_matrices_without_diagonal(looked):
    model, weights = looked
    figure = figures.evolution(PICTURE, model, weights)
    assert len(figure.axes) == 6
    np.testing.assert_allclose(drawn(figure, 3), weights[1][0].mean(0))
    figure = figures.matrices(weights[0])
    np.testing.assert_allclose(drawn(figure, 1), maps.off_diagonal(weights[0][0, 1]))


def test_bandwidths_twice():
    figure = figures.bandwidth_figure(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_array_equal(drawn(figure, 0), [[1, 3], [2, 4]])  # heads down and layers across
    assert figure.axes[0].get_xlabel() == "layer"
    assert [line.get_ydata().tolist() for line in figure.axes[1].lines] == [[1, 3], [2, 4]]


def test_a_text_has_rows_sinks_and_banks():
    config = GPTConfig(vocab_size=9, context=8, dim=16, depth=2, num_heads=2, positions="none")
    model = gpt(config, attention="gpa")
    weights = [layer.weights for layer in capture_attention(model, torch.randint(9, (1, 8)))]
    figure = figures.last_rows(list("abcdefgh"), weights)
    np.testing.assert_allclose(drawn(figure, 0)[3], weights[1][0, 1, -1])
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == list("abcdefgh")
    figure = figures.sinks(weights)
    np.testing.assert_allclose(figure.axes[1].lines[0].get_ydata(), received(weights[1])[0, 0])
    figure = figures.bank_figure(banks(model), 8)
    expected = model.blocks[1].attn.kernel.second.lag_table(8)[1].tolist()
    np.testing.assert_allclose(figure.axes[1].lines[1].get_ydata(), expected, rtol=1e-6)


@pytest.fixture
def attention() -> list[torch.Tensor]:
    """Weights of two layers, the second of rank two."""
    first = torch.rand(3, 2, 5, 5)
    return [first, first[..., :2] @ first[..., :2].mT]


def test_figures_and_metrics(attention: list[torch.Tensor]):
    model = vit(SIZES)
    snapshots = []
    for _ in range(4):
        snapshots.append(snapshot(model))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    snapshots.append(snapshot(model))
    images, labels = torch.randn(6, 1, 4, 4), torch.arange(6) % 3
    asked = []

    def loss(model: torch.nn.Module) -> torch.Tensor:
        asked.append(1)
        return cross_entropy(model(images), labels)

    plane = trajectory_plane(snapshots)
    made = figures.spectrum_figures(model, attention, (plane, loss_on(plane, model, loss, points=5)))
    assert set(made) == {"spectra", "histograms", "landscape"} and len(asked) == 25
    assert all(torch.equal(snapshots[-1][name], one) for name, one in model.named_parameters())
    texts = {name: str(digest(figure)) for name, figure in made.items()}
    assert "layer 1" in texts["spectra"] and "attention query (144)" in texts["histograms"]
    assert "random walk" in texts["landscape"] and "contour" in texts["landscape"]
    found = spectrum_metrics(model, attention, snapshots)
    ranks = effective_rank(singular_values(attention[0]))
    assert found["attention_rank_0"] == pytest.approx(ranks.mean().item())
    assert 1 < found["attention_rank_1"] < 2 < found["attention_rank_0"] < 5
    assert 1 < found["attention_query_rank"] < 8 and 0.25 < found["explained_1"] < 1


def test_without_snapshots_there_is_no_landscape(attention: list[torch.Tensor]):
    model = vit(SIZES)
    assert set(figures.spectrum_figures(model, attention)) == {"spectra", "histograms"}
    assert not any(name.startswith("explained") for name in spectrum_metrics(model, attention))

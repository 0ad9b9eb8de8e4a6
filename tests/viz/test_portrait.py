"""The figures of a trained model show its numbers, and drawing leaves the model as it was."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from gkalib.models import ViTConfig, vit
from gkalib.viz import portrait
from gkalib.viz.digest import digest
from gkalib.viz.landscape import weights_of
from gkalib.viz.spectrum import effective_rank, singular_values

SIZES = ViTConfig(image_size=4, patch_size=2, channels=1, dim=8, depth=2, num_heads=2, num_classes=3)


@pytest.fixture
def attention() -> list[torch.Tensor]:
    """Weights of two layers, the second of rank two."""
    first = torch.rand(3, 2, 5, 5)
    return [first, first[..., :2] @ first[..., :2].mT]


def test_figures_and_metrics(attention: list[torch.Tensor]):
    model = vit(SIZES)
    snapshots = []
    for _ in range(4):
        snapshots.append(weights_of(model))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    snapshots.append(weights_of(model))
    images, labels = torch.randn(6, 1, 4, 4), torch.arange(6) % 3
    asked = []

    def loss(model: torch.nn.Module) -> torch.Tensor:
        asked.append(1)
        return cross_entropy(model(images), labels)

    made = portrait.figures(model, attention, snapshots, loss, points=5)
    assert set(made) == {"spectra", "histograms", "landscape"} and len(asked) == 25
    assert all(torch.equal(snapshots[-1][name], one) for name, one in model.named_parameters())
    texts = {name: str(digest(figure)) for name, figure in made.items()}
    assert "layer 1" in texts["spectra"] and "attention query (144)" in texts["histograms"]
    assert "random walk" in texts["landscape"] and "contour" in texts["landscape"]
    found = portrait.metrics(model, attention, snapshots)
    ranks = effective_rank(singular_values(attention[0]))
    assert found["attention_rank_0"] == pytest.approx(ranks.mean().item())
    assert 1 < found["attention_rank_1"] < 2 < found["attention_rank_0"] < 5
    assert 1 < found["attention_query_rank"] < 8 and 0.25 < found["explained_1"] < 1


def test_without_snapshots_there_is_no_landscape(attention: list[torch.Tensor]):
    model = vit(SIZES)
    assert set(portrait.figures(model, attention)) == {"spectra", "histograms"}
    assert not any(name.startswith("explained") for name in portrait.metrics(model, attention))

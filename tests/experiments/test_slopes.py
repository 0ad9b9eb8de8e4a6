"""The slope of a layer against autograd's own Jacobian, and where the inputs place their tokens."""

import pytest
import torch

from chapters.experiments.slopes import steep_inputs, steepest
from gkalib.layers import attention


def layer_of(name: str) -> torch.nn.Module:
    layer = attention(name, project_out=False, method="dense")(4, 1).double()
    for parameter in layer.parameters():
        if parameter.ndim == 2:
            torch.nn.init.orthogonal_(parameter)
    return layer


@pytest.mark.parametrize("name", ["softmax", "gka"])
def test_the_slope_is_the_largest_over_the_inputs_of_the_norm_of_the_jacobian(name):
    layer, x = layer_of(name), torch.randn(3, 5, 4, dtype=torch.float64)
    norms = []
    for one in x:
        jacobian = torch.autograd.functional.jacobian(lambda tokens: layer(tokens[None])[0], one)
        norms.append(torch.linalg.matrix_norm(jacobian.reshape(20, 20), 2).item())
    assert steepest(layer, x) == pytest.approx(max(norms), rel=1e-10)


def test_inputs_are_normal_tokens_then_a_token_at_the_origin_then_keys_around_a_query():
    layer = layer_of("rbf")
    normal, origin, between = steep_inputs(layer, 3.0, tokens=5, draws=2).chunk(3)
    assert not origin[:, 0].any()
    torch.testing.assert_close(origin[:, 1:], normal[:, 1:])
    query, key = layer.query(between[:, 0]), layer.key(between[:, :3])
    torch.testing.assert_close((key[:, 1] + key[:, 2]) / 2, query)
    away = (key - query[:, None]).norm(dim=-1)
    torch.testing.assert_close(away[:, 1:], away[:, :1].expand(-1, 2) / 2)


def test_without_projections_other_tokens_lie_on_both_sides_of_the_first():
    normal, _, between = steep_inputs(layer_of("gka"), 3.0, tokens=5, draws=2).chunk(3)
    torch.testing.assert_close(between[:, 0], normal[:, 0])
    torch.testing.assert_close((between[:, 1] + between[:, 2]) / 2, normal[:, 0])
    distances = (between[:, 1:] - between[:, :1]).norm(dim=-1)
    torch.testing.assert_close(distances, torch.full_like(distances, 3.0))


@pytest.mark.parametrize("name", ["softmax", "rbf"])
def test_at_these_inputs_the_slope_grows_with_the_square_of_the_size(name):
    layer = layer_of(name)
    small, large = (steepest(layer, steep_inputs(layer, size, tokens=6)) for size in (10.0, 100.0))
    assert 30 < large / small < 300

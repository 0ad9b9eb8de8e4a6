"""SuSiE's distances, rotary lengths, and where registers stand."""

import pytest
import torch

from gkalib.layers import attention
from gkalib.layers.parts import Rope, SuSiE, frequencies
from tests.tolerance import equal

HEADS, WIDTH = 3, 8


def _susie(registers: int = 0) -> SuSiE:
    place = SuSiE(HEADS, WIDTH, registers=registers).double()
    place.omega = frequencies(WIDTH, 10000.0)
    torch.nn.init.normal_(place.weight)
    return place


def _rope() -> Rope:
    place = Rope(HEADS, WIDTH).double()
    place.omega = frequencies(WIDTH, 10000.0)
    return place


def test_susie_distances_are_sums_of_waves_of_the_lag():
    place, positions = _susie(), torch.arange(40)
    table = place.table(positions)
    found = (table[:, :, None] - table[:, None]).square().sum(-1)
    lag = (positions[:, None] - positions).double()
    waves = 1 - torch.cos(lag[..., None] * frequencies(WIDTH, 10000.0))
    torch.testing.assert_close(
        found, (2 * place.weight.square()[:, None, None] * waves).sum(-1), rtol=0, atol=1e-12
    )
    assert (found <= 4 * place.weight.square().sum(-1)[:, None, None] + 1e-12).all()


def test_susie_has_one_length_at_every_position():
    place = _susie()
    length = place.table(torch.arange(300)).square().sum(-1)
    torch.testing.assert_close(
        length, place.weight.square().sum(-1, keepdim=True).expand(-1, 300), rtol=1e-12, atol=0
    )


def test_susie_starts_at_a_squared_length_of_d_over_8():
    place = SuSiE(HEADS, WIDTH)
    length = place.table(torch.arange(5)).square().sum(-1)
    torch.testing.assert_close(length, torch.full((HEADS, 5), WIDTH / 8))


def test_registers_stand_before_the_text_with_vectors_of_their_own():
    place = _susie(registers=2)
    table = place.table(torch.arange(-2, 3))
    equal(table[:, :2], place.registers)
    equal(table[:, 2:], place.table(torch.arange(3)))
    in_batch = torch.stack([torch.arange(-2, 3), torch.arange(5)])
    equal(place.table(in_batch)[0], table)
    equal(place.table(in_batch)[1], place.table(torch.arange(5)))


def test_a_layer_counts_its_positions_from_minus_its_registers():
    layer = attention("rbf", position="susie", registers=2)(16, 2).double()
    x = torch.randn(1, 5, 16, dtype=torch.float64)
    problem = layer.problem(x)
    plain = layer.heads(layer.key(x))
    equal(problem.key, plain + layer.position.table(torch.arange(-2, 3)))


def test_rotary_positions_keep_lengths_and_leave_registers():
    place, x = _rope(), torch.randn(1, HEADS, 6, WIDTH, dtype=torch.float64)
    placed = place(x, torch.arange(-2, 4))
    torch.testing.assert_close(placed.norm(dim=-1), x.norm(dim=-1), rtol=1e-12, atol=0)
    equal(placed[:, :, :3], x[:, :, :3])  # two registers and the first token, which is not turned either
    assert (placed[:, :, 3:] - x[:, :, 3:]).abs().max() > 0.01


@pytest.mark.parametrize("place", [Rope, SuSiE])
def test_an_odd_width_has_no_pairs(place):
    with pytest.raises(ValueError, match=f"{place.__name__}: head_dim must be even, not 7"):
        place(2, 7)

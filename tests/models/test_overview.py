"""The table for choosing a variant says what the layers do: each column against its definition."""

import pytest
import torch
from torch import nn

import gkalib
from gkalib import layers
from gkalib.models import Overview, overview, overview_table
from gkalib.models.overview import kept_bytes
from tests.variants import VARIANTS

D, H, N = 32, 4, 16


@pytest.fixture(scope="module")
def rows() -> dict[str, Overview]:
    return {row.name: row for row in overview(D, H, (N, 2 * N))}


def test_every_variant_has_its_row(rows):
    assert [*rows] == [name for name in layers.variants() if name != "mixed"]
    assert rows["rpe"].parameters == VARIANTS["rpe"].parameters(D, H, N)


def test_lengths_caches_and_programs(rows):
    """What chapters say of them: 9, 12 and 13 of lengths, 18 of caches, 17 of programs, 11 of sums."""
    lengths = {name: row.length for name, row in rows.items() if row.length != "any"}
    assert lengths == {"karat": "n", "linformer": "at most n", "rpe": "at most n"}
    assert {name for name, row in rows.items() if row.cached is None} == {
        *("karat", "linformer", "nystrom", "skyformer")
    }
    assert (rows["gka"].cached, rows["non_local"].cached, rows["softmax"].cached) == (D, D, 2 * D)
    memories = {"gated", "delta", "gated_delta", "mesa"}
    assert {name for name, row in rows.items() if row.sums} == {"linear", "performer", *memories}
    assert {name for name, row in rows.items() if row.cached == 0} == memories
    assert {name for name, row in rows.items() if row.causal == "only"} == {"forgetting", *memories}
    assert rows["forgetting"].cached == 2 * D + H
    assert {name for name, row in rows.items() if row.fused} == {
        *("gka", "gpa", "karat", "l2", "non_local", "qk_norm", "rbf", "softmax", "vlt")
    }


def test_what_is_kept_is_counted_once_and_without_input_and_parameters():
    x = torch.randn(3, 8)
    assert kept_bytes(nn.Linear(8, 8), x) == 0  # its gradient needs x and the matrix alone

    class Squares(nn.Module):
        def forward(self, x):
            y = x.exp()  # kept: its own gradient
            return y * y.flatten().view(3, 8)  # y again, by two more names

    assert kept_bytes(Squares(), x) == 3 * 8 * 4


@pytest.mark.parametrize(
    "name, squared", [("softmax", False), ("gka", False), ("krause", True), ("karat", True)]
)
def test_memory_grows_with_the_tokens_or_with_their_square(name, squared):
    """A CPU keeps a matrix where no method with a small state computes the variant."""
    layer = gkalib.attention(name)
    few, many = (
        kept_bytes(layer(D, 2, **({"length": n} if layer.sized else {})), torch.zeros(1, n, D))
        for n in (256, 1024)
    )
    assert 12 * few < many < 17 * few if squared else many < 4.2 * few


def test_the_table():
    row = Overview("softmax", 1234, "yes", "any", 64, False, True, (2**20, 3 * 2**19))
    head, rule, line = overview_table([row], (5, 6)).splitlines()
    assert head.endswith("| fused | kept, 5 tokens | kept, 6 tokens |") and rule.count("|") == head.count("|")
    assert line == "| `softmax` | 1,234 | yes | any | 64 | yes | 1.0 MiB | 1.5 MiB |"
    with pytest.raises(ValueError, match="overview: give a number"):
        overview(tokens=())

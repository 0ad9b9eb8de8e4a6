"""The table for choosing a variant says what the layers do: each column against its definition."""

import pytest
import torch
from torch import nn

import gkalib
from gkalib import layers
from gkalib.models import overview, overview_table
from gkalib.models.overview import kept_bytes
from tests.variants import VARIANTS

D, H, N = 32, 4, 16


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, str]]:
    return overview(D, H, (N, 2 * N))


def test_every_variant_has_its_row(rows):
    assert [*rows] == [name for name in layers.variants() if name != "mixed"]
    assert rows["rpe"]["parameters"] == f"{VARIANTS['rpe'].parameters(D, H, N):,}"


def test_lengths_caches_and_programs(rows):
    """What chapters say of them: 9, 12 and 13 of lengths, 18 of caches, 17 of programs, 11 of sums."""

    def having(title: str, cell: str) -> set[str]:
        return {name for name, row in rows.items() if row[title] == cell}

    assert having("tokens", "n") == {"karat"} and having("tokens", "at most n") == {"linformer", "rpe"}
    assert having("tokens", "any") | {"karat", "linformer", "rpe"} == set(rows)
    assert having("cache per token", "none") == {"karat", "linformer", "nystrom", "skyformer"}
    memories = {"gated", "delta", "gated_delta", "mesa"}
    assert having("cache per token", "sums") == memories
    assert having("cache per token", f"{2 * D}, or sums") == {"linear", "performer"}
    assert {"gka", "non_local"} == having("cache per token", f"{D}")
    assert "softmax" in having("cache per token", f"{2 * D}")
    assert having("cache per token", f"{2 * D + H}") == {"forgetting"}
    assert having("causal", "only") == {"forgetting", *memories}
    assert having("fused", "yes") == {
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


def test_the_table(rows):
    head, rule, *lines = overview_table(rows).splitlines()
    assert head.endswith("| fused | kept, 16 tokens | kept, 32 tokens |")
    assert rule == "| --- | --: | --- | --- | --- | --- | --: | --: |" and len(lines) == len(rows)
    assert lines[[*rows].index("softmax")].startswith(
        "| `softmax` | 4,128 | yes | any | 64 | yes | 0.0 MiB |"
    )
    with pytest.raises(ValueError, match="overview: give a number"):
        overview(tokens=())

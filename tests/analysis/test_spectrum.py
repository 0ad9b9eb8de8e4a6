"""Spectra whose ranks are known."""

import numpy as np
import pytest
import torch

from gkalib.analysis.spectrum import (
    effective_rank,
    kind,
    matrices,
    singular_values,
    spectrum,
)
from gkalib.layers import attention
from gkalib.models import GPTConfig, ViTConfig, gpt, vit
from tests.tolerance import equal, oracle


def test_singular_values_are_numpys():
    weights = torch.randn(2, 3, 5, 4)
    exact = np.linalg.svd(weights.double().numpy(), compute_uv=False)
    oracle(singular_values(weights), torch.from_numpy(exact))


def test_a_spectrum_is_the_logarithm_of_the_mean():
    """Of a diagonal matrix and its triple, at every index the logarithm of twice."""
    one = torch.diag(torch.tensor([4.0, 2.0, 1.0]).double())
    equal(spectrum(torch.stack([one, 3 * one])), torch.tensor([8.0, 4.0, 2.0]).double().log())


@pytest.mark.parametrize(
    ("values", "effective"),
    [
        ([1.0, 1.0, 1.0, 1.0], 4.0),
        ([3.0, 0.0, 0.0], 1.0),
        ([5.0, 5.0, 0.0], 2.0),
        # Shares ½, ¼, ¼: the entropy is 1.5 log 2.
        ([2.0, 1.0, 1.0], 2.0**1.5),
        # σ_i = r^i has that of a geometric law, r^{−r/(1−r)} / (1 − r).
        ([0.9**i for i in range(400)], 0.9**-9 / 0.1),
    ],
)
def test_ranks_of_known_spectra(values: list[float], effective: float):
    for scale in (1.0, 1e-3):
        given = scale * torch.tensor(values).double()
        assert effective_rank(given).item() == pytest.approx(effective)


def test_ranks_are_taken_matrix_by_matrix():
    values = torch.tensor([[1.0, 1.0], [1.0, 0.0]]).double()
    equal(effective_rank(values), torch.tensor([2.0, 1.0]).double())


def test_every_parameter_has_a_kind():
    sizes = {"image_size": 4, "patch_size": 2, "dim": 8, "depth": 2, "num_heads": 2, "num_classes": 3}
    universal = attention("karat", mode="universal", rank=3)
    model = vit(ViTConfig(**sizes), attention=[universal, attention("gka")])
    found = {name: kind(name) for name, _ in model.named_parameters()}
    assert set(found.values()) == {
        *("class_token", "position", "patch_embed", "norm", "mlp", "head"),
        *(f"attention {part}" for part in ("query", "key", "value", "proj", "normalizer", "kernel")),
    }
    blockwise = vit(ViTConfig(**sizes), attention=attention("karat", rank=3))
    inside = [name for name, _ in blockwise.named_parameters() if kind(name) == "attention normalizer"]
    assert inside and all(".attn.normalizer." in name for name in inside)
    decoder = gpt(GPTConfig(vocab_size=11, context=8, dim=16, depth=1, num_heads=2))
    assert {kind(name) for name, _ in decoder.named_parameters()} >= {"embedding", "mlp", "attention value"}


def test_matrices_leave_out_vectors_and_tables_of_one_row():
    given = {"a": torch.ones(3, 2), "b": torch.ones(3), "c": torch.ones(1, 5), "d": torch.ones(2, 2, 2)}
    assert list(matrices(given)) == ["a"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: effective_rank(torch.zeros(2, 3)), "effective_rank: needs a singular value above zero"),
    ],
)
def test_what_has_no_answer_is_refused(call, message: str):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()

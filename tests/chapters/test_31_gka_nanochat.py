"""What chapter 31 says that no test of the library covers: an equation, its counts, Muon and the recipe."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from chapters.experiments import gka
from gkalib.layers import attention
from gkalib.models import PRESETS, GPTConfig, count, gpt
from gkalib.smoothing import compute_weights
from gkalib.training import recipe
from gkalib.training.optim import optimizers
from gkalib.training.recipes.gka_nanochat import scaling_parameters
from tests.tolerance import equal
from tests.training.runs import text_run


def test_the_language_form_is_a_softmax_of_dot_products():
    """Vectors of one length: the squared distance is a constant minus twice the dot product.

    Without rotary positions, whose angles are rounded to float32, and of long tokens, beside which the
    norm's ε is nothing.
    """
    layer = attention("gka", qk_norm=True, sigma=1.7)(24, 2, dtype=torch.float64)
    problem = layer.problem(1e6 * torch.randn(1, 9, 24, dtype=torch.float64), is_causal=True)
    scaled = problem.query
    equal(scaled.square().sum(-1), torch.full((1, 2, 9), 12.0, dtype=torch.float64))
    scores = scaled @ scaled.mT / 1.7**2
    hidden = torch.ones(9, 9, dtype=torch.bool).triu(1)
    equal(compute_weights(problem), scores.masked_fill(hidden, -math.inf).softmax(-1))


@pytest.mark.data("tinystories")
def test_the_arms_of_the_experiment_are_as_large_as_it_says():
    """Equal operations and equal parameters hold to a hundredth."""
    sizes = {}
    for study in gka.stories():
        model = study.build()
        counted = count(model, torch.zeros(1, 128, dtype=torch.long))
        sizes[study.arm] = (counted.parameters, counted.flops_per_token)
    parameters, operations = sizes["baseline"]
    assert sizes["gka-operations"][1] == pytest.approx(operations, rel=0.01)
    assert sizes["gka-parameters"][0] == pytest.approx(parameters, rel=0.01)
    assert sizes["gka"][0] < sizes["no-value-embeddings"][0] < parameters


@pytest.mark.data("tinystories")
@pytest.mark.parametrize(("arm", "limit"), [("gka-operations", 1), ("gka-parameters", 0)])
def test_two_arms_are_as_wide_as_the_baseline_allows(arm, limit):
    """By a multiple of four, in operations per token or in parameters."""
    studies = {study.arm: study for study in gka.stories()}

    def size(study):
        counted = count(study.build(), torch.zeros(1, 128, dtype=torch.long))
        return (counted.parameters, counted.flops_per_token)[limit]

    chosen = studies[arm]
    wider = replace(chosen, model={**chosen.model, "dim": chosen.model["dim"] + 4})
    assert size(chosen) <= size(studies["baseline"]) < size(wider)


def test_of_the_settings_of_the_pair_only_the_decay_differs():
    base, kernel = (recipe("gka-nanochat-d20").run(arm) for arm in ("baseline", "gka"))
    assert (base.batch, base.lr, base.rates) == (kernel.batch, kernel.lr, kernel.rates)
    assert kernel.weight_decay / base.weight_decay == pytest.approx(1.04, abs=0.005)


def test_muon_applies_an_odd_polynomial_to_singular_values_and_keeps_their_vectors():
    matrix = torch.randn(6, 9, dtype=torch.float64)
    left, scales, right = torch.linalg.svd(matrix, full_matrices=False)
    s = scales / scales.norm()
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    expected = left * s @ right
    run = text_run(optimizer="muon", lr=1.0, weight_decay=0.0)
    weight = nn.Linear(9, 6, bias=False)
    made = nn.Module()
    made.blocks = nn.ModuleList([weight])
    (muon,) = optimizers(run, made)
    muon.param_groups[0]["momentum"] = 0.0
    before = weight.weight.detach().clone()
    weight.weight.grad = matrix.float()
    muon.step()
    # PyTorch computes it in bfloat16.
    torch.testing.assert_close((before - weight.weight.detach()).double(), expected, atol=0.05, rtol=0)


def _sizes(depth: int) -> GPTConfig:
    """nanochat's baseline at another depth."""
    return replace(PRESETS["nanochat-d20"], depth=depth, dim=64 * depth, num_heads=depth // 2)


def test_one_dial_gives_the_recipe_at_depth_20():
    run = recipe("gka-nanochat-d20").run("baseline")
    model, depth = run.model, 20
    assert (model.dim, model.num_heads) == (64 * depth, depth // 2)
    reference = _sizes(12)
    share = scaling_parameters(model, projections=4) / scaling_parameters(reference, projections=4)
    batch = 2 ** round(math.log2(2**19 * share**0.383))
    assert run.batch * model.context == batch == 2**20
    assert run.lr == pytest.approx(0.02 * math.sqrt(batch / 2**19))
    assert run.rates["embedding."] * run.lr == pytest.approx(
        0.3 * math.sqrt(batch / 2**19) * (model.dim / 768) ** -0.5
    )
    assert run.weight_decay == pytest.approx(0.2 * math.sqrt(batch / 2**19) / share)
    assert run.steps == math.floor(10.5 * scaling_parameters(model, projections=4) / batch)


def test_scaling_parameters_are_the_matrices_and_the_head():
    sizes = _sizes(4)
    with torch.device("meta"):
        model = gpt(sizes)
    counted = sum(
        parameter.numel()
        for name, parameter in model.named_parameters()
        if parameter.ndim == 2 and "values" not in name and "embedding" not in name
    )
    assert scaling_parameters(sizes, projections=4) == counted

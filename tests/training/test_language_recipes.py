"""The recipes of text have the papers' sizes, costs, rates and pairs."""

import math
from dataclasses import replace

import pytest
import torch

from gkalib.models import gpt
from gkalib.training import cost, recipe
from gkalib.training.config import LanguageConfig, config_of
from gkalib.training.optim import learning_rate, optimizers
from gkalib.training.recipes.gka_nanochat import operations_per_token

NAMES = ("gpa-dickens", "gpa-subwords", "rbf-tinystories", "rbf-tinystories-small", "gka-nanochat-d20")
ARMS = [(name, arm) for name in NAMES for arm in recipe(name).arms]
SCALES = ("full", "smoke", "reduced", "reduced-cpu")


def run_at(name: str, arm: str, scale: str = "full") -> LanguageConfig:
    run = recipe(name).run(arm)
    assert isinstance(run, LanguageConfig)
    if scale == "full":
        return run
    return run.smoke() if scale == "smoke" else run.reduced("cpu" if scale == "reduced-cpu" else "cuda")


def counted(name: str, arm: str):
    return cost(run_at(name, arm)).count


@pytest.mark.parametrize(
    "name, arm, parameters",
    [
        ("rbf-tinystories", "rbf-registers", 28_943_185),
        ("rbf-tinystories", "standard", 28_941_649),
        ("rbf-tinystories-small", "rbf-registers", 76_754_001),
        ("rbf-tinystories-small", "standard", 76_735_569),
    ],
)
def test_parameters_are_those_of_the_papers(name, arm, parameters):
    assert counted(name, arm).parameters == parameters


def test_what_the_paper_without_a_fitting_count_lets_us_check():
    """GPA prints 13.8 million, which its description does not give; what its bank adds does fit."""
    rope, bank = (counted("gpa-dickens", arm) for arm in ("rope", "bank"))
    assert rope.parameters + 9 * (2 * 512 + 1) == 12_705_885
    assert bank.parameters - rope.parameters == 4_096
    both = counted("gpa-dickens", "bank-rope")
    assert both.parameters == bank.parameters
    assert run_at("gpa-dickens", "bank").steps * 256 / 11_700_000 == pytest.approx(4.38, abs=0.01)


@pytest.mark.parametrize(
    "arm, flops_per_token, tokens, operations",
    [
        ("baseline", 3_004_189_440, 4_568_645_632, 1.372508e19),
        ("gka", 2_414_346_240, 2_778_726_400, 6.70881e18),
    ],
)
def test_the_nanochat_pair_costs_what_the_paper_prints(arm, flops_per_token, tokens, operations):
    spent = cost(run_at("gka-nanochat-d20", arm))
    assert (spent.count.flops_per_token, spent.items) == (flops_per_token, tokens)
    assert spent.operations == pytest.approx(operations, rel=1e-6)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("matched, like", [("gka-matched", "baseline"), ("baseline-matched", "gka")])
def test_matched_arms_agree_within_a_step(matched, like, scale):
    first, second = (run_at("gka-nanochat-d20", arm, scale) for arm in (matched, like))
    spent = cost(first)
    assert abs(spent.operations - cost(second).operations) <= spent.operations / first.steps


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("arm, projections", [("baseline", 4), ("gka", 1), ("baseline-plain", 4)])
def test_the_estimate_that_matches_arms_is_what_is_counted(arm, projections, scale):
    run = run_at("gka-nanochat-d20", arm, scale)
    assert operations_per_token(run.model, projections=projections) == cost(run).count.flops_per_token


def test_plain_is_the_baseline_without_value_embeddings():
    plain, full = (run_at("gka-nanochat-d20", arm) for arm in ("baseline-plain", "baseline"))
    assert (plain.steps, plain.batch, plain.lr, plain.rates) == (full.steps, full.batch, full.lr, full.rates)
    gates = 10 * 32 * 10
    assert cost(full).count.parameters - cost(plain).count.parameters == 10 * 32_768 * 1_280 + gates


def test_rates_of_nanochat_at_depth_20():
    """The printed rates: 0.02, 0.3 and 0.004 times (1280/768)^-½, 0.5 and 0.005; all times √2."""
    run = run_at("gka-nanochat-d20", "gka")
    with torch.device("meta"):
        model = run.build()
    rates = {}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for optimizer in optimizers(run, model):
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = names[id(parameter)]
                rates[name] = type(optimizer).__name__, run.lr * group["rate"] / math.sqrt(2), group["decay"]
    narrow = (1280 / 768) ** -0.5
    assert rates["embedding.weight"] == ("AdamW", pytest.approx(0.3 * narrow), 0)
    assert rates["head.weight"] == ("AdamW", pytest.approx(0.004 * narrow), 0)
    assert rates["residual_scale"] == ("AdamW", pytest.approx(0.005), 0)
    assert rates["first_scale"] == ("AdamW", pytest.approx(0.5), 0)
    assert rates["blocks.3.attn.kernel.log_sigma"] == ("AdamW", pytest.approx(0.005), 0)
    for name in ("attn.proj", "mlp.fc", "mlp.proj"):
        assert rates[f"blocks.3.{name}.weight"] == ("Muon", pytest.approx(0.02), run.weight_decay)
    assert len(rates) == len(names) == 2 + 2 + 20 * 4


def test_value_embeddings_have_the_rate_of_embeddings_and_gates_go_to_muon():
    run = run_at("gka-nanochat-d20", "baseline", "smoke")
    adamw, muon = optimizers(run, model := run.build())
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    of_muon = {names[id(parameter)] for group in muon.param_groups for parameter in group["params"]}
    of_adamw = {names[id(p)]: group["rate"] for group in adamw.param_groups for p in group["params"]}
    assert {"blocks.1.gate.weight", "blocks.0.attn.value.weight"} <= of_muon
    assert of_adamw["blocks.1.values.weight"] == of_adamw["embedding.weight"]


def test_decay_of_nanochat_follows_the_scaling_parameters():
    """λ = 0.2 √2 N₁₂/N₂₀, N₁₂ with width 768 and six heads: 110,101,632 against 435,162,240."""
    assert run_at("gka-nanochat-d20", "baseline").weight_decay == pytest.approx(
        0.2 * math.sqrt(2) * 110_101_632 / 435_162_240
    )


@pytest.mark.parametrize(
    "name, arm, at",
    [
        ("rbf-tinystories", "rbf", {0: 1e-8, 500: 5.00005e-4, 1_000: 1e-3, 17_044: 5.05e-4, 33_088: 1e-5}),
        (
            "gka-nanochat-d20",
            "gka",
            {0: 0.02 * 2**0.5, 1_325: 0.02 * 2**0.5, 2_650: 0.0, 2_120: 0.008 * 2**0.5},
        ),
        ("gpa-dickens", "bank", {0: 0.0, 1_000: 1e-3, 100_500: 5.5e-4, 200_000: 1e-4}),
    ],
)
def test_learning_rates_along_the_full_runs(name, arm, at):
    run = run_at(name, arm)
    assert {step: learning_rate(run, step) for step in at} == pytest.approx(at, rel=1e-9)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name, arm", ARMS)
def test_every_arm_at_every_scale_is_a_run_that_can_be_stored(name, arm, scale):
    run = run_at(name, arm, scale)
    assert (run.experiment, run.arm, run.scale) == (name, arm, scale.partition("-")[0])
    assert config_of(run.settings()).settings() == run.settings()
    if scale == "reduced-cpu":
        assert 0.8e6 < cost(run).count.parameters < 1.4e6
    if scale == "smoke":
        assert run.data == "state-of-the-union" and run.dtype == "float32" and run.parts > 1


def test_arms_differ_in_what_their_names_say():
    runs = {arm: run_at("gpa-dickens", arm) for arm in recipe("gpa-dickens").arms}
    shared = {(run.steps, run.batch, run.lr, run.model.dim) for run in runs.values()}
    assert len(shared) == 1
    described = {arm: (run.attention, run.model.positions, run.wrap) for arm, run in runs.items()}
    assert described == {
        "rope": ("softmax", "rope", 70),
        "bank": ("gpa", "none", 70),
        "bank-rope": ("gpa", "rope", 70),
        "rope-unwrapped": ("softmax", "rope", None),
        "bank-unwrapped": ("gpa", "none", None),
        "bank-rope-unwrapped": ("gpa", "rope", None),
    }


@pytest.mark.parametrize("scale", SCALES)
def test_an_arm_of_subwords_is_its_arm_of_characters_with_other_tokens(scale):
    for arm in recipe("gpa-subwords").arms:
        letters, pairs = (run_at(name, arm, scale) for name in ("gpa-dickens", "gpa-subwords"))
        model = replace(letters.model, vocab_size=pairs.model.vocab_size)
        assert pairs == replace(letters, experiment="gpa-subwords", tokenizer="bpe", model=model)


def test_registers_start_where_the_trainer_starts_them():
    standard, rbf = (run_at("rbf-tinystories", arm, "smoke") for arm in ("standard", "rbf-registers"))
    assert standard.build().register_tokens.std() > 0.05 and not rbf.build().register_tokens.any()
    assert run_at("rbf-tinystories", "rbf").model.registers == 0
    assert gpt("rbf-tiny").config == run_at("rbf-tinystories", "rbf-registers").model

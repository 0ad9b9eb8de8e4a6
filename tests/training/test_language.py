"""The loop of text: every recipe's arms run, processes agree, padding does not count, a batch is learned."""

from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

from gkalib import training
from gkalib.cli import main
from gkalib.data import DATASETS
from gkalib.data.rows import IGNORED, Batch, Rows, Windows
from gkalib.data.tokenizers import Characters
from gkalib.data.tokens import TextData
from gkalib.models import GPTConfig
from gkalib.training import LanguageConfig, LaunchConfig, checkpoint, language, log, recipe
from gkalib.training.checkpoint import load_checkpoint
from gkalib.training.distributed import Processes
from gkalib.training.loop import Trainer, fit, gradient
from gkalib.training.sampler import Sampler
from tests.tolerance import FLOOR, equal
from tests.training.runs import by_two, launch, text_run
from tests.training.test_language_recipes import ARMS
from tests.training.two_workers import texts, train_all

TOKENS = Characters("abcdefghijk")  # as many as text_run's model has
ALONE = Processes(0, 1, torch.device("cpu"))


class Padded(Rows):
    """Rows of random tokens; row r has the first r + 1 labels."""

    context = 8

    def __len__(self) -> int:
        return 8

    def batch(self, rows: np.ndarray) -> Batch:
        tokens = torch.randint(11, (8, 9), generator=torch.Generator().manual_seed(1))[rows]
        past = torch.arange(8) > torch.from_numpy(rows)[:, None]
        return tokens[:, :-1], tokens[:, 1:].masked_fill(past, IGNORED)


def workload(run: LanguageConfig, rows: Rows | None = None) -> language.TextWorkload:
    """A run on rows of the test's own."""
    rows = rows or Padded()
    return language.TextWorkload(run, TextData(rows, rows, TOKENS), ALONE)


def smoke(name: str, arm: str) -> LanguageConfig:
    run = recipe(name).run(arm).smoke()
    assert isinstance(run, LanguageConfig)
    return run


def labels_read(run: LanguageConfig) -> int:
    """The labels of every batch of a run, one by one."""
    data = language.load_data(run, ALONE)[1]
    order = Sampler(len(data.train), run.batch, run.parts, run.seed, language.ORDERS[run.rows])
    parts = [order.part(step, number).rows for step in range(run.steps) for number in range(run.parts)]
    return sum(int((data.train.batch(rows)[1] != IGNORED).sum()) for rows in parts)


@pytest.mark.parametrize("name, arm", ARMS)
def test_smoke(name, arm, tmp_path):
    """The loss falls from that of knowing nothing, and the record says what was read."""
    run = smoke(name, arm)
    record = training.train(run, launch(tmp_path / "run"))
    assert (record.experiment, record.arm, record.scale) == (name, arm, "smoke")
    assert record.recipe["data"] == "state-of-the-union"
    assert record.data_sha256 == DATASETS["state_of_the_union"].sha256
    assert record.metrics["val_loss"] < np.log(run.model.vocab_size) - 0.1
    assert record.metrics["tokens"] == run.steps * run.batch * run.model.context
    assert record.metrics["targets"] == labels_read(run)
    assert {"bits_per_byte", "train_loss", "parameters", "tokens_per_second"} < record.metrics.keys()
    samples = (tmp_path / "run" / "samples.txt").read_text(encoding="utf-8")
    steps = sorted({*range(10, run.steps + 1, 10), run.steps})
    assert samples.count("=== step") == samples.count(f"\n{run.prompt}") == len(steps)
    measured = [row["step"] for row in log.read_curve(tmp_path / "run" / log.CURVE) if row["val_loss"]]
    assert measured == [str(step) for step in steps]


def test_a_text_of_ones_own_trains_with_its_name_alone(tmp_path, capsys):
    """Six characters, where a smoke run has 75, and a prompt with letters that the text lacks."""
    (tmp_path / "mine.txt").write_text("na ja na ja, na\n" * 40, encoding="utf-8")
    words = ["train", "gpa-dickens", "--arm", "bank", "--smoke", "--data", str(tmp_path / "mine.txt")]
    assert main([*words, "--out", str(tmp_path / "run"), "--device", "cpu", "--quiet"]) == 0
    trained = load_checkpoint(tmp_path / "run")
    assert trained.config.model.vocab_size == len(set("na ja, \n")) == 6 and trained.config.prompt == " a "
    assert main(["evaluate", str(tmp_path / "run"), "--device", "cpu"]) == 0
    capsys.readouterr()
    written = ["generate", str(tmp_path / "run"), "--prompt", "na ", "--count", "9", "--device", "cpu"]
    assert main(written) == 0
    text = capsys.readouterr().out.removesuffix("\n")
    assert text.startswith("na ") and len(text) == 12 and set(text) <= set("na ja, \n")


def test_characters_need_as_many_bits_as_nats_say(tmp_path):
    """In ASCII a character is a byte."""
    run = replace(smoke("gpa-dickens", "rope"), steps=2, warmup=1)
    actual = training.train(run, launch(tmp_path / "run")).metrics
    assert actual["bits_per_byte"] == pytest.approx(actual["val_loss"] / np.log(2), rel=1e-12)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The texts of ``two_workers`` in one process, and in two that torchrun started."""
    out = tmp_path_factory.mktemp("shared")
    train_all(out / "one", texts())
    by_two("two_workers", out / "two", "texts")
    return out


@pytest.mark.slow
@pytest.mark.parametrize("name", list(texts()))
def test_two_processes_give_the_losses_of_one(shared, name):
    """Losses agree to 64 float32 spacings, the project's bound; without accumulation to the bit.

    Weights agree too, but for Muon's run with accumulation, where a rounding can move a weight in full.
    """
    numbers = ("loss", "val_loss")
    curves = [
        {
            (row["step"], of): float(row[of])
            for row in log.read_curve(shared / who / name / log.CURVE)
            for of in numbers
            if row[of]
        }
        for who in ("one", "two")
    ]
    run = texts()[name]
    assert curves[0].keys() == curves[1].keys() and len(curves[0]) == run.steps + 2
    difference = max(abs(loss - curves[1][key]) for key, loss in curves[0].items())
    exact = run.parts == 2
    allowed = FLOOR[torch.float32] * torch.finfo(torch.float32).eps * max(curves[0].values())
    assert difference <= (0 if exact else allowed)
    if exact or run.optimizer == "adamw":
        single, double = (
            load_file(checkpoint.checkpoints(shared / who / name)[-1] / "model.safetensors")
            for who in ("one", "two")
        )
        apart = max((weight - double[key]).abs().max().item() for key, weight in single.items())
        assert apart <= (0 if exact else 1e-5)


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_the_loss_is_the_mean_over_targets_however_they_are_divided(parts, tmp_path):
    given = workload(text_run(batch=8, device_batch=8 // parts, rows="documents"))
    with ExitStack() as stack:
        trainer = Trainer(given, launch(tmp_path / "run"), stack)
        model = trainer.model.double()
        loss = gradient(trainer, given.parts(0), 0)
        inputs, labels = Padded().batch(np.arange(8))
        exact = cross_entropy(model(inputs).mT, labels, ignore_index=IGNORED)
        # the sum of each part goes through float32
        torch.testing.assert_close(loss.double(), exact.detach(), rtol=1e-6, atol=0)
        actual = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        exact.backward()
        for ours, parameter in zip(actual, model.parameters(), strict=True):
            torch.testing.assert_close(ours, parameter.grad, rtol=1e-5, atol=1e-7)


def test_labels_of_minus_one_do_not_count():
    logits, labels = torch.randn(2, 5, 11), torch.randint(11, (2, 5))
    labels[0, 3:] = IGNORED
    changed = logits.clone()
    changed[0, 3:] = 7.0
    nats = workload(text_run()).nats
    assert torch.equal(nats(logits, labels), nats(changed, labels))
    kept = logits[labels >= 0].log_softmax(-1)[torch.arange(8), labels[labels >= 0]]
    equal(nats(logits, labels).double(), -kept.sum().double())


def test_a_step_without_a_target_changes_nothing(tmp_path):
    class Empty(Rows):
        context = 8

        def __len__(self) -> int:
            return 8

        def batch(self, rows: np.ndarray) -> Batch:
            return torch.zeros(len(rows), 8, dtype=torch.long), torch.full((len(rows), 8), IGNORED)

    given = workload(text_run(rows="documents"), Empty())
    with ExitStack() as stack:
        trainer = Trainer(given, launch(tmp_path / "run"), stack)
        assert gradient(trainer, given.parts(0), 0) == 0
        assert not any(parameter.grad.any() for parameter in trainer.model.parameters())


def test_two_blocks_learn_a_batch_by_heart(tmp_path):
    config = GPTConfig(vocab_size=11, context=8, dim=32, depth=2, num_heads=2)
    run = text_run(model=config, steps=80, batch=4, device_batch=4, weight_decay=0.0)
    rows = Windows(np.random.default_rng(0).integers(11, size=33), 8, stride=8)
    assert len(rows) == 4
    fit(workload(replace(run, rows="packed"), rows), launch(tmp_path / "run"))
    losses = [float(row["loss"]) for row in log.read_curve(tmp_path / "run" / log.CURVE) if row["loss"]]
    assert losses[0] > 2 and losses[-1] < 0.02


@pytest.mark.parametrize("rows, count", [(None, 8), (5, 5), (100, 8)])
def test_held_out_rows_that_fill_a_batch_do_not_count(rows, count):
    run = text_run(eval_rows=rows, device_batch=3, batch=6)
    chosen = np.arange(count) * 8 // count
    model = run.build()
    measured = workload(run).measure(model)
    inputs, labels = Padded().batch(chosen)
    exact = cross_entropy(model(inputs).mT, labels, ignore_index=IGNORED)
    assert measured["val_loss"] == pytest.approx(exact.item(), rel=1e-6)


def test_a_sample_is_the_same_again_and_begins_with_the_prompt():
    run = text_run(prompt="abc")
    model, given = run.build(), workload(run)
    text = given.sample(model)
    assert text.startswith("abc") and len(text) == run.model.context
    assert given.sample(model) == text and model.training


def test_what_cannot_decode_trains_without_samples(monkeypatch):
    """No causal variant of ours, but a reader's may."""
    model = text_run().build()
    monkeypatch.setattr(type(model.blocks[0].attn), "decodes", False)
    monkeypatch.setattr(type(model.blocks[0].attn), "why_not", "of the test", raising=False)
    text = workload(text_run()).sample(model)
    assert text == "no sample: softmax: cannot decode token by token: of the test"


def test_a_long_prompt_is_cut_and_none_begins_with_a_token():
    for prompt in ("abcdefghijk", ""):
        run = text_run(prompt=prompt)
        text = workload(run).sample(run.build())
        assert len(text) == 8 and text.startswith(prompt[:7] or "a")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, arm",
    [
        ("gpa-dickens", "bank-rope"),
        ("gpa-subwords", "bank-rope"),
        ("rbf-tinystories", "rbf-registers"),
        ("gka-nanochat-d20", "baseline"),
        ("gka-nanochat-d20", "gka"),
    ],
)
def test_the_precision_of_the_full_run_trains(name, arm, tmp_path):
    """Smoke runs have float32; bfloat16, and float16 with its loss scale, give nearly the same loss.

    nanochat's scales of the first layer stay: while blocks add nothing yet, their gradient is rounding
    alone, and the first step would move them by the whole rate, up or down.
    """
    short = smoke(name, arm)
    short = replace(short, steps=6, eval_every=0, rates=short.rates | {"first_scale": 0.0})
    half = replace(short, dtype=recipe(name).run(arm).dtype)
    assert half.dtype != "float32"
    actual, exact = (
        training.train(run, LaunchConfig(out=tmp_path / run.dtype, device="cpu", quiet=True)).metrics[
            "val_loss"
        ]
        for run in (half, short)
    )
    assert actual == pytest.approx(exact, rel=0.02)


def test_a_vocabulary_that_is_not_the_tokenizers_is_refused(tmp_path, as_a_user):
    run = replace(
        smoke("gpa-dickens", "rope"), model=GPTConfig(vocab_size=93, context=8, dim=16, depth=1, num_heads=2)
    )
    with pytest.raises(ValueError, match=r"75 tokens.*93"):
        training.train(run, launch(tmp_path / "run"))

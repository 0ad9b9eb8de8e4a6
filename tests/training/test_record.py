"""A trained run answers: its held-out part again, tasks, text; and what it cannot do it refuses in words."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from gkalib import results
from gkalib.cli import main
from gkalib.evaluation import Schema, evaluating
from gkalib.evaluation.tasks import Task
from gkalib.training.checkpoint import load_checkpoint
from gkalib.training.distributed import Processes
from gkalib.training.language import held_out
from gkalib.training.record import workload_of
from tests.training.runs import smoke

HERE = Processes(0, 1, torch.device("cpu"))
QUESTIONS = [Schema(("The cat", "The dog"), "is here", 0), Schema(("One", "Two"), "more day", 1)]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A decoder of characters after three steps, measured on 16 rows; its folder and its record."""
    folder = tmp_path_factory.mktemp("text")
    return folder, smoke("gpa-dickens", folder)


def evaluated(folder: Path, capsys, *words: str) -> tuple[list[str], dict[str, float]]:
    """The two lines that `evaluate` begins with, and its numbers."""
    assert main(["evaluate", str(folder), "--device", "cpu", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    return lines[:2], {name: float(number) for name, number in map(str.split, lines[2:])}


def test_evaluate_gives_the_numbers_of_the_record(text, capsys):
    folder, record = text
    said, numbers = evaluated(folder, capsys)
    assert said == [
        "gpa-dickens, rope, smoke, step 3",
        "on 16 held-out rows, those of its record; --whole takes all 868",
    ]
    assert numbers == {name: float(f"{record.metrics[name]:.6g}") for name in ("val_loss", "bits_per_byte")}


def test_all_held_out_rows_have_another_loss(text, capsys):
    folder, record = text
    said, numbers = evaluated(folder, capsys, "--whole")
    assert said[1] == "on 868 held-out rows"
    assert 1e-5 < abs(numbers["val_loss"] - record.metrics["val_loss"]) < 0.1


def test_training_text_is_measured_beside_what_was_held_out(text, capsys, monkeypatch, tmp_path):
    """As the paper on GKA prints both, and the difference."""
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    folder, _ = text
    assert main(["evaluate", str(folder), "--device", "cpu", "--training", "--keep"]) == 0
    *lines, name = capsys.readouterr().out.splitlines()[2:]
    numbers = {key: float(number) for key, number in map(str.split, lines)}
    loaded = load_checkpoint(folder)
    workload = workload_of(loaded.config, HERE)
    rows = replace(loaded.config, eval_rows=16)
    with evaluating(loaded.model):
        parts = [loaded.model(x).mT for x, _ in held_out(rows, HERE, workload.data.train)]
        labels = [y for _, y in held_out(rows, HERE, workload.data.train)]
    nats = torch.stack([cross_entropy(*part) for part in zip(parts, labels, strict=True)]).mean().item()
    expected = nats / math.log(2)  # every character of the text is a byte
    assert numbers["train_bits_per_byte"] == pytest.approx(expected, rel=1e-4)
    assert numbers["gap"] == pytest.approx(numbers["bits_per_byte"] - expected, abs=1e-4)
    (record,) = results.load("evaluated")
    assert record.metrics["train_bits_per_byte"] == pytest.approx(expected, rel=1e-4)
    assert record.run == name and record.recipe["items"] == 16
    assert record.recipe["run"] == loaded.config.recorded()


def test_evaluate_computes_in_the_precision_of_training(tmp_path, capsys):
    record = smoke("gpa-dickens", tmp_path, dtype="bfloat16")
    assert evaluated(tmp_path, capsys)[1]["val_loss"] == float(f"{record.metrics['val_loss']:.6g}")


def test_a_classifier_is_measured_again(tmp_path, capsys):
    record = smoke("gka-imagenet-tiny", tmp_path)
    for words, prefix in (([], ""), (["--average"], "ema_")):
        said, numbers = evaluated(tmp_path, capsys, *words)
        assert said[1].startswith("on 128 held-out images, those of its record")
        assert numbers == {
            name: float(f"{record.metrics[prefix + name]:.6g}") for name in ("top1", "top5", "val_loss")
        }
    assert main(["generate", str(tmp_path)]) == 2
    assert "gka-imagenet-tiny is no model of text" in capsys.readouterr().err


def test_it_writes_the_same_text_from_the_same_seed(text, capsys):
    words = ["generate", str(text[0]), "--prompt", "The ", "--count", "12", "--device", "cpu"]
    written = []
    for seed in ("1", "1", "2"):
        assert main([*words, "--seed", seed]) == 0
        written.append(capsys.readouterr().out)
    assert written[0] == written[1] != written[2]
    assert written[0].startswith("The ") and len(written[0]) == 4 + 12 + 1


def test_text_beyond_the_context_is_written_and_said_once(text, capsys):
    assert main(["generate", str(text[0]), "--prompt", "The ", "--count", "28", "--device", "cpu"]) == 0
    assert capsys.readouterr().err == ""
    assert main(["generate", str(text[0]), "--prompt", "The ", "--count", "50", "--device", "cpu"]) == 0
    written, said = capsys.readouterr()
    assert len(written) == 4 + 50 + 1
    assert said.count("\n") == 1 and said.startswith(
        "gpt: the context of 32 tokens is full: from here on the window"
    )


def test_tasks_are_scored_and_kept(text, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path))
    monkeypatch.setattr(Task, "items", lambda task, limit=None: QUESTIONS[:limit])
    assert main(["evaluate", str(text[0]), "--tasks", "winograd", "--keep"]) == 0
    printed = capsys.readouterr().out
    assert "winograd" in printed and "mean of centered accuracies over 1 tasks" in printed
    (record,) = results.load("core", root=tmp_path)
    assert record.arm == "gpa-dickens-rope" and record.metrics["winograd_items"] == 2
    assert record.metrics["core"] == record.metrics["winograd_centered"]
    assert record.recipe["run"]["data"] == "state-of-the-union" and record.recipe["step"] == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["generate", "--prompt", "★"], "none of the 75 known"),
        (["generate"], "needs a prompt of at least one character"),
        (["generate", "--prompt", "a" * 40], "the prompt has 40 tokens, and the model reads 32"),
        (["evaluate", "--tasks", "chess"], "no task 'chess'"),
    ],
)
def test_refusals(text, words, message, capsys):
    assert main([words[0], str(text[0]), *words[1:]]) == 2
    assert message in capsys.readouterr().err


def test_a_folder_that_is_not_there(tmp_path, capsys):
    assert main(["evaluate", str(tmp_path / "nothing")]) == 2
    assert "runs/RECIPE/ARM-SCALE-sSEED" in capsys.readouterr().err

"""The command look: figures of every kind of run, and a record of the numbers behind them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from gkalib import capture_attention, results
from gkalib.analysis import neighbors
from gkalib.cli import main
from gkalib.experiments import inspect_run
from gkalib.experiments.inspect_run import sample, subject_of
from gkalib.training import LaunchConfig, recipe, train
from gkalib.training.checkpoint import load_checkpoint
from gkalib.training.distributed import Processes

HERE = Processes(0, 1, torch.device("cpu"))


def smoke(name: str, folder: Path, *, arm: str | None = None, **changes) -> Path:
    run = replace(recipe(name).run(arm).smoke(), steps=2, warmup=1, eval_every=0, **changes)
    train(run, LaunchConfig(out=folder, device="cpu", quiet=True))
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    return smoke("gka-imagenet-tiny", tmp_path_factory.mktemp("pictures"), arm="gka")


@pytest.fixture(scope="module")
def text(tmp_path_factory) -> Path:
    return smoke("gpa-dickens", tmp_path_factory.mktemp("text"), arm="bank")


def kept(root: Path) -> tuple[results.Record, list[dict[str, str]]]:
    (record,) = results.load("looking", root=root)
    return record, results.rows(record, root=root)


def test_a_classifier_is_drawn_and_kept(pictures: Path, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path / "results"))
    words = ["--out", str(tmp_path / "figures"), "--held-out", "6", "--device", "cpu", "--keep"]
    assert main(["look", str(pictures), "--picture", "astronaut", *words]) == 0
    model = load_checkpoint(pictures).model
    names = {path.stem for path in (tmp_path / "figures").glob("*.png")}
    single = {"rollout", "evolution", "bandwidths", "spectra", "histograms"}
    depth = len(model.blocks)
    assert names == single | {
        f"{kind}-layer{index}" for kind in ("class", "patches", "matrices") for index in range(depth)
    }
    assert f"{len(names)} figures" in capsys.readouterr().out
    record, rows = kept(tmp_path / "results")
    assert (record.arm, record.scale) == ("gka-imagenet-tiny-gka", "smoke")
    assert record.recipe["subject"] == "astronaut" and record.recipe["held_out"] == 6
    assert {"neighbors_0_0", "sigma_0_0", "residual_0", "rollout_occlusion_90"} <= set(record.metrics)
    figures = {row["figure"] for row in rows}
    assert {"rollout_00", "class", "patch_center", "matrix", "spectrum", "sigma"} <= figures


def test_a_decoder_is_drawn_and_kept(text: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path / "results"))
    out = tmp_path / "figures"
    assert main(["look", str(text), "--text", "We the People", "--out", str(out), "--keep"]) == 0
    names = {path.stem for path in out.glob("*.png")}
    assert {"last-rows", "sinks", "banks", "matrices-layer0", "spectra"} <= names
    record, rows = kept(tmp_path / "results")
    loaded = load_checkpoint(text)
    shown = subject_of(loaded, HERE, "We the People")
    captured = capture_attention(loaded.model, shown.inputs)
    expected = neighbors(captured[0].weights[:, 0]).mean().item()
    assert record.metrics["neighbors_0_0"] == pytest.approx(expected)
    assert (
        len([row for row in rows if row["figure"] == "bank" and row["layer"] == "0"])
        == 13 * captured[0].weights.shape[1]
    )


def test_a_papers_figures_are_drawn_under_its_numbers(
    pictures: Path, text: Path, tmp_path: Path, monkeypatch
):
    """Of GPA also what a model writes, and its heads removed one by one, with their numbers in the record."""
    monkeypatch.setenv("GKALIB_RESULTS", str(tmp_path / "results"))
    monkeypatch.setattr(inspect_run, "CHARACTERS", 400)
    monkeypatch.setattr(inspect_run, "GPA_ROWS", 8)
    assert main(["look", str(pictures), "--paper", "gka", "--out", str(tmp_path / "gka")]) == 0
    depth = len(load_checkpoint(pictures).model.blocks)
    names = ["figure-03-rollout", "figure-04-bandwidths", "figure-29-evolution"]
    for layer in range(depth):
        names += [f"figure-{5 + layer:02d}-class-layer{layer}", f"figure-{17 + layer}-patches-layer{layer}"]
        names += [f"figure-{32 + 3 * layer}-matrices-layer{layer}"]
    assert sorted(path.stem for path in (tmp_path / "gka").iterdir()) == sorted(names)
    assert main(["look", str(text), "--paper", "gpa", "--out", str(tmp_path / "gpa"), "--keep"]) == 0
    assert {path.stem for path in (tmp_path / "gpa").iterdir()} == {
        "figure-04-banks",
        "figure-05-gaps",
        "heads",
    }
    record, _ = kept(tmp_path / "results")
    heads = [name for name in record.metrics if name.startswith("without_head_")]
    assert len(heads) == len(load_checkpoint(text).model.blocks) * 2
    assert {name.replace("head", "bank") for name in heads} <= set(record.metrics)
    assert {"text_lines", "text_gap", "written_lines", "neighbors_0_0"} <= set(record.metrics)
    assert main(["look", str(text), "--paper", "rbf", "--out", str(tmp_path / "rbf")]) == 0
    assert {path.stem for path in (tmp_path / "rbf").iterdir()} == {"matrices-layer0", "matrices-layer1"}


def test_signs_are_drawn_by_size(tmp_path: Path, capsys):
    folder = smoke("karat-cifar10", tmp_path / "run", arm="tiny-g3b")
    assert main(["look", str(folder), "--out", str(tmp_path), "--device", "cpu"]) == 0
    assert "rollout" in capsys.readouterr().out and not (tmp_path / "bandwidths.png").exists()


def test_a_subject_is_what_the_model_reads(pictures: Path, text: Path, tmp_path: Path):
    loaded = load_checkpoint(pictures)
    side = loaded.config.model.image_size
    seen = subject_of(loaded, HERE, "camera")
    assert seen.inputs.shape == (1, 3, side, side) and seen.picture.shape == (224, 224, 3)
    file = tmp_path / "half.png"
    pixels, mirrored = np.zeros((60, 100, 3), np.uint8), Image.Exif()
    pixels[:, :50], mirrored[0x0112] = 255, 2
    Image.fromarray(pixels).save(file, exif=mirrored)
    seen = subject_of(loaded, HERE, str(file))
    # The middle of the picture: its left half is black for the model and in what lies below the maps.
    assert seen.inputs[0, 0, 0, 0] < 0 < seen.inputs[0, 0, 0, -1]
    assert seen.picture[:, 0].max() == 0 and seen.picture[:, -1].min() == 255
    words = subject_of(load_checkpoint(text), HERE, "We,\nthe $")
    assert words.tokens == ("W", "e", ",", "⏎", "t", "h", "e", "␣", r"\$")
    assert words.inputs.shape == (1, 9) and words.picture is None


def test_the_sample_is_spread_over_what_is_held_out(pictures: Path, text: Path):
    images, labels = sample(load_checkpoint(pictures), HERE, 5)
    assert len(images) == len(labels) == 5
    tokens, after = sample(load_checkpoint(text), HERE, 3)
    assert tokens.shape == after.shape and (tokens[:, 1:] == after[:, :-1]).all()


@pytest.mark.parametrize(
    ("run", "words", "message"),
    [
        (
            "pictures",
            "--picture dog",
            "look: 'dog' is no picture. Known by name: astronaut, camera, cat, coffee",
        ),
        ("pictures", "--held-out 100000", "cannot measure on 100000"),
        ("pictures", "--step 1", "no checkpoint of step 1"),
        ("pictures", "--text It", "reads pictures: leave --text out"),
        ("pictures", "--paper gpa", "gka-imagenet-tiny does not read characters, as GPA's paper does"),
        ("text", "--text ★", "none of the"),
        ("text", "--picture cat", "reads text: leave --picture out"),  # it could be read as three letters
    ],
)
def test_what_cannot_be_looked_at_is_said(
    run: str, words: str, message: str, tmp_path: Path, capsys, request: pytest.FixtureRequest
):
    folder = str(request.getfixturevalue(run))
    assert main(["look", folder, "--out", str(tmp_path), "--device", "cpu", *words.split()]) == 2
    assert message in capsys.readouterr().err

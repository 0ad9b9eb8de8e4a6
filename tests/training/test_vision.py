"""The loop of images: what it measures, that it learns, and that only settings decide what comes out."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.functional import cross_entropy

from gkalib.cli import main
from gkalib.data import images
from gkalib.data.images import image_data
from gkalib.evaluation import accuracy
from gkalib.models import ViTConfig
from gkalib.training import Augment, VisionConfig, log, train
from gkalib.training.checkpoint import AVERAGE, MODEL, OPTIMIZER, load_checkpoint
from gkalib.training.distributed import start
from gkalib.training.loop import Trainer
from gkalib.training.vision import ImageWorkload, held_out
from tests.training.runs import by_two, launch, picture_run
from tests.training.two_workers import pictures, train_all

AUGMENT = Augment(
    crop=(0.3, 1.0), flip=0.5, policy="rand-m9-mstd0.5-inc1", erase=0.25, mixup=0.8, cutmix=1.0, repeats=3
)
MEASURED = {"top1", "top5", "val_loss", "ema_top1", "ema_top5", "ema_val_loss"}


@pytest.fixture(autouse=True, scope="module")
def made_up_sets():
    """Smaller pictures of fewer classes than a smoke run has."""
    with pytest.MonkeyPatch.context() as patch:
        for size, classes in ((16, 4), (16, 2)):
            patch.setitem(
                images.IMAGE_SETS, f"made-up-{size}x{classes}", partial(images.made_up, size, classes)
            )
        yield


def small(**changes) -> VisionConfig:
    """Made-up pictures of 16 × 16 pixels and four classes; an epoch is five steps."""
    settings = {
        "data": "made-up-16x4",
        "limit": 40,
        "batch": 8,
        "device_batch": 4,
        "steps": 9,
        "warmup": 2,
        "clip": 1.0,
        "ema": 0.8,
        "smoothing": 0.1,
        "eval_images": 50,
        "augment": AUGMENT,
        "model": ViTConfig(
            image_size=16, patch_size=4, dim=16, depth=2, num_heads=2, num_classes=4, drop_path=0.2
        ),
    }
    return picture_run(**settings | changes)


def rows_of(folder: Path) -> list[dict[str, str]]:
    rows = log.read_curve(folder / log.CURVE)
    return [{k: v for k, v in row.items() if k not in log.TIMINGS} for row in rows]


def weights_of(folder: Path, run: VisionConfig) -> list[bytes]:
    last = folder / f"step-{run.steps:08d}"
    return [(last / name).read_bytes() for name in (MODEL, AVERAGE, OPTIMIZER)]


def test_nats_are_the_cross_entropy_of_soft_targets():
    nats = ImageWorkload(small(), image_data("made-up-16x4", limit=40), start("cpu")).nats
    logits, targets = torch.randn(5, 3), torch.rand(5, 3).softmax(-1)
    torch.testing.assert_close(nats(logits, targets), cross_entropy(logits, targets, reduction="sum"))
    assert nats(logits.bfloat16(), targets).dtype == torch.float32


def test_it_learns(tmp_path):
    model = ViTConfig(image_size=16, patch_size=4, dim=32, depth=2, num_heads=2, num_classes=2)
    longer = {"data": "made-up-16x2", "limit": None, "batch": 16, "device_batch": 8, "steps": 80, "lr": 3e-3}
    run = small(model=model, **longer, augment=Augment(flip=0.5), smoothing=0.0, eval_images=200)
    metrics = train(run, launch(tmp_path, log_every=10)).metrics
    assert metrics["top1"] > 0.8 and metrics["ema_top1"] > 0.8
    assert metrics["val_loss"] < 0.5 and metrics["train_loss"] < 0.5


def test_the_record_says_what_was_measured(tmp_path):
    run = small(eval_every=4)
    record = train(run, launch(tmp_path))
    assert record.metrics.keys() == MEASURED | {"train_loss", "parameters", "images", "images_per_second"}
    assert record.metrics["images"] == 9 * 8 and record.metrics["top5"] == 1.0
    assert record.metrics["parameters"] == sum(p.numel() for p in run.build().parameters())
    assert record.recipe["data"] == "made-up-16x4" and record.data_sha256 == ""
    rows = rows_of(tmp_path)
    assert [row["step"] for row in rows if row["top1"]] == ["4", "8", "9"]
    losses = [float(row["loss"]) for row in rows if row["loss"]]
    assert len(losses) == 9 and record.metrics["train_loss"] == pytest.approx(losses[-1])


def test_both_models_of_a_checkpoint_are_those_that_were_measured(tmp_path):
    run = small()
    metrics = train(run, launch(tmp_path)).metrics
    held = held_out(run, image_data(run.data).held_out, start("cpu"))
    for prefix, averaged in {"": False, "ema_": True}.items():
        actual = accuracy(load_checkpoint(tmp_path, averaged=averaged).model, held)
        assert actual["loss"] == pytest.approx(metrics[f"{prefix}val_loss"], rel=1e-12)
        assert actual["top1"] == metrics[f"{prefix}top1"]
    assert metrics["val_loss"] != metrics["ema_val_loss"]


def test_without_an_average_only_the_model_is_measured(tmp_path):
    metrics = train(small(ema=None, steps=2), launch(tmp_path)).metrics
    assert not any(name.startswith("ema_") for name in metrics)


@pytest.mark.parametrize("broken", [1, 7])
def test_going_on_is_not_having_stopped_to_the_bit(tmp_path, monkeypatch, broken):
    run = small(eval_every=3)
    train(run, launch(tmp_path / "whole"))
    update = Trainer.update

    def interrupted(self, step, loss):
        if step == broken:
            raise KeyboardInterrupt
        update(self, step, loss)

    monkeypatch.setattr(Trainer, "update", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(run, launch(tmp_path / "broken", save_every=0.0))
    monkeypatch.undo()
    seen = []
    monkeypatch.setattr(
        Trainer, "update", lambda self, step, loss: (seen.append(step), update(self, step, loss))
    )
    train(run, launch(tmp_path / "broken"))
    assert seen == list(range(broken, run.steps))
    assert weights_of(tmp_path / "whole", run) == weights_of(tmp_path / "broken", run)
    assert rows_of(tmp_path / "whole") == rows_of(tmp_path / "broken")


def test_products_in_bfloat16(tmp_path):
    whole = train(small(steps=3), launch(tmp_path / "whole")).metrics["train_loss"]
    half = train(small(steps=3, dtype="bfloat16"), launch(tmp_path / "half")).metrics["train_loss"]
    assert half == pytest.approx(whole, abs=0.02) and half != whole


@pytest.mark.slow  # two processes import torch side by side
def test_two_processes_have_the_losses_of_one(tmp_path):
    train_all(tmp_path / "one", pictures())
    by_two("two_workers", tmp_path / "two", "pictures")
    for name in pictures():
        single, shared = rows_of(tmp_path / "one" / name), rows_of(tmp_path / "two" / name)
        assert len(single) == len(shared) == 8 and single[0].keys() == shared[0].keys()
        for ours, theirs in zip(single, shared, strict=True):
            for column, value in ours.items():
                assert bool(value) == bool(theirs[column])
                if value:
                    # Sums over processes are added in another order.
                    assert float(theirs[column]) == pytest.approx(float(value), rel=2e-5), (name, column)


def test_a_folder_of_ones_own_trains_with_its_name_alone(tmp_path, capsys):
    """Three classes of eight pictures, where a smoke run has ten classes and measures on 128."""
    for number, name in enumerate(("cat", "dog", "owl")):
        (tmp_path / "mine" / name).mkdir(parents=True)
        for seed in range(8):
            picture = np.random.default_rng(seed).integers(0, 80 * (number + 1), (40, 48, 3), np.uint8)
            Image.fromarray(picture).save(tmp_path / "mine" / name / f"{seed}.png")
    words = ["train", "gka-imagenet-tiny", "--arm", "gka", "--smoke", "--data", str(tmp_path / "mine")]
    assert main([*words, "--out", str(tmp_path / "run"), "--device", "cpu", "--quiet"]) == 0
    assert "pictures are held out, fewer than 128: all are measured" in capsys.readouterr().err
    trained = load_checkpoint(tmp_path / "run")
    assert trained.config.model.num_classes == 3 and trained.config.eval_images is None
    assert trained.model.head.out_features == 3
    assert main(["evaluate", str(tmp_path / "run"), "--device", "cpu"]) == 0


def test_errors(tmp_path):
    with pytest.raises(
        ValueError, match=r"^train: made-up-16x4 has 4 classes and the model 7 \(model.num_classes\)"
    ):
        train(small(model=replace(small().model, num_classes=7)), launch(tmp_path))
